// The keys that rows of sparse attention select: products of queries and keys as those of matmul, whose sums are in
// an order that the width of keys alone decides, so that a score does not depend on company; then a threshold to each
// row.
#include <cstring>
#include <numeric>

#include "weft/base/ceil_div.h"
#include "weft/kernels/cpu/simd_targets.h"
#include "weft/kernels/selected_keys.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/select_keys.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "weft/kernels/cpu/cpu.h"
#include "weft/kernels/cpu/simd_loop-inl.h"
#include "weft/kernels/shape_checks.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

// scores[j] = scales[j] times the sum over heads of weights[h] max(0, products[h, j]); without scales 1.
void sum_of_heads(float* scores, const float* products, const float* weights, const float* scales, int64_t heads,
                  int64_t stride, int64_t count) {
  const F32Tag d;
  for_each_vector(count, [&](int64_t j, auto part) HWY_ATTR {
    F32 sum = hn::Zero(d);
    for (int64_t h = 0; h < heads; ++h) {
      const F32 product = load(d, products + h * stride + j, part);
      sum = hn::MulAdd(hn::Set(d, weights[h]), hn::Max(product, hn::Zero(d)), sum);
    }
    if (scales) sum = hn::Mul(sum, load(d, scales + j, part));
    store(sum, d, scores + j, part);
  });
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(sum_of_heads);

namespace {

constexpr int64_t kPieceKeys = 512;                  // that a worker gathers, or sums over heads, at a time
constexpr int64_t kMostKeys = 16 * kPieceKeys;       // that are multiplied at once
constexpr int64_t kRoomStep = 4096;                  // keys: a sequence that grows asks for memory as seldom as that
constexpr int64_t kMostProducts = int64_t(1) << 20;  // of some rows and keys: 4 MiB

// Keys of a sequence one behind the other, without their scales where they are codes.
struct GatheredKeys {
  Tensor keys;    // [kMostKeys, D], in the dtype of products
  Tensor scales;  // [kMostKeys] f32, of codes

  // Those from `first` on, up to `count`, and zeros where that is no multiple of kPieceKeys.
  void gather(Stream& stream, const SelectKeysArgs& args, const PagedSequence& s, int64_t first,
              int64_t count) const {
    stream.team().parallel_for(ceil_div(count, kPieceKeys), 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t at = begin * kPieceKeys; at < end * kPieceKeys; at += kPieceKeys) {
        const int64_t here = std::min(kPieceKeys, count - at);
        if (keys.dtype() == DType::f32) gather_piece<float>(args, s, first, at, here);
        if (keys.dtype() == DType::bf16) gather_piece<BFloat16>(args, s, first, at, here);
        if (keys.dtype() == DType::f16) gather_piece<Float16>(args, s, first, at, here);
      }
    });
  }

 private:
  template <class T>
  void gather_piece(const SelectKeysArgs& args, const PagedSequence& s, int64_t first, int64_t at,
                    int64_t count) const {
    const int64_t dim = keys.dim(1), block_tokens = args.keys.dim(1),
                  row_bytes = int64_t(args.keys.bytes()) / (args.keys.dim(0) * block_tokens);
    T* const to = keys.data<T>() + at * dim;
    for (int64_t j = 0; j < count; ++j) {
      const int64_t row = pool_row(s, first + at + j, block_tokens);
      copy_key(args, static_cast<const std::byte*>(args.keys.raw()) + row * row_bytes, to + j * dim, dim, at + j);
    }
    std::fill(to + count * dim, to + kPieceKeys * dim, T());
  }
  template <class T>
  void copy_key(const SelectKeysArgs& args, const std::byte* from, T* to, int64_t dim, int64_t at) const {
    const auto* const codes = reinterpret_cast<const uint8_t*>(from);
    const auto convert = [&](auto number) {
      for (int64_t e = 0; e < dim; ++e) to[e] = T(number(e));
    };
    if (args.codes != RowCodes::none) std::memcpy(scales.data<float>() + at, codes + dim, sizeof(float));
    if (args.codes == RowCodes::int8) return convert([&](int64_t e) { return float(int8_t(codes[e])); });
    if (args.codes == RowCodes::fp8)
      return convert([&](int64_t e) { return float(Float8E4M3::from_bits(codes[e])); });
    if (args.keys.dtype() == keys.dtype()) return void(std::memcpy(to, from, size_t(dim) * sizeof(T)));
    if (args.keys.dtype() == DType::bf16)
      return convert([&](int64_t e) { return float(reinterpret_cast<const BFloat16*>(from)[e]); });
    convert([&](int64_t e) { return float(reinterpret_cast<const Float16*>(from)[e]); });
  }
};

// The places of the `most` highest of `count` scores, ascending, the first of equals first.
void select_highest(const float* scores, int64_t count, int64_t most, uint32_t* ranks, int32_t* places) {
  std::transform(scores, scores + count, ranks, rank_of);
  std::nth_element(ranks, ranks + most - 1, ranks + count, std::greater());
  const uint32_t lowest = ranks[most - 1];
  int64_t equals = most - std::count_if(ranks, ranks + most, [lowest](uint32_t r) { return r > lowest; });
  for (int64_t j = 0; j < count; ++j) {
    const uint32_t rank = rank_of(scores[j]);
    if (rank > lowest || (rank == lowest && equals-- > 0)) *places++ = int32_t(j);
  }
}

class Selection {
 public:
  Selection(Stream& stream, const SelectKeysArgs& args)
      : stream_(stream), args_(args), heads_(args.q.dim(1)), dim_(args.q.dim(2)), most_(args.selected.dim(1)) {
    // Codes are exact in every dtype, and numbers of a pool in that of the queries, or in f32.
    const bool is_exact = args.codes != RowCodes::none || args.keys.dtype() == args.q.dtype();
    const DType dtype = is_exact ? args.q.dtype() : DType::f32;
    int64_t longest = 0;
    for (const PagedSequence& s : sequences()) longest = std::max<int64_t>(longest, s.num_keys);
    if (longest <= most_) return;
    rows_at_once_ = std::clamp<int64_t>(kMostProducts / (kPieceKeys * heads_), 1, args.q.dim(0));
    keys_at_once_ =
        std::clamp<int64_t>(kMostProducts / (rows_at_once_ * heads_) / kPieceKeys, 1, kMostKeys / kPieceKeys);
    keys_at_once_ *= kPieceKeys;
    gathered_ = {empty(dtype, {keys_at_once_, dim_}), empty(DType::f32, {keys_at_once_})};
    products_ = empty(DType::f32, {rows_at_once_ * heads_ * keys_at_once_});
    room_ = round_up(longest, kRoomStep);
    scores_ = empty(DType::f32, {rows_at_once_, room_});
    queries_ = args.q;
    if (args.q.dtype() == dtype) return;
    queries_ = empty(dtype, args.q.shape());
    convert(stream, queries_, args.q);
  }

  void select() {
    for (const PagedSequence& s : sequences()) {
      if (s.num_keys <= most_) {
        for (int64_t row = s.q_begin; row < s.q_end; ++row) select_all(args_, s, row, selected(row));
        continue;
      }
      for (int64_t row = s.q_begin; row < s.q_end; row += rows_at_once_)
        select_for(s, row, std::min<int64_t>(rows_at_once_, s.q_end - row));
    }
  }

 private:
  std::span<const PagedSequence> sequences() const { return {args_.sequences, size_t(args_.num_sequences)}; }
  Tensor empty(DType dtype, const Shape& shape) { return stream_.allocator().empty(dtype, shape); }
  int32_t* selected(int64_t row) const { return args_.selected.data<int32_t>() + row * most_; }
  float* scores(int64_t i) const { return scores_.data<float>() + i * scores_.dim(1); }

  void select_for(const PagedSequence& s, int64_t first, int64_t count) {
    score(s, first, count);
    const int64_t block_tokens = args_.keys.dim(1);
    stream_.team().parallel_for(count, 1, [&](int64_t begin, int64_t end, int worker) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = first + i, keys = keys_up_to(s, row);
        int32_t* const places = selected(row);
        if (keys <= most_) {
          select_all(args_, s, row, places);
          continue;
        }
        auto* const ranks = reinterpret_cast<uint32_t*>(stream_.scratch(worker, size_t(room_) * sizeof(uint32_t)));
        select_highest(scores(i), keys, most_, ranks, places);
        for (int64_t j = 0; j < most_; ++j) places[j] = int32_t(pool_row(s, places[j], block_tokens));
      }
    });
  }
  // Of rows [first, first + count), against all keys that the last of them sees.
  void score(const PagedSequence& s, int64_t first, int64_t count) {
    const int64_t end = keys_up_to(s, first + count - 1);
    const Tensor queries = queries_.slice_rows(first, count).reshape({count * heads_, dim_});
    const float* const scales = args_.codes != RowCodes::none ? gathered_.scales.data<float>() : nullptr;
    for (int64_t key = 0; key < end; key += keys_at_once_) {
      const int64_t keys = std::min(keys_at_once_, end - key), padded = round_up(keys, kPieceKeys);
      gathered_.gather(stream_, args_, s, key, keys);
      const Tensor products = products_.slice_flat(0, {count * heads_, padded});
      matmul(stream_, {.y = products, .a = queries, .b = gathered_.keys.slice_rows(0, padded), .transpose_b = true});
      const int64_t pieces = padded / kPieceKeys;
      stream_.team().parallel_for(count * pieces, 1, [&](int64_t begin, int64_t stop, int) {
        for (int64_t i = begin; i < stop; ++i) {
          const int64_t row = i / pieces, at = i % pieces * kPieceKeys;
          HWY_DYNAMIC_DISPATCH(sum_of_heads)
          (scores(row) + key + at, products.data<float>() + row * heads_ * padded + at,
           args_.weights.data<float>() + (first + row) * heads_, scales ? scales + at : nullptr, heads_, padded,
           std::min(kPieceKeys, keys - at));
        }
      });
    }
  }

  Stream& stream_;
  const SelectKeysArgs& args_;
  int64_t heads_, dim_, most_, rows_at_once_ = 1;
  int64_t room_ = 0;  // keys of a row that there is memory for
  int64_t keys_at_once_ = 0;
  GatheredKeys gathered_;
  Tensor queries_, products_;  // [rows_at_once * N * keys_at_once]
  Tensor scores_;              // [rows_at_once, room]
};

}  // namespace

void select_keys(Stream& stream, const SelectKeysArgs& args) {
  shapes::check_select_keys(args);
  const DType pool = args.keys.dtype();
  check(args.codes != RowCodes::none || pool == DType::f32 || pool == DType::bf16 || pool == DType::f16,
        "select_keys: the cpu kernels read keys of f32, bf16 and f16, not of {}", name_of(pool));
  if (args.q.dim(0) > 0) Selection(stream, args).select();
}

void mark_keys(Stream& stream, const Tensor& bits, const Tensor& selected) {
  shapes::check_mark_keys(bits, selected);
  stream.team().parallel_for(bits.dim(0), rows_per_chunk(int64_t(sizeof(int32_t)) * (bits.dim(1) + selected.dim(1))),
                             [&](int64_t begin, int64_t end, int) { mark_keys_on_host(bits, selected, begin, end); });
}

}  // namespace weft::cpu
#endif
