// Work lists of selecting keys: every row is in one chunk, and in one tile where it needs scores, for which there is
// room; and what is attended to where keys are selected.
#include "weft/kernels/cuda/select_plan.h"

#include <gtest/gtest.h>

#include "kernels/workbench.h"
#include "weft/kernels/cuda/listed_sequences.h"

namespace weft::cuda {
namespace {

struct SelectPlanCase {
  std::vector<PagedRowsOf> sequences;
  int64_t most;
  int tile_rows;
  int64_t most_scores;
  size_t num_chunks;
};

TEST(SelectPlanTest, RowsGetTheirScoresOnce) {
  const std::vector<PagedRowsOf> mixed{{0, 70, 100, 0}, {70, 71, 40, 7}, {71, 72, 2000, 10}, {72, 80, 90, 200}};
  for (const SelectPlanCase& c : {SelectPlanCase{{}, 64, 1, 1000, 0},
                                  {{{0, 9, 20, 0}}, 64, 4, 1000, 1},
                                  {mixed, 64, 1, kMostScores, 1},
                                  {mixed, 64, 12, kMostScores, 1},
                                  {mixed, 64, 12, 1000, 6},
                                  {mixed, 1, 64, 1, 80}}) {
    const SelectPlan plan = plan_selection(c.sequences, c.most, c.tile_rows, c.most_scores);
    std::vector<int32_t> num_keys, tables, first_rows;
    for (const PagedRowsOf& s : c.sequences)
      for (int32_t row = s.q_begin; row < s.q_end; ++row) {
        num_keys.push_back(s.num_keys - s.q_end + 1 + row);
        tables.push_back(s.table), first_rows.push_back(s.q_begin);
      }
    ASSERT_EQ(plan.rows.size(), num_keys.size());
    EXPECT_EQ(plan.chunks.size(), c.num_chunks) << c.most_scores;
    int32_t row = 0, tile = 0;
    for (const SelectChunk& chunk : plan.chunks) {
      ASSERT_EQ(chunk.row_begin, row);
      ASSERT_EQ(chunk.tile_begin, tile);
      ASSERT_GT(chunk.row_end, chunk.row_begin);
      int64_t scores = 0;
      int num_scored = 0;
      for (; row < chunk.row_end; ++row) {
        const KeysOfRow& r = plan.rows[size_t(row)];
        ASSERT_EQ(r.num_keys, num_keys[size_t(row)]);
        ASSERT_EQ(r.table, tables[size_t(row)]);
        if (r.num_keys <= c.most) continue;
        const ScoreTile& t = plan.tiles[size_t(tile)];
        ASSERT_LE(t.num_rows, c.tile_rows);
        ASSERT_LE(t.row, row);
        ASSERT_LT(row, t.row + t.num_rows);
        ASSERT_EQ(first_rows[size_t(t.row)], first_rows[size_t(row)]);
        if (row + 1 == t.row + t.num_rows) ++tile;
        ASSERT_EQ(r.scores, scores);
        ASSERT_LE(r.num_keys, chunk.longest);
        scores += round_up(r.num_keys, kScoresOfThread), ++num_scored;
      }
      ASSERT_EQ(chunk.tile_end, tile);
      ASSERT_LE(scores, plan.num_scores);
      if (num_scored > 1) ASSERT_LE(scores, c.most_scores);
    }
    EXPECT_EQ(row, int32_t(plan.rows.size()));
    EXPECT_EQ(tile, int32_t(plan.tiles.size()));
    EXPECT_GE(room_for_scores(plan.num_scores, c.most_scores), plan.num_scores);
  }
}

TEST(SelectPlanTest, ATileHasWholeRows) {
  EXPECT_EQ(rows_of_tile(0, 64), 64);
  EXPECT_EQ(rows_of_tile(1, 64), 64);
  EXPECT_EQ(rows_of_tile(5, 64), 12);
  EXPECT_EQ(rows_of_tile(32, 64), 2);
  EXPECT_EQ(rows_of_tile(33, 64), 1);
  EXPECT_EQ(rows_of_tile(64, 32), 1);
  EXPECT_EQ(rows_of_tile(int64_t(1) << 33, 64), 1);
  EXPECT_GE(blocks_of_keys(1025) * kScoredKeys, 1025);
}

TEST(ListedSequencesTest, ARowIsASequenceOfItsKeys) {
  const std::vector<int32_t> blocks{4, 2, 9};
  const std::vector<PagedSequence> sequences{{0, 3, 6, blocks.data()}, {3, 3, 0, nullptr}, {3, 4, 9, blocks.data()}};
  const ListedSequences whole = list_sequences(sequences, 4), rows = list_rows(sequences, 5);
  EXPECT_EQ(whole.blocks, (std::vector<int32_t>{4, 2, 4, 2, 9}));
  EXPECT_EQ(whole.block_tokens, 4);
  ASSERT_EQ(whole.sequences.size(), 2u);
  EXPECT_EQ(whole.sequences[1].table, 2);
  EXPECT_TRUE(rows.blocks.empty());
  EXPECT_EQ(rows.block_tokens, 1);
  ASSERT_EQ(rows.sequences.size(), 4u);
  const std::vector<int32_t> num_keys{4, 5, 5, 5};
  for (int32_t row = 0; row < 4; ++row) {
    const PagedRowsOf& s = rows.sequences[size_t(row)];
    EXPECT_EQ(s.q_begin, row);
    EXPECT_EQ(s.q_end, row + 1);
    EXPECT_EQ(s.table, 5 * row);
    EXPECT_EQ(s.num_keys, num_keys[size_t(row)]);
  }
  EXPECT_THROW(list_rows(sequences, int64_t(1) << 30), Error);
}

TEST(SelectingRowsTest, AreThoseOfTheirSequences) {
  Workbench bench;
  const int32_t blocks[] = {4, 2};
  const PagedSequence all[] = {{0, 3, 10, blocks}, {3, 4, 1, blocks + 1}, {4, 9, 20, blocks}};
  PagedAttentionArgs args{.y = bench.empty(DType::f32, {9, 2, 4}), .q = bench.empty(DType::f32, {9, 2, 6})};
  args.selected = bench.empty(DType::i32, {9, 5}), args.sequences = all, args.num_sequences = 3;
  std::vector<PagedSequence> sequences;
  const PagedAttentionArgs rows = selecting_rows(args, 1, 5, sequences);
  EXPECT_EQ(rows.q.shape(), Shape({5, 2, 6}));
  EXPECT_EQ(rows.selected.data<int32_t>(), args.selected.data<int32_t>() + 5);
  ASSERT_EQ(rows.num_sequences, 3);
  const int32_t expected[][3] = {{0, 2, 10}, {2, 3, 1}, {3, 5, 17}};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(rows.sequences[i].q_begin, expected[i][0]);
    EXPECT_EQ(rows.sequences[i].q_end, expected[i][1]);
    EXPECT_EQ(rows.sequences[i].num_keys, expected[i][2]);
  }
}

}  // namespace
}  // namespace weft::cuda
