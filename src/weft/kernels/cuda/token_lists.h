// TokenLists: the tokens of every row of a table in their order, so that a row's gradients can be summed without
// atomics.
#pragma once
#include <algorithm>
#include <vector>

#include "weft/kernels/kernels.h"

namespace weft::cuda {

// Tokens [begin, end) of the lists one after another have this row.
struct TokenList {
  int64_t row;
  int32_t begin, end;
};

struct TokenLists {
  std::vector<TokenList> lists;  // of rows that have tokens
  std::vector<int32_t> tokens;
};

inline TokenLists token_lists(const TableRows& ids, int64_t num_tokens, int64_t rows_here) {
  std::vector<std::pair<int64_t, int32_t>> pairs;
  pairs.reserve(size_t(num_tokens));
  for (int64_t t = 0; t < num_tokens; ++t)
    if (const int64_t row = ids.row(t, rows_here); row >= 0) pairs.push_back({row, int32_t(t)});
  std::sort(pairs.begin(), pairs.end());
  TokenLists result;
  result.tokens.reserve(pairs.size());
  for (const auto& [row, t] : pairs) {
    const auto at = int32_t(result.tokens.size());
    if (result.lists.empty() || result.lists.back().row != row) result.lists.push_back({row, at, at});
    result.tokens.push_back(t);
    result.lists.back().end = at + 1;
  }
  return result;
}

}  // namespace weft::cuda
