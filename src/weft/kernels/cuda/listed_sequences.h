// The sequences of paged attention as its kernels take them, their blocks in one list of the device; needs no GPU.
//
// Where rows select keys, each is a sequence of its own in a pool of blocks of one token, and what is selected, which
// is on the device already, is the list.
#pragma once
#include <algorithm>
#include <span>

#include "weft/base/error.h"
#include "weft/kernels/cuda/paged_plan.h"
#include "weft/kernels/selected_keys.h"

namespace weft::cuda {

struct ListedSequences {
  std::vector<PagedRowsOf> sequences;  // those with rows
  std::vector<int32_t> blocks;         // none where keys are selected
  int64_t block_tokens = 1;
};

inline ListedSequences list_sequences(std::span<const PagedSequence> sequences, int64_t block_tokens) {
  ListedSequences list{.block_tokens = block_tokens};
  for (const PagedSequence& s : sequences) {
    if (s.q_begin == s.q_end) continue;
    list.sequences.push_back({s.q_begin, s.q_end, s.num_keys, int32_t(list.blocks.size())});
    list.blocks.insert(list.blocks.end(), s.blocks, s.blocks + ceil_div(s.num_keys, block_tokens));
  }
  return list;
}

// Of rows that select up to `most` keys each.
inline ListedSequences list_rows(std::span<const PagedSequence> sequences, int64_t most) {
  ListedSequences list;
  for (const PagedSequence& s : sequences)
    for (int32_t row = s.q_begin; row < s.q_end; ++row)
      list.sequences.push_back({row, row + 1, int32_t(std::min(keys_up_to(s, row), most)), int32_t(row * most)});
  check(int64_t(list.sequences.size()) * most <= INT32_MAX,
        "paged attention: {} rows of {} selected keys are too many", list.sequences.size(), most);
  return list;
}

// Rows [first, first + count) of such a call, whose sequences are put into `sequences`.
inline PagedAttentionArgs selecting_rows(const PagedAttentionArgs& args, int64_t first, int64_t count,
                                         std::vector<PagedSequence>& sequences) {
  sequences.clear();
  for (const PagedSequence& s : std::span(args.sequences, size_t(args.num_sequences))) {
    const int64_t begin = std::max<int64_t>(s.q_begin, first), end = std::min<int64_t>(s.q_end, first + count);
    if (begin < end)
      sequences.push_back({int32_t(begin - first), int32_t(end - first), int32_t(keys_up_to(s, end - 1)), s.blocks});
  }
  PagedAttentionArgs rows = args;
  for (Tensor PagedAttentionArgs::*t :
       {&PagedAttentionArgs::y, &PagedAttentionArgs::q, &PagedAttentionArgs::selected})
    rows.*t = (args.*t).slice_rows(first, count);
  rows.sequences = sequences.data(), rows.num_sequences = int(sequences.size());
  return rows;
}

inline ListedSequences list_sequences(const PagedAttentionArgs& args) {
  const std::span sequences(args.sequences, size_t(args.num_sequences));
  return args.selected ? list_rows(sequences, args.selected.dim(1)) : list_sequences(sequences, args.keys.dim(1));
}

}  // namespace weft::cuda
