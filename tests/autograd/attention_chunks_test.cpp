// Chunks of attention: a row sees what it saw, of its own chunk.
#include "weft/autograd/attention_chunks.h"

#include <gtest/gtest.h>

#include <set>

#include "weft/kernels/shape_checks.h"

namespace weft {
namespace {

struct ChunkedSpan {
  const char* name;
  AttentionSpan span;
};
void PrintTo(const ChunkedSpan& c, std::ostream* out) { *out << c.name; }

class AttentionChunksTest : public testing::TestWithParam<ChunkedSpan> {};
INSTANTIATE_TEST_SUITE_P(
    Spans, AttentionChunksTest,
    testing::Values(ChunkedSpan{"document", {.q_begin = 3, .q_end = 20, .k_begin = 3, .k_end = 20}},
                    ChunkedSpan{"continued", {.q_begin = 0, .q_end = 4, .k_begin = 10, .k_end = 27}},
                    ChunkedSpan{"one_row", {.q_begin = 7, .q_end = 8, .k_begin = 0, .k_end = 10}},
                    ChunkedSpan{"empty", {.q_begin = 7, .q_end = 7, .k_begin = 2, .k_end = 4}},
                    ChunkedSpan{
                        "same_chunk_of_ring",
                        {.q_begin = 0, .q_end = 9, .k_begin = 2, .k_end = 11, .first_query = 40, .first_key = 7}},
                    ChunkedSpan{"earlier_keys",
                                {.q_begin = 5,
                                 .q_end = 12,
                                 .k_begin = 1,
                                 .k_end = 7,
                                 .causal = false,
                                 .first_query = 90,
                                 .first_key = 3,
                                 .lead = 8}},
                    ChunkedSpan{"keys_too_far_back",
                                {.q_begin = 0, .q_end = 3, .k_begin = 0, .k_end = 2, .causal = false, .lead = 40}}),
    [](const auto& test) { return test.param.name; });

// Query row and key row, global index of the query, position of the key.
using Seen = std::set<std::array<int64_t, 4>>;
Seen pairs_of(std::span<const AttentionSpan> spans, int chunk) {
  Seen seen;
  for (const AttentionSpan& s : spans) {
    const int64_t end = s.first_key + s.k_end - s.k_begin + s.lead;
    for (int64_t q = 0; q < s.q_end - s.q_begin; ++q) {
      const auto visible = shapes::visible_keys(s, 0, q);
      const int64_t position = end - (s.q_end - s.q_begin) + q;
      for (int64_t k = visible.begin; k < visible.end; ++k)
        if (chunk == 0 || (s.first_key + k) / chunk == position / chunk)
          seen.insert({s.q_begin + q, s.k_begin + k, s.first_query + q, s.first_key + k});
    }
  }
  return seen;
}

TEST_P(AttentionChunksTest, RowsSeeWhatTheySawOfTheirChunk) {
  AttentionChunks chunks;
  for (const int chunk : {1, 2, 5, 8, 100}) {
    const auto cut = chunks.cut(std::span(&GetParam().span, 1), chunk);
    EXPECT_EQ(pairs_of(cut, 0), pairs_of({&GetParam().span, 1}, chunk)) << chunk;
    for (size_t i = 1; i < cut.size(); ++i) EXPECT_LE(cut[i - 1].q_end, cut[i].q_begin) << chunk;
  }
}

TEST(AttentionChunks, SequencesInBlocksBeginWithTheirChunk) {
  const std::vector<int32_t> first{3, 1, 4, 15, 9}, second{2, 6};
  const std::vector<PagedSequence> sequences{{.q_begin = 0, .q_end = 7, .num_keys = 18, .blocks = first.data()},
                                             {.q_begin = 7, .q_end = 8, .num_keys = 8, .blocks = second.data()}};
  AttentionChunks chunks;
  const auto cut = chunks.cut(sequences, 8, 4);
  ASSERT_EQ(cut.size(), 3u);
  const auto told = [](const PagedSequence& s) { return std::array{s.q_begin, s.q_end, s.num_keys, *s.blocks}; };
  EXPECT_EQ(told(cut[0]), (std::array{0, 5, 8, 4}));
  EXPECT_EQ(told(cut[1]), (std::array{5, 7, 2, 9}));
  EXPECT_EQ(told(cut[2]), (std::array{7, 8, 8, 2}));
  EXPECT_THROW(chunks.cut(sequences, 6, 4), Error);
}

}  // namespace
}  // namespace weft
