// Tiles of keys and values that lie in the blocks of a pool: where their rows are, fetching them ahead, packing them;
// and the memory in which lanes, each one head of one row, go through them. See paged_attention.cpp.
#if defined(WEFT_PAGED_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_PAGED_ATTENTION_TILE_INL_H_
#undef WEFT_PAGED_ATTENTION_TILE_INL_H_
#else
#define WEFT_PAGED_ATTENTION_TILE_INL_H_
#endif

#include "weft/kernels/cpu/attention.h"
#include "weft/kernels/cpu/attention_codes-inl.h"
#include "weft/kernels/cpu/attention_plan.h"
#include "weft/kernels/cpu/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {
namespace {

constexpr int kTaskLanes = 128;         // that share the packing of a tile of keys
constexpr int kTileKeys = 64;           // a tile of keys and one of values stay in L2
constexpr int kSplitKeys = 512;         // what a long sequence with few lanes is cut into, so that it uses every core
constexpr int kBlockLanes = kWide / 2;  // a vector holds two words of each, and later the scores of two keys
constexpr int kScoreKeys = kWide == 16 ? 16 : 8;  // sums at a time: half of the registers
constexpr int kChunkWords = 32;                   // of a key lie in a row: how far rows are apart is a constant
constexpr int kAmxLanes = 16;                     // of a matrix tile
constexpr int kAmxStride = kTaskLanes + kAmxLanes, kAmxWords = kTileKeys / 2;

constexpr hn::ScalableTag<uint64_t> du64;
constexpr hn::Half<decltype(df)> df_half;  // lanes of a block
constexpr hn::Rebind<int32_t, decltype(df_half)> di_half;
using VH = hn::Vec<decltype(df_half)>;

// Rows of a pool, of one key/value head: `at` says where in the pool each of them lies.
template <class E>
struct PoolRows {
  const E* base;
  const int32_t* at;
  int64_t row_stride;  // elements
  int dim, scale_at;   // elements that are read, of those before a head's scale
  const E* operator[](int64_t j) const { return base + at[j] * row_stride; }
};

struct Call {
  const PagedAttentionArgs& args;
  AttentionShape shape;
  int64_t k_words, padded;  // of a key and of values, to whole chunks and vectors
  int group;
  float scale2;   // to exponents of 2
  bool uses_amx;  // where lanes see all of a tile

  Call(const PagedAttentionArgs& a, bool may_use_amx)
      : args(a),
        shape(shapes::shape_of(a)),
        k_words(round_up(shape.head_dim, kChunkWords)),
        padded(round_up(shape.values_dim(), 16)),
        group(shape.num_heads / shape.num_kv_heads),
        scale2(a.scale * kLog2E),
        uses_amx(may_use_amx && a.window == 0 && shape.head_dim % 32 == 0) {}
  int64_t num_lanes(const PagedSequence& s) const { return int64_t(s.q_end - s.q_begin) * group; }
  int64_t num_tiles(const PagedSequence& s) const { return ceil_div(num_lanes(s), kTaskLanes); }
  // A lane sees keys [start(lane), limit(lane)).
  int64_t limit(const PagedSequence& s, int64_t lane) const {
    return s.num_keys - (s.q_end - s.q_begin) + lane / group + 1;
  }
  int64_t start(const PagedSequence& s, int64_t lane) const {
    return args.window > 0 ? std::max<int64_t>(limit(s, lane) - args.window, 0) : 0;
  }
  int64_t first_split(const PagedSequence& s, int64_t lane) const { return start(s, lane) / kSplitKeys; }
  int64_t num_splits(const PagedSequence& s) const { return ceil_div(s.num_keys, kSplitKeys) - first_split(s, 0); }
};

// Of lanes, over some of their keys: sums of p v, the highest score and the sum of p = exp(score - highest).
struct Softmax {
  float *o, *maximum, *sum;

  // Statistics are read and written sixteen at a time, from any lane on.
  static Softmax make(Arena& a, int64_t num_lanes, int64_t padded) {
    const int64_t statistics = round_up(num_lanes, 16) + 16;
    return {a.take<float>(num_lanes * padded), a.take<float>(statistics), a.take<float>(statistics)};
  }
  static int64_t bytes(int64_t num_lanes, int64_t padded) {
    Arena counted;
    make(counted, num_lanes, padded);
    return int64_t(counted.used());
  }
  void clear(int64_t num_lanes, int64_t padded) const {
    std::fill_n(o, num_lanes * padded, 0.0f);
    std::fill_n(maximum, round_up(num_lanes, 16), kNoMaximum);
    std::fill_n(sum, round_up(num_lanes, 16), 0.0f);
  }
};

// Fetches keys and values of a head from the pool, a line of each with every call: memory then works while the
// processor multiplies, and rows that lie far apart defeat its own fetching ahead. A block of lanes that sees as many
// keys of bf16 calls as often as these have lines.
class RowsAhead {
 public:
  RowsAhead(const Call& call, int kv_head, const int32_t* at, int64_t count)
      : keys_(call.args.keys, kv_head), values_(call.args.value_pool(), kv_head), row_(at), end_(at + count) {
    bytes_ = 64 * std::max(keys_.lines(), values_.lines());
    if (count > 0) start_row();
  }
  HWY_INLINE void operator()() {
    if (row_ == end_) return;
    __builtin_prefetch(key_ + at_, 0, 2);
    __builtin_prefetch(value_ + at_, 0, 2);
    at_ += 64;
    if (at_ == bytes_ && ++row_ < end_) start_row();
  }
  void rest() {
    while (row_ < end_) (*this)();
  }

 private:
  struct Rows {
    const std::byte* base;
    int64_t stride, bytes;

    Rows(const Tensor& pool, int kv_head)
        : stride(pool.dim(2) * pool.dim(3) * int64_t(size_of(pool.dtype()))),
          bytes(pool.dim(3) * int64_t(size_of(pool.dtype()))) {
      base = static_cast<const std::byte*>(pool.raw()) + kv_head * bytes;
    }
    int64_t lines() const { return ceil_div(bytes, 64) + (bytes % 64 != 0); }  // wherever a row begins
  };

  HWY_INLINE void start_row() {
    at_ = 0, key_ = keys_.base + *row_ * keys_.stride, value_ = values_.base + *row_ * values_.stride;
  }

  Rows keys_, values_;
  const int32_t *row_, *end_;
  const std::byte *key_ = nullptr, *value_ = nullptr;
  int64_t at_ = 0, bytes_ = 0;  // of a row
};

// A worker's memory.
struct State {
  float* q;                // [block][pair of words][kBlockLanes][2]
  float *k, *v;            // words of keys, [chunk][kTileKeys][kChunkWords], and of values, [kTileKeys][padded]
  float* p;                // [kTileKeys][kBlockLanes]: scores, then words of probabilities
  float* q_cols;           // with amx: words of queries, [words][kAmxStride]
  float* scores;           // [kTileKeys][kAmxLanes]
  float* weights;          // words of probabilities, [kAmxLanes][kAmxWords]
  int32_t *start, *limit;  // of lanes
  int32_t *rows, *next;    // of the pool, for the tile at hand and the one after it
  Softmax split, all;      // over a split, and over those before it
  float *keep, *take;      // what joining multiplies these by

  static State make(Arena& a, const Call& call) {
    State t;
    t.q = a.take<float>(kTaskLanes * words_of<FloatWords>(call.shape.head_dim));
    t.k = a.take<float>(call.k_words * kTileKeys);
    t.v = a.take<float>(kTileKeys * call.padded), t.p = a.take<float>(kBlockLanes * kTileKeys);
    t.q_cols = a.take<float>(call.uses_amx ? call.shape.head_dim / 2 * kAmxStride : 0);
    t.scores = a.take<float>(call.uses_amx ? kTileKeys * kAmxLanes : 0);
    t.weights = a.take<float>(call.uses_amx ? kAmxLanes * kAmxWords : 0);
    t.start = a.take<int32_t>(kTaskLanes), t.limit = a.take<int32_t>(kTaskLanes);
    t.rows = a.take<int32_t>(kTileKeys), t.next = a.take<int32_t>(kTileKeys);
    t.split = Softmax::make(a, kTaskLanes, call.padded), t.all = Softmax::make(a, kTaskLanes, call.padded);
    t.keep = a.take<float>(kTaskLanes), t.take = a.take<float>(kTaskLanes);
    return t;
  }
};

// Where a tile begins. Nowhere: sequence is null.
struct TilePlace {
  const PagedSequence* sequence = nullptr;
  int64_t key = 0;
  int kv_head = 0;
};

// ---- a tile of keys and values ----

void find_rows(const Call& call, const PagedSequence& s, int64_t key, int64_t count, int32_t* rows) {
  const int64_t block_tokens = call.args.keys.dim(1);
  int64_t block = key / block_tokens, place = key % block_tokens;
  for (int64_t j = 0; j < count; ++block, place = 0) {
    const int64_t first = s.blocks[block] * block_tokens + place, end = std::min(j + block_tokens - place, count);
    for (int64_t row = first; j < end; ++j, ++row) rows[j] = int32_t(row);
  }
}

// The rows of a tile that is wanted next.
RowsAhead rows_ahead(const Call& call, const TilePlace& place, const State& t) {
  int64_t count = 0;
  if (place.sequence != nullptr) count = std::min<int64_t>(kTileKeys, place.sequence->num_keys - place.key);
  if (count > 0) find_rows(call, *place.sequence, place.key, count, t.next);
  return RowsAhead(call, place.kv_head, t.next, count);
}

// The words of rows [0, count) as rows of the chunks at dst.
template <class Op, class E>
HWY_INLINE void pack_keys(float* dst, const PoolRows<E>& rows, int64_t count) {
  for (int64_t j = 0; j < count; ++j) {
    float* const row = dst + j * kChunkWords;
    for_each_word_vector<Op>(rows[j], rows.dim, rows.scale_at, [&](int64_t w, V words) HWY_ATTR {
      const int64_t chunk = w & -kChunkWords;
      hn::StoreU(words, df, row + w + chunk * (kTileKeys - 1));
    });
  }
}

// Rows [begin, end) of the chunks at dst = 0.
template <class Op>
HWY_INLINE void clear_keys(float* dst, int64_t begin, int64_t end, int64_t dim) {
  if (begin == end) return;
  for (int64_t w = 0; w < words_of<Op>(dim); w += kChunkWords)
    std::fill_n(dst + w * kTileKeys + begin * kChunkWords, (end - begin) * kChunkWords, 0.0f);
}

// The keys and values of a head at the rows `at` of the pool.
template <class E>
struct TileRows {
  PoolRows<E> k, v;

  TileRows(const Call& call, int head, const int32_t* at)
      : k(rows_of(call.args.keys, call.shape.head_dim, head, at)),
        v(rows_of(call.args.value_pool(), call.shape.values_dim(), head, at)) {}
  static PoolRows<E> rows_of(const Tensor& pool, int dim, int head, const int32_t* at) {
    const int64_t width = pool.dim(3), scale = kIsCode<E> ? int64_t(sizeof(float)) : 0;
    return {static_cast<const E*>(pool.raw()) + head * width, at, pool.dim(2) * width, dim, int(width - scale)};
  }
};

template <class Op, class E>
HWY_NOINLINE void pack_tile(const Call& call, const State& t, int kv_head, int64_t num_keys) {
  const auto [k, v] = TileRows<E>(call, kv_head, t.rows);
  pack_keys<Op>(t.k, k, num_keys);
  clear_keys<Op>(t.k, num_keys, round_up(num_keys, kScoreKeys), k.dim);
  if constexpr (kIsCode<E>)
    pack_value_codes<E>(t.v, v, 0, num_keys);
  else
    pack_pairs<Op, E>(t.v, v, 0, num_keys);
}

// ---- lanes ----

// The sums of p v of lanes [lane, lane + count) times factors, each lane's in its place of a vector.
HWY_INLINE void scale_sums(const Call& call, const State& t, int64_t lane, int64_t count, V alpha) {
  float factors[kWide];
  hn::StoreU(alpha, df, factors);
  for (int64_t r = 0; r < count; ++r) {
    if (factors[r] == 1) continue;
    float* o = t.split.o + (lane + r) * call.padded;
    const V factor = hn::Set(df, factors[r]);
    for (int64_t e = 0; e < call.padded; e += kWide) hn::StoreU(hn::Mul(hn::LoadU(df, o + e), factor), df, o + e);
  }
}

}  // namespace
}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
