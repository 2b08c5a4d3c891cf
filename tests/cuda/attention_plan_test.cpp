// Attention's work lists: every pair of a lane and a key that it sees is in one tile, and no tile is without work.
#include "weft/kernels/cuda/attention_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "support/attention_spans.h"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

struct PlanCase {
  std::string name;
  std::vector<AttentionSpan> spans;
  int64_t num_queries, num_keys;
  int group = 1, window = 0;
};

std::vector<PlanCase> plan_cases() {
  const auto packed = [](const std::vector<int32_t>& q, const std::vector<int32_t>& k, bool causal) {
    return spans_of(q, k, causal);
  };
  return {
      {"nothing", {}, 0, 0},
      {"no_spans", {}, 70, 130},
      {"one", packed({0, 1}, {0, 1}, true), 1, 1},
      {"causal", packed({0, 200}, {0, 200}, true), 200, 200},
      {"full", packed({0, 200}, {0, 200}, false), 200, 200, 3},
      {"documents", packed({0, 1, 40, 40, 57, 330}, {0, 1, 40, 40, 57, 330}, true), 330, 330, 4},
      {"decode", packed({0, 1, 2, 3}, {0, 90, 91, 2230}, true), 3, 2230, 8},
      {"chunk", packed({0, 20, 157}, {0, 75, 900}, true), 157, 900, 2},
      {"few_keys", packed({0, 140}, {0, 23}, true), 140, 23},
      {"no_keys", packed({0, 40, 60}, {0, 0, 20}, true), 60, 20},
      {"window", packed({0, 30, 400}, {0, 30, 400}, true), 400, 400, 2, 70},
      {"window_full", packed({0, 150}, {0, 400}, false), 150, 400, 1, 100},
      {"gaps",
       {{.q_begin = 5, .q_end = 90, .k_begin = 100, .k_end = 300},
        {.q_begin = 95, .q_end = 96, .k_begin = 0, .k_end = 50}},
       120,
       310},
      {"shared_keys",
       {{.q_begin = 0, .q_end = 80, .k_begin = 10, .k_end = 200},
        {.q_begin = 80, .q_end = 170, .k_begin = 0, .k_end = 150, .causal = false}},
       170,
       200,
       2},
      {"lead",
       {{.q_begin = 0, .q_end = 90, .k_begin = 0, .k_end = 128, .causal = false, .lead = 60}},
       90,
       128,
       1,
       100},
      {"out_of_the_window", {{.q_begin = 0, .q_end = 90, .k_begin = 0, .k_end = 128, .lead = 100}}, 90, 128, 1, 100},
  };
}

class AttentionPlanTest : public testing::TestWithParam<PlanCase> {
 protected:
  AttentionShape shape() const {
    const PlanCase& c = GetParam();
    return {.num_heads = 2 * c.group,
            .num_kv_heads = 2,
            .head_dim = 8,
            .spans = c.spans.data(),
            .num_spans = int(c.spans.size()),
            .scale = 1,
            .window = c.window};
  }
  // Of every row of q, counted by head of a group, the keys of the tensor that it sees.
  std::map<std::pair<int64_t, int64_t>, int> visible_pairs() const {
    const PlanCase& c = GetParam();
    std::map<std::pair<int64_t, int64_t>, int> pairs;
    for (const AttentionSpan& a : c.spans)
      for (int64_t lane = 0; lane < int64_t(a.q_end - a.q_begin) * c.group; ++lane) {
        const shapes::VisibleKeys seen = shapes::visible_keys(a, c.window, lane / c.group);
        for (int64_t key = seen.begin; key < seen.end; ++key)
          pairs[{a.q_begin * int64_t(c.group) + lane, a.k_begin + key}] = 1;
      }
    return pairs;
  }
};
INSTANTIATE_TEST_SUITE_P(Shapes, AttentionPlanTest, testing::ValuesIn(plan_cases()),
                         [](const auto& test) { return test.param.name; });

TEST_P(AttentionPlanTest, QueryTilesAreAllPairsOnce) {
  const PlanCase& c = GetParam();
  for (const int tile_lanes : {32, 64})
    for (const int32_t split : {64, 256, 1 << 30}) {
      const QueryPlan plan = plan_queries(shape(), c.num_queries, tile_lanes, split);
      auto left = visible_pairs();
      std::vector<int> results(size_t(c.num_queries * c.group));  // of each lane
      std::map<int32_t, const QueryTile*> slots;
      for (const QueryTile& t : plan.tiles) {
        const AttentionSpan& a = plan.spans.at(size_t(t.span));
        ASSERT_LT(t.lane_begin, t.lane_end);
        ASSERT_LE(t.lane_end - t.lane_begin, tile_lanes);
        ASSERT_EQ(t.key_begin % kTileKeys, 0);
        ASSERT_LE(t.key_begin / split, std::max(t.key_end - 1, 0) / split) << "a tile over a split's border";
        bool has_work = false;
        for (int64_t lane = t.lane_begin; lane < t.lane_end; ++lane) {
          if (t.slot < 0) ++results.at(size_t(a.q_begin * c.group + lane));
          const shapes::VisibleKeys seen = shapes::visible_keys(a, c.window, lane / c.group);
          for (int64_t key = std::max<int64_t>(seen.begin, t.key_begin); key < std::min<int64_t>(seen.end, t.key_end);
               ++key, has_work = true)
            ASSERT_EQ(left.erase({a.q_begin * int64_t(c.group) + lane, a.k_begin + key}), 1u);
        }
        ASSERT_EQ(has_work, t.key_begin < t.key_end);
        if (t.slot >= 0) {
          ASSERT_TRUE(has_work);
          ASSERT_TRUE(slots.emplace(t.slot, &t).second);
        }
      }
      EXPECT_TRUE(left.empty()) << left.size() << " pairs are in no tile";
      for (const MergeTile& m : plan.merges) {
        ASSERT_GT(m.num_slots, 1);
        for (int32_t slot = m.first_slot; slot < m.first_slot + m.num_slots; ++slot) {
          ASSERT_EQ(slots.at(slot)->lane_begin, m.lane_begin);
          ASSERT_EQ(slots.at(slot)->lane_end, m.lane_end);
          ASSERT_EQ(slots.at(slot)->span, m.span);
          if (slot > m.first_slot) ASSERT_EQ(slots.at(slot)->key_begin, slots.at(slot - 1)->key_end);
        }
        for (int64_t lane = m.lane_begin; lane < m.lane_end; ++lane)
          ++results.at(size_t(plan.spans.at(size_t(m.span)).q_begin * c.group + lane));
      }
      EXPECT_EQ(int32_t(slots.size()), plan.num_slots);
      for (const int count : results) ASSERT_EQ(count, 1) << "a lane has another number of results";
    }
}

TEST_P(AttentionPlanTest, KeyTilesAreAllPairsOnce) {
  const PlanCase& c = GetParam();
  for (const int tile_keys : {32, 64}) {
    const KeyPlan plan = plan_keys(shape(), c.num_keys, tile_keys);
    auto left = visible_pairs();
    std::vector<int> covered(size_t(c.num_keys));
    for (const KeyTile& t : plan.tiles) {
      ASSERT_LE(t.key_end - t.key_begin, tile_keys);
      for (int32_t key = t.key_begin; key < t.key_end; ++key) ++covered.at(size_t(key));
      for (int32_t i = t.first_item; i < t.end_item; ++i) {
        const KeyItem& item = plan.items.at(size_t(i));
        const AttentionSpan& a = c.spans.at(size_t(item.span));
        if (i > t.first_item) ASSERT_GT(item.span, plan.items[size_t(i - 1)].span) << "the order of sums";
        bool has_work = false;
        for (int64_t lane = item.lane_begin; lane < item.lane_end; ++lane) {
          const shapes::VisibleKeys seen = shapes::visible_keys(a, c.window, lane / c.group);
          for (int64_t key = std::max<int64_t>(a.k_begin + seen.begin, t.key_begin);
               key < std::min<int64_t>(a.k_begin + seen.end, t.key_end); ++key, has_work = true)
            ASSERT_EQ(left.erase({a.q_begin * int64_t(c.group) + lane, key}), 1u);
        }
        ASSERT_TRUE(has_work);
      }
    }
    EXPECT_TRUE(left.empty()) << left.size() << " pairs are in no tile";
    for (const int count : covered) ASSERT_EQ(count, 1) << "a key has no tile of its own";
  }
}

TEST(AttentionPlanOrderTest, TheLongestTilesComeFirst) {
  const std::vector<AttentionSpan> spans = spans_of({0, 700}, {0, 700}, true);
  const AttentionShape shape{.num_heads = 1, .num_kv_heads = 1, .head_dim = 8, .spans = spans.data(), .num_spans = 1};
  const QueryPlan plan = plan_queries(shape, 700, 64, 1 << 30);
  ASSERT_EQ(plan.tiles.size(), 11u);
  EXPECT_EQ(plan.tiles.front().key_end, 700);
  EXPECT_EQ(plan.tiles.back().key_end, 64);
}

TEST(AttentionSplitTest, KeysAreCutOnlyWhereBlocksAreFew) {
  const auto split = [](int32_t rows, int32_t keys, int num_kv_heads, int spans_count) {
    std::vector<int32_t> q{0}, k{0};
    for (int i = 0; i < spans_count; ++i) q.push_back(q.back() + rows), k.push_back(k.back() + keys);
    const std::vector<AttentionSpan> spans = spans_of(q, k, true);
    return split_for({.num_heads = num_kv_heads,
                      .num_kv_heads = num_kv_heads,
                      .spans = spans.data(),
                      .num_spans = int(spans.size())},
                     64);
  };
  EXPECT_EQ(split(1, 32768, 8, 1), 1024);       // 33 parts of 8 blocks
  EXPECT_EQ(split(1, 4096, 8, 1), 256);         // no shorter
  EXPECT_EQ(split(4096, 4096, 8, 1), 1 << 30);  // 512 blocks without
  EXPECT_EQ(split(1, 4096, 8, 64), 1 << 30);
  EXPECT_EQ(split(1, 4096, 0, 1), 1 << 30);
}

TEST(AttentionBlocksTest, AreThoseOfTilesAndHeads) {
  const LaunchShape shape = over_tiles(5, 3, 2);
  EXPECT_EQ(shape.blocks_x, 15u);
  EXPECT_EQ(shape.blocks_y, 2u);
  EXPECT_EQ(over_tiles(5, 0).num_blocks(), 0u);
  EXPECT_EQ(over_tiles((size_t(1) << 27) - 1, 16).blocks_x, 2147483632u);
  EXPECT_THROW(over_tiles(size_t(1) << 27, 16), Error);
}

TEST(PackedArraysTest, ArraysThatGrowALittleKeepTheirRoom) {
  for (const auto& [bytes, room] : {std::pair<size_t, size_t>{0, 256},
                                    {1, 256},
                                    {256, 256},
                                    {257, 512},
                                    {1024, 1024},
                                    {1025, 1280},
                                    {2047, 2048},
                                    {2048, 2048},
                                    {2049, 2560},
                                    {100000, 114688}})
    EXPECT_EQ(packed_room(bytes), room) << bytes;
  PackedArrays small, large;
  for (PackedArrays* arrays : {&small, &large}) {
    const std::vector<int32_t> numbers(arrays == &small ? 70 : 100, 3);
    EXPECT_EQ(arrays->add(numbers), 0u);
    EXPECT_EQ(arrays->add(std::vector<int32_t>{1, 2}), 512u);
  }
  EXPECT_EQ(small.size(), large.size());
  const std::vector<int32_t> got(reinterpret_cast<const int32_t*>(large.data() + 512),
                                 reinterpret_cast<const int32_t*>(large.data() + 520));
  EXPECT_EQ(got, (std::vector<int32_t>{1, 2}));
}

}  // namespace
}  // namespace weft::cuda
