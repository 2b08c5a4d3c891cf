// TextRows: which tokens see which, in all layers and in local ones.
#include "weft/models/text_rows.h"

#include <gtest/gtest.h>

#include "weft/kernels/shape_checks.h"

namespace weft {
namespace {

// Row by row, the first key that it sees and the one behind the last.
std::vector<std::pair<int64_t, int64_t>> keys_of(const Pass& pass, int window) {
  std::vector<std::pair<int64_t, int64_t>> keys;
  for (int i = 0; i < pass.attention.num_spans; ++i) {
    const AttentionSpan& a = pass.attention.spans[i];
    EXPECT_EQ(a.q_begin, int64_t(keys.size())) << "a row is of no span, or of two";
    for (int64_t row = 0; row < a.q_end - a.q_begin; ++row) {
      const shapes::VisibleKeys seen = shapes::visible_keys(a, window, row);
      keys.emplace_back(a.k_begin + seen.begin, a.k_begin + seen.end);
    }
  }
  EXPECT_EQ(int64_t(keys.size()), pass.num_tokens);
  return keys;
}

class TextRowsTest : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Reaches, TextRowsTest, testing::Values(1, 2, 3, 4, 7, 100));

TEST_P(TextRowsTest, LocalLayersReachAsFarToBothSides) {
  const int64_t reach = GetParam();
  TextRows rows(0, false, reach);
  std::vector<std::pair<int64_t, int64_t>> local, all;
  for (const int64_t length : {5, 1, 2, 13, 3, 4, 8, 7}) {
    const int64_t begin = rows.num_rows(), end = begin + length;
    rows.add(std::vector<int32_t>(size_t(length), 1));
    for (int64_t row = begin; row < end; ++row) {
      local.emplace_back(std::max(begin, row - reach), std::min(end, row + reach + 1));
      all.emplace_back(begin, end);
    }
  }
  EXPECT_EQ(keys_of(rows.local_pass(), int(window_of(reach))), local);
  EXPECT_EQ(keys_of(rows.pass(), 0), all);
}

}  // namespace
}  // namespace weft
