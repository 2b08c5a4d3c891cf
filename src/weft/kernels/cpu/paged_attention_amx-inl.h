// Lanes of paged attention that see all keys of a tile, by the processor's matrix tiles (amx.h), sixteen at a time.
//
// A lane goes through a tile in this way where it sees all of its keys, else in that of a block: which of the two is
// a function of the lane and the tile alone, and so are the bits. See paged_attention.cpp.
#if defined(WEFT_PAGED_ATTENTION_AMX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_PAGED_ATTENTION_AMX_INL_H_
#undef WEFT_PAGED_ATTENTION_AMX_INL_H_
#else
#define WEFT_PAGED_ATTENTION_AMX_INL_H_
#endif

#include "weft/kernels/cpu/amx.h"
#include "weft/kernels/cpu/paged_attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {
namespace {

#if defined(__x86_64__) && (HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL)

constexpr bool kHasAmx = true;  // this target; whether the processor does is Call::uses_amx

// Registers 0 and 1 hold scores [keys][lanes], 2 and 7 keys or columns of values, 3 queries or columns of values, 4
// and 5 sums [lanes][columns] and 6 probabilities [lanes][keys], of so many lanes.
constexpr amx::Shapes lane_shapes(int lanes) {
  amx::Shapes shapes;
  for (const int whole : {0, 1, 2, 3, 7}) shapes.set(whole, amx::kRows, amx::kRowBytes);
  for (const int of_lanes : {4, 5, 6}) shapes.set(of_lanes, lanes, amx::kRowBytes);
  return shapes;
}
template <size_t... kLess>
constexpr std::array<amx::Shapes, sizeof...(kLess)> all_lane_shapes(std::index_sequence<kLess...>) {
  return {lane_shapes(int(kLess) + 1)...};
}
constexpr auto kLaneShapes = all_lane_shapes(std::make_index_sequence<kAmxLanes>());

// Words of rows as columns: [words][kAmxStride].
template <class E>
void pack_columns(float* dst, RowView<const E> rows, int64_t first, int64_t count) {
  for (int64_t lane = 0; lane < count; ++lane)
    for_each_word_vector<Bf16Words>(rows[first + lane], rows.dim, rows.dim, [&](int64_t w, V x) HWY_ATTR {
      float words[kWide];
      hn::StoreU(x, df, words);
      for (int i = 0; i < kWide; ++i) dst[(w + i) * kAmxStride + lane] = words[i];
    });
}

// t.scores[key][lane] of sixteen lanes.
HWY_NOINLINE void score_lanes(const Call& call, const State& t, int64_t lane, RowsAhead& next) {
  RowsAhead ahead = next;
  const int64_t words = words_of<Bf16Words>(call.shape.head_dim);
  constexpr int64_t kRowStride = kChunkWords * int64_t(sizeof(float)),
                    kColStride = kAmxStride * int64_t(sizeof(float));
  for (int64_t j = 0; j < kTileKeys; j += 2 * amx::kRows) {
    amx::zero<0>();
    amx::zero<1>();
    for (int64_t w = 0; w < words; w += amx::kRows) {
      const float* const k = t.k + w / kChunkWords * kChunkWords * kTileKeys + j * kChunkWords + w % kChunkWords;
      amx::load<3>(t.q_cols + w * kAmxStride + lane, kColStride);
      amx::load<2>(k, kRowStride);
      amx::dot_bf16<0, 2, 3>();
      ahead();
      amx::load<7>(k + amx::kRows * kChunkWords, kRowStride);
      amx::dot_bf16<1, 7, 3>();
      ahead();
    }
    amx::store<0>(t.scores + j * kAmxLanes, amx::kRowBytes);
    amx::store<1>(t.scores + (j + amx::kRows) * kAmxLanes, amx::kRowBytes);
  }
  next = ahead;
}

// Four vectors, as rows of words of sixteen lanes, to four neighbouring words of each lane's row.
HWY_INLINE void store_turned(V a, V b, V c, V d, float* to) {
  const hn::Repartition<double, decltype(df)> dd;
  const auto pairs = [&](V x, V y, auto&& interleave) HWY_ATTR { return hn::BitCast(dd, interleave(x, y)); };
  const auto lower = [](V x, V y) HWY_ATTR { return hn::InterleaveLower(df, x, y); };
  const auto upper = [](V x, V y) HWY_ATTR { return hn::InterleaveUpper(df, x, y); };
  const auto ab_low = pairs(a, b, lower), ab_high = pairs(a, b, upper), cd_low = pairs(c, d, lower),
             cd_high = pairs(c, d, upper);
  const V turned[4] = {hn::BitCast(df, hn::InterleaveLower(dd, ab_low, cd_low)),
                       hn::BitCast(df, hn::InterleaveUpper(dd, ab_low, cd_low)),
                       hn::BitCast(df, hn::InterleaveLower(dd, ab_high, cd_high)),
                       hn::BitCast(df, hn::InterleaveUpper(dd, ab_high, cd_high))};
  for (int i = 0; i < 4; ++i) {  // lanes i, i + 4, i + 8 and i + 12
    _mm_storeu_ps(to + i * kAmxWords, _mm512_castps512_ps128(turned[i].raw));
    _mm_storeu_ps(to + (i + 4) * kAmxWords, _mm512_extractf32x4_ps(turned[i].raw, 1));
    _mm_storeu_ps(to + (i + 8) * kAmxWords, _mm512_extractf32x4_ps(turned[i].raw, 2));
    _mm_storeu_ps(to + (i + 12) * kAmxWords, _mm512_extractf32x4_ps(turned[i].raw, 3));
  }
}

// Scores to probabilities, as words of each lane's row, and the lanes' sums to their new maximum.
HWY_NOINLINE void softmax_lanes(const Call& call, const State& t, int64_t lane, int64_t count) {
  float* const scores = t.scores;
  if (const ScoreCap cap(call.shape); cap.is_on()) {
    for (int64_t j = 0; j < kTileKeys * kAmxLanes; j += kWide)
      hn::StoreU(cap(hn::LoadU(df, scores + j)), df, scores + j);
  }
  const V before = hn::LoadU(df, t.split.maximum + lane);
  V highest = before;
  for (int64_t j = 0; j < kTileKeys; ++j) highest = hn::Max(highest, hn::LoadU(df, scores + j * kAmxLanes));
  const V scale = hn::Set(df, call.scale2), shift = hn::Mul(highest, scale);
  V sum = hn::Zero(df);
  for (int64_t j = 0; j < kTileKeys; j += 8) {
    V words[4];
    for (int i = 0; i < 4; ++i) {
      V pair[2];
      for (int h = 0; h < 2; ++h) {
        pair[h] = exp2<FloatWords>(hn::MulSub(hn::LoadU(df, scores + (j + 2 * i + h) * kAmxLanes), scale, shift));
        sum = hn::Add(sum, pair[h]);
      }
      words[i] = Bf16Words::round_pairs(pair[0], pair[1]);
    }
    store_turned(words[0], words[1], words[2], words[3], t.weights + j / 2);
  }
  const V alpha = exp2<FloatWords>(hn::Mul(hn::Sub(before, highest), scale));
  hn::StoreU(highest, df, t.split.maximum + lane);
  hn::StoreU(hn::MulAdd(hn::LoadU(df, t.split.sum + lane), alpha, sum), df, t.split.sum + lane);
  scale_sums(call, t, lane, count, alpha);
}

// o += p v.
HWY_NOINLINE void add_values_of_lanes(const Call& call, const State& t, int64_t lane, RowsAhead& next) {
  RowsAhead ahead = next;
  const int64_t stride = call.padded * int64_t(sizeof(float));
  constexpr int64_t kWeightStride = kAmxWords * int64_t(sizeof(float));
  float* const o = t.split.o + lane * call.padded;
  for (int64_t e = 0; e < call.padded; e += 2 * amx::kRows) {
    const bool has_second = e + amx::kRows < call.padded;
    amx::load<4>(o + e, stride);
    if (has_second) amx::load<5>(o + e + amx::kRows, stride);
    for (int64_t w = 0; w < kAmxWords; w += amx::kRows) {
      const float* const v = t.v + w * call.padded + e;
      amx::load<6>(t.weights + w, kWeightStride);
      amx::load<3>(v, stride);
      amx::dot_bf16<4, 6, 3>();
      ahead();
      if (!has_second) continue;
      amx::load<2>(v + amx::kRows, stride);
      amx::dot_bf16<5, 6, 2>();
      ahead();
    }
    amx::store<4>(o + e, stride);
    if (has_second) amx::store<5>(o + e + amx::kRows, stride);
  }
  next = ahead;
}

// Lanes [begin, end), the last of the task, against a tile of which they see all keys.
void lanes_by_amx(const Call& call, const State& t, int64_t begin, int64_t end, RowsAhead& ahead) {
  for (int64_t lane = begin; lane < end; lane += kAmxLanes) {
    const int64_t count = std::min<int64_t>(kAmxLanes, end - lane);
    amx::use(kLaneShapes[size_t(count - 1)]);
    score_lanes(call, t, lane, ahead);
    softmax_lanes(call, t, lane, count);
    add_values_of_lanes(call, t, lane, ahead);
  }
}

#else

constexpr bool kHasAmx = false;
void pack_columns(float*, auto&&, int64_t, int64_t) {}
void lanes_by_amx(const Call&, const State&, int64_t, int64_t, RowsAhead&) {}

#endif

// Of lanes whose limits ascend, the first that sees all of a tile's keys and so goes this way; `count`: none.
template <class Op>
int64_t first_by_amx(const Call& call, const State& t, int64_t count, int64_t key, int64_t num_keys) {
  if (!kHasAmx || Op::kPerWord != 2 || !call.uses_amx || num_keys != kTileKeys) return count;
  return std::lower_bound(t.limit, t.limit + count, int32_t(key + kTileKeys)) - t.limit;
}

}  // namespace
}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
