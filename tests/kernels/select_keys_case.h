// SelectKeysBench: sequences in a pool of blocks, of which rows select keys and attend to them.
#pragma once
#include <numeric>
#include <optional>

#include "weft/kernels/row_codes.h"
#include "workbench.h"

namespace weft {

inline constexpr int32_t kSelectedFrom = 1100;  // the keys of a sequence

struct SelectKeysCase {
  std::string name;
  DType type = DType::f32;
  std::optional<DType> pool = {};  // as type
  RowCodes codes = RowCodes::none;
  int64_t heads = 5, dim = 24, most = 64;
  int block_tokens = 16;
  int32_t longest = kSelectedFrom;
  // Of attention: elements of keys that are its values, 0: all; and whether these come as values of their own.
  int64_t value_dim = 0;
  bool has_values = false;
};

inline std::vector<SelectKeysCase> select_keys_cases() {
  return {{.name = "f32"},
          {.name = "bf16", .type = DType::bf16},
          {.name = "f16", .type = DType::f16},
          {.name = "f32_in_bf16", .pool = DType::bf16},
          {.name = "bf16_in_f32", .type = DType::bf16, .pool = DType::f32},
          {.name = "one_key", .most = 1},
          {.name = "one_head", .heads = 1, .dim = 1},
          {.name = "many_heads", .type = DType::bf16, .heads = 32, .dim = 64, .most = 200},
          {.name = "heads_of_33", .type = DType::bf16, .heads = 70, .dim = 33, .block_tokens = 37},
          {.name = "int8", .codes = RowCodes::int8},
          {.name = "fp8_of_bf16", .type = DType::bf16, .codes = RowCodes::fp8, .heads = 8, .dim = 64}};
}

// Rows [begin, end) of a sequence, of which `end` keys are there by then.
struct SelectingRows {
  int sequence;
  int32_t begin, end;
};
// Rows that see fewer keys than are selected, as many, and more, at the borders of pieces.
inline const std::vector<SelectingRows> kSelectingRows{
    {0, 0, 70}, {1, 500, 530}, {2, kSelectedFrom - 1, kSelectedFrom}};

class SelectKeysBench {
 public:
  SelectKeysBench(const SelectKeysCase& c, Device device, int threads) : case_(c), bench_(threads, device) {
    const int32_t each = (c.longest + c.block_tokens - 1) / c.block_tokens;
    const int32_t all = kSequences * each;
    check(std::gcd(7, all) == 1, "{} blocks would not differ", all);
    for (int32_t i = 0; i < all; ++i) blocks_.push_back((i * 7 + 3) % all);
    const DType pool = c.codes == RowCodes::none ? c.pool.value_or(c.type) : DType::u8;
    keys_ = bench_.host.empty(pool, {all, c.block_tokens, 1, row_width(c.codes, c.dim)});
    std::memset(keys_.raw(), 0, keys_.bytes());
    for (int s = 0; s < kSequences; ++s)
      place(s, bench_.random(DType::f32, {c.longest, 1, c.dim}, fmt::format("keys{}", s)));
    q_ = bench_.random(c.type, {c.longest, c.heads, c.dim}, "q");
    weights_ = bench_.random(DType::f32, {c.longest, c.heads}, "weights");
  }

  void set_keys(int sequence, std::span<const float> keys) {
    const Tensor x = bench_.host.empty(DType::f32, {int64_t(keys.size()), 1, 1});
    std::ranges::copy(keys, x.data<float>());
    place(sequence, x);
  }
  // Of every query 1 and every weight 1, for this call and those that follow.
  std::vector<int32_t> select_with_ones(const Kernels& kernels, const SelectingRows& rows) {
    for (const Tensor& t : {q_, weights_}) reference_kernels().fill(bench_.stream, t, 1);
    return select(kernels, {rows});
  }

  // [T, most]: the places of keys in their sequences; -1 behind the last.
  std::vector<int32_t> select(const Kernels& kernels, const std::vector<SelectingRows>& pieces) {
    const Tensor rows = selected_rows(kernels, pieces);
    const std::vector<PagedSequence> all = sequences(pieces);
    std::vector<int32_t> places;
    for (size_t i = 0; i < pieces.size(); ++i)
      for (int64_t at = all[i].q_begin * case_.most; at < all[i].q_end * case_.most; ++at)
        places.push_back(place_of(pieces[i].sequence, rows.data<int32_t>()[at]));
    return places;
  }

  // What attention to selected keys, or to all, gives on the host; keys are those of the pool, values in them.
  Tensor attend(const Kernels& kernels, const std::vector<SelectingRows>& pieces, bool are_selected) {
    const std::vector<PagedSequence> all = sequences(pieces);
    const Tensor q = rows_of(q_, pieces);
    const Shape shape{q.dim(0), case_.heads, case_.value_dim ? case_.value_dim : case_.dim};
    PagedAttentionArgs args{.y = bench_.host.empty(case_.type, shape), .q = q, .keys = keys_, .codes = case_.codes};
    args.sequences = all.data(), args.num_sequences = int(all.size()), args.scale = 0.2f;
    if (are_selected) args.selected = selected_rows(reference_kernels(), pieces);
    if (&kernels != &reference_kernels()) {
      args.y = bench_.on_device(args.y), args.q = bench_.on_device(q), args.keys = bench_.on_device(keys_);
      if (args.selected) args.selected = bench_.on_device(args.selected);
    }
    if (case_.has_values) args.values = args.keys;
    kernels.paged_attention(bench_.stream, args);
    return bench_.on_host(args.y);
  }

  std::vector<double> values(const Tensor& x) { return bench_.values(x); }

 private:
  static constexpr int kSequences = 3;

  int32_t row_of(int sequence, int64_t key) const {
    const auto each = int64_t(blocks_.size()) / kSequences;
    return int32_t(blocks_[size_t(sequence * each + key / case_.block_tokens)] * case_.block_tokens +
                   key % case_.block_tokens);
  }
  int32_t place_of(int sequence, int32_t row) const {
    if (row == -1) return -1;
    for (int32_t key = 0; key < case_.longest; ++key)
      if (row_of(sequence, key) == row) return key;
    return -2;
  }
  void place(int sequence, const Tensor& x) {
    std::vector<int32_t> rows;
    for (int64_t key = 0; key < x.dim(0); ++key) rows.push_back(row_of(sequence, key));
    const PlaceRowsArgs args{keys_, x, rows.data(), case_.codes};
    reference_kernels().place_rows(bench_.stream, {&args, 1});
  }
  std::vector<PagedSequence> sequences(const std::vector<SelectingRows>& pieces) const {
    std::vector<PagedSequence> all;
    int32_t row = 0;
    for (const SelectingRows& p : pieces) {
      const size_t each = blocks_.size() / kSequences;
      all.push_back({row, row + p.end - p.begin, p.end, blocks_.data() + size_t(p.sequence) * each});
      row += p.end - p.begin;
    }
    return all;
  }
  Tensor rows_of(const Tensor& x, const std::vector<SelectingRows>& pieces) {
    Shape shape = x.shape();
    shape[0] = sequences(pieces).back().q_end;
    const Tensor y = bench_.host.empty(x.dtype(), shape);
    int64_t row = 0;
    for (const SelectingRows& p : pieces) {
      const Tensor part = x.slice_rows(p.begin, p.end - p.begin);
      std::memcpy(y.slice_rows(row, part.dim(0)).raw(), part.raw(), part.bytes());
      row += part.dim(0);
    }
    return y;
  }
  Tensor selected_rows(const Kernels& kernels, const std::vector<SelectingRows>& pieces) {
    const std::vector<PagedSequence> all = sequences(pieces);
    SelectKeysArgs args{
        .q = rows_of(q_, pieces), .weights = rows_of(weights_, pieces), .keys = keys_, .codes = case_.codes};
    args.sequences = all.data(), args.num_sequences = int(all.size());
    args.selected = bench_.host.empty(DType::i32, {args.q.dim(0), case_.most});
    std::memset(args.selected.raw(), 0x7f, args.selected.bytes());
    if (&kernels != &reference_kernels()) {
      args.q = bench_.on_device(args.q), args.weights = bench_.on_device(args.weights);
      args.keys = bench_.on_device(args.keys), args.selected = bench_.on_device(args.selected);
    }
    kernels.select_keys(bench_.stream, args);
    return bench_.on_host(args.selected);
  }

  const SelectKeysCase case_;
  Workbench bench_;
  std::vector<int32_t> blocks_;  // of each sequence in turn
  Tensor keys_, q_, weights_;
};

}  // namespace weft
