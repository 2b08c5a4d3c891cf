// PagedPool: sequences in a pool of blocks for tests of paged attention, on the host and where the kernels run.
#pragma once
#include <map>

#include "workbench.h"

namespace weft {

struct PagedHeads {
  std::string name;
  DType type = DType::f32, pool = DType::f32;
  int heads = 4, kv_heads = 2, dim = 40, value_dim = 40;
  int window = 0;
  float softcap = 0;
  int block_tokens = 16;
  RowCodes codes = RowCodes::none;
  bool has_sinks = false;
  bool values_in_keys = false;  // they are the first elements of keys

  RowFormat format() const { return codes == RowCodes::none ? RowFormat{pool} : RowFormat::of(codes); }
};

// Rows [begin, end) of a sequence, of which `end` keys are there by then.
struct PagedRange {
  int sequence;
  int32_t begin, end;
};

// A pool, NaN where nothing has been placed. Rows are placed on the host; kernels of a device get what was placed by
// the time that they first attend.
class PagedPool {
 public:
  // order: of the blocks; 0 leaves them as they lie.
  PagedPool(const PagedHeads& h, int32_t longest, int32_t num_sequences, int threads, Device device, uint64_t order)
      : heads_(h), longest_(longest), bench_(threads, device) {
    const int32_t each = (longest + h.block_tokens - 1) / h.block_tokens, all = each * num_sequences;
    std::vector<int32_t> blocks(static_cast<size_t>(all));
    for (int32_t i = 0; i < all; ++i) blocks[size_t(i)] = i;
    for (size_t i = blocks.size(); order && i-- > 1;) std::swap(blocks[i], blocks[philox(order, i)[0] % (i + 1)]);
    for (int s = 0; s < num_sequences; ++s)
      blocks_.emplace_back(blocks.begin() + s * each, blocks.begin() + (s + 1) * each);
    const auto clear = [](const Tensor& pool) { std::memset(pool.raw(), 0xff, pool.bytes()); };
    keys_ = bench_.host.empty(h.format().dtype, {all, h.block_tokens, h.kv_heads, row_width(h.codes, h.dim)});
    clear(keys_);
    if (h.values_in_keys) return;
    values_ = bench_.host.empty(h.format().dtype, {all, h.block_tokens, h.kv_heads, row_width(h.codes, h.value_dim)});
    clear(values_);
  }

  void place(const Kernels& kernels, int sequence, int32_t begin, int32_t end) {
    std::vector<int32_t> rows;
    for (int32_t i = begin; i < end; ++i)
      rows.push_back(block(sequence, i) * heads_.block_tokens + i % heads_.block_tokens);
    const auto rows_for = [&](const char* name, const Tensor& pool, int64_t dim) {
      return PlaceRowsArgs{pool, rows_of(name, sequence, begin, end, heads_.kv_heads, dim), rows.data(),
                           heads_.codes};
    };
    const PlaceRowsArgs keys = rows_for("k", keys_, heads_.dim);
    if (heads_.values_in_keys) return kernels.place_rows(bench_.stream, {&keys, 1});
    kernels.place_rows(bench_.stream, std::array{keys, rows_for("v", values_, heads_.value_dim)});
  }

  // [T, N, value_dim] of all these rows together, on the host.
  Tensor attend(const Kernels& kernels, const std::vector<PagedRange>& pieces) {
    std::vector<PagedSequence> sequences;
    int32_t row = 0;
    for (const PagedRange& p : pieces) {
      sequences.push_back({row, row + p.end - p.begin, p.end, blocks_[size_t(p.sequence)].data()});
      row += p.end - p.begin;
    }
    const Tensor q = bench_.host.empty(heads_.type, {row, heads_.heads, heads_.dim});
    for (size_t i = 0; i < pieces.size(); ++i) {
      const Tensor part = rows_of("q", pieces[i].sequence, pieces[i].begin, pieces[i].end, heads_.heads, heads_.dim);
      std::memcpy(q.slice_rows(sequences[i].q_begin, part.dim(0)).raw(), part.raw(), part.bytes());
    }
    const Tensor y = bench_.host.empty(heads_.type, {row, heads_.heads, heads_.value_dim});
    std::memset(y.raw(), 0xff, y.bytes());
    PagedAttentionArgs args{.y = y, .q = q, .keys = keys_, .values = values_, .sequences = sequences.data()};
    args.num_sequences = int(sequences.size()), args.scale = 0.2f, args.codes = heads_.codes;
    args.softcap = heads_.softcap, args.window = heads_.window;
    if (heads_.has_sinks) args.sinks = bench_.random(heads_.type, {heads_.heads}, "sinks");
    if (&kernels != &reference_kernels()) {
      if (!device_keys_) device_keys_ = bench_.on_device(keys_);
      if (!device_values_ && values_) device_values_ = bench_.on_device(values_);
      args.y = bench_.on_device(y), args.q = bench_.on_device(q);
      args.keys = device_keys_, args.values = device_values_;
      if (args.sinks) args.sinks = bench_.on_device(args.sinks);
    }
    kernels.paged_attention(bench_.stream, args);
    return bench_.on_host(args.y);
  }

  Workbench& bench() { return bench_; }
  // Element `at` of the first head's value of a key, before a device attended to it.
  template <class T>
  T& value(int sequence, int32_t key, int at) {
    const int64_t row = int64_t(block(sequence, key)) * heads_.block_tokens + key % heads_.block_tokens;
    return values_.data<T>()[row * heads_.kv_heads * row_width(heads_.codes, heads_.value_dim) + at];
  }

  // Of q, k or v; made once for all pools.
  Tensor rows_of(const char* name, int sequence, int32_t begin, int32_t end, int64_t heads, int64_t dim) const {
    static Workbench bench;
    static std::map<std::string, Tensor> made;
    const DType type = name[0] == 'q' ? heads_.type : DType::f32;
    const std::string full = fmt::format("{}{}", name, sequence);
    Tensor& all = made[fmt::format("{} {} {} {} {}", full, longest_, heads, dim, weft::name_of(type))];
    if (!all) all = bench.random(type, {longest_, heads, dim}, full);
    return all.slice_rows(begin, end - begin);
  }

 private:
  int32_t block(int sequence, int32_t key) const {
    return blocks_[size_t(sequence)][size_t(key / heads_.block_tokens)];
  }

  const PagedHeads heads_;
  const int32_t longest_;
  Workbench bench_;
  std::vector<std::vector<int32_t>> blocks_;
  Tensor keys_, values_, device_keys_, device_values_;
};

inline std::vector<std::byte> bytes_of(const Tensor& t) {
  const auto* data = static_cast<const std::byte*>(t.raw());
  return {data, data + t.bytes()};
}
inline std::vector<std::byte> bytes_of(const Tensor& t, int64_t row, int64_t count) {
  return bytes_of(t.slice_rows(row, count));
}

}  // namespace weft
