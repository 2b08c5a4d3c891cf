// What backends share of keys that rows of sparse attention select: how many a row sees, and attention to them as
// attention of many short sequences.
#pragma once
#include <algorithm>
#include <bit>
#include <span>

#include "weft/kernels/kernels.h"

namespace weft {

// Of its sequence's keys, those up to a row's own.
inline int64_t keys_up_to(const PagedSequence& s, int64_t row) { return s.num_keys - (s.q_end - 1 - row); }

// Which row of the pool has key j of a sequence.
inline int64_t pool_row(const PagedSequence& s, int64_t j, int64_t block_tokens) {
  return s.blocks[j / block_tokens] * block_tokens + j % block_tokens;
}

// Ascends with x, but for numbers that are none, which stand at both ends.
inline uint32_t rank_of(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Where all of a row's keys are selected.
inline void select_all(const SelectKeysArgs& args, const PagedSequence& s, int64_t row, int32_t* selected) {
  const int64_t most = args.selected.dim(1), count = keys_up_to(s, row), block_tokens = args.keys.dim(1);
  for (int64_t j = 0; j < count; ++j) selected[j] = int32_t(pool_row(s, j, block_tokens));
  std::fill(selected + count, selected + most, -1);
}

// mark_keys of rows [begin, end), where tensors are memory of the host.
inline void mark_keys_on_host(const Tensor& bits, const Tensor& selected, int64_t begin, int64_t end) {
  const int64_t words = bits.dim(1), most = selected.dim(1);
  auto* const marks = reinterpret_cast<uint32_t*>(bits.data<int32_t>());
  std::fill(marks + begin * words, marks + end * words, 0u);
  for (int64_t row = begin; row < end; ++row)
    for (const int32_t key : std::span(selected.data<int32_t>() + row * most, size_t(most)))
      if (key >= 0 && key / 32 < words) marks[row * words + key / 32] |= 1u << (key % 32);
}

// paged_attention of selected keys, without these: a sequence to each row, in a pool of blocks of one token.
struct AttentionByRow {
  Tensor memory;
  PagedAttentionArgs args;

  AttentionByRow(Allocator& allocator, const PagedAttentionArgs& selecting) : args(selecting) {
    const int64_t rows = args.q.dim(0), most = args.selected.dim(1);
    memory = allocator.empty(DType::u8, {rows * int64_t(sizeof(PagedSequence))});
    auto* const sequences = reinterpret_cast<PagedSequence*>(memory.raw());
    const auto* const selected = args.selected.data<int32_t>();
    for (const PagedSequence& s : std::span(args.sequences, size_t(args.num_sequences)))
      for (int32_t row = s.q_begin; row < s.q_end; ++row)
        sequences[row] = {row, row + 1, int32_t(std::min(keys_up_to(s, row), most)), selected + row * most};
    args.selected = {};
    args.sequences = sequences, args.num_sequences = int(rows);
    args.keys = in_single_tokens(args.keys);
    if (args.values) args.values = in_single_tokens(args.values);
  }

 private:
  static Tensor in_single_tokens(const Tensor& pool) {
    return pool.reshape({pool.dim(0) * pool.dim(1), 1, pool.dim(2), pool.dim(3)});
  }
};

}  // namespace weft
