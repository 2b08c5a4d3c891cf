// Work lists of paged attention in parts: every lane gets all parts that it sees once, and they are folded in order.
#include "weft/kernels/cuda/paged_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace weft::cuda {
namespace {

struct PagedPlanCase {
  std::string name;
  std::vector<PagedRowsOf> sequences;
  int group = 1, window = 0, num_kv_heads = 4;
};

// Rows and keys of each.
std::vector<PagedRowsOf> sequences_of(const std::vector<std::pair<int32_t, int32_t>>& counts) {
  std::vector<PagedRowsOf> sequences;
  int32_t row = 0, table = 0;
  for (const auto& [rows, keys] : counts) {
    sequences.push_back({row, row + rows, keys, table});
    row += rows, table += (keys + 15) / 16;
  }
  return sequences;
}

std::vector<PagedPlanCase> paged_plan_cases() {
  return {{"nothing", {}},
          {"one_key", sequences_of({{1, 1}})},
          {"decode", sequences_of({{1, 512}}), 8},
          {"few_parts", sequences_of({{1, 128}}), 8},
          {"spans", sequences_of({{1, 3000}, {1, 1024}, {1, 1025}}), 4},
          {"prompt", sequences_of({{512, 2048}}), 4},
          {"mixed", sequences_of({{300, 300}, {1, 700}, {3, 2500}, {1, 20}}), 8},
          {"wide_group", sequences_of({{1, 700}}), 70},
          {"some_rows", sequences_of({{7, 1500}}), 8},
          {"window", sequences_of({{1, 3000}, {20, 2100}, {400, 1900}}), 3, 1200},
          {"short_window", sequences_of({{1, 3000}, {20, 2100}}), 2, 1}};
}

class PagedPlanTest : public testing::TestWithParam<PagedPlanCase> {};
INSTANTIATE_TEST_SUITE_P(Shapes, PagedPlanTest, testing::ValuesIn(paged_plan_cases()),
                         [](const auto& test) { return test.param.name; });

TEST_P(PagedPlanTest, LanesGetTheirPartsOnce) {
  const PagedPlanCase& c = GetParam();
  for (const int warps : {2, 4}) {
    const PagedPlan plan = plan_paged(c.sequences, c.group, c.window, c.num_kv_heads, warps);
    std::map<int32_t, const PagedRowsOf*> of_row;
    for (const PagedRowsOf& s : c.sequences) of_row[s.q_begin] = &s;
    std::map<std::pair<int32_t, int32_t>, std::set<int32_t>> done;  // parts, of a sequence's first row and a lane
    const auto do_tile = [&](const PagedTile& t) {
      const PagedRowsOf& s = *of_row.at(t.q_begin);
      ASSERT_EQ(t.table, s.table);
      ASSERT_EQ(t.lead, s.num_keys - (s.q_end - s.q_begin));
      ASSERT_LT(t.first_part, t.end_part);
      for (int32_t lane = t.lane_begin; lane < t.lane_end; ++lane)
        for (int32_t part = t.first_part; part < t.end_part; ++part)
          ASSERT_TRUE((done[{t.q_begin, lane}].insert(part).second)) << "lane " << lane << ", part " << part;
    };
    std::set<int32_t> slots;
    for (const PagedTile& t : plan.whole) {
      ASSERT_NO_FATAL_FAILURE(do_tile(t));
      ASSERT_LE(t.lane_end - t.lane_begin, kWholeLanes);
      ASSERT_EQ(t.slot >= 0, (t.end_part - 1) / kSpanParts > t.first_part / kSpanParts);
      if (t.slot >= 0) ASSERT_TRUE(slots.insert(t.slot).second);
    }
    ASSERT_EQ(int32_t(slots.size()), plan.num_whole_slots);

    std::map<int32_t, int32_t> part_of_slot, arrivals;  // of each slot and fold
    for (const PagedTile& t : plan.parts) {
      ASSERT_NO_FATAL_FAILURE(do_tile(t));
      ASSERT_LE(t.lane_end - t.lane_begin, std::min(kWarpLanes, plan.part_lanes));
      ASSERT_LE(t.end_part - t.first_part, warps);
      ASSERT_EQ(t.first_part / kSpanParts, (t.end_part - 1) / kSpanParts);
      for (int32_t part = t.first_part; part < t.end_part; ++part)
        ASSERT_TRUE(part_of_slot.emplace(t.slot + part - t.first_part, part).second);
      ++arrivals[t.fold];
    }
    std::set<int32_t> folded, written;
    for (int32_t i = 0; i < int32_t(plan.folds.size()); ++i) {
      const PartFold& f = plan.folds[size_t(i)];
      if (f.next >= 0) {
        ASSERT_LT(f.next, i) << "a fold without an end";
        ++arrivals[f.next];
        ASSERT_TRUE(written.insert(f.slot).second);
        ASSERT_FALSE(part_of_slot.contains(f.slot));
      }
      ASSERT_EQ(f.slot >= 0, f.next >= 0);
      for (int32_t slot = f.first_slot; slot < f.first_slot + f.num_slots; ++slot)
        ASSERT_TRUE(folded.insert(slot).second);
      if (part_of_slot.contains(f.first_slot))
        for (int32_t slot = f.first_slot + 1; slot < f.first_slot + f.num_slots; ++slot) {
          ASSERT_EQ(part_of_slot.at(slot), part_of_slot.at(slot - 1) + 1);
          ASSERT_EQ(part_of_slot.at(slot) / kSpanParts, part_of_slot.at(f.first_slot) / kSpanParts);
        }
    }
    for (int32_t i = 0; i < int32_t(plan.folds.size()); ++i)
      EXPECT_EQ(arrivals[i], plan.folds[size_t(i)].num_arrivals) << "fold " << i;
    EXPECT_EQ(int32_t(folded.size()), plan.num_part_slots);
    EXPECT_EQ(part_of_slot.size() + written.size(), folded.size());

    for (const PagedRowsOf& s : c.sequences)
      for (int32_t lane = 0; lane < (s.q_end - s.q_begin) * c.group; ++lane) {
        const int32_t end = s.num_keys - (s.q_end - s.q_begin) + lane / c.group + 1;
        const int32_t begin = c.window ? std::max(end - c.window, 0) : 0;
        for (int32_t part = begin / kPartKeys; part * kPartKeys < end; ++part)
          ASSERT_TRUE((done[{s.q_begin, lane}].contains(part))) << "lane " << lane << " lacks part " << part;
      }
  }
}

TEST(PagedPlanChoiceTest, WhatIsLongForItsCompanyIsCut) {
  const auto num_cut = [](const std::vector<std::pair<int32_t, int32_t>>& counts, int group) {
    std::set<int32_t> cut;
    for (const PagedTile& t : plan_paged(sequences_of(counts), group, 0, 8, 4).parts) cut.insert(t.q_begin);
    return cut.size();
  };
  EXPECT_EQ(num_cut({{1, 512}}, 4), 1u);
  EXPECT_EQ(num_cut({{1, 128}}, 4), 0u) << "two parts";
  EXPECT_EQ(num_cut({{512, 2048}}, 4), 0u) << "many lanes";
  EXPECT_EQ(num_cut({{16, 2048}}, 4), 1u);
  EXPECT_EQ(num_cut(std::vector<std::pair<int32_t, int32_t>>(64, {1, 4096}), 4), 0u) << "enough to do";
  std::vector<std::pair<int32_t, int32_t>> one_is_long(64, {1, 300});
  one_is_long.emplace_back(1, 30000);
  EXPECT_EQ(num_cut(one_is_long, 4), 1u);
}

TEST(PagedPlanChoiceTest, TheLongestComesFirst) {
  const PagedPlan plan = plan_paged(sequences_of({{700, 700}}), 1, 0, 4, 4);
  ASSERT_EQ(plan.whole.size(), 11u);
  EXPECT_EQ(plan.whole.front().end_part, 11);
  EXPECT_EQ(plan.whole.back().end_part, 1);
}

TEST(PagedPlanRoomTest, CountsThatGrowALittleStay) {
  for (const auto& [count, room] :
       {std::pair{0, 0}, {1, 16}, {8, 16}, {16, 16}, {17, 20}, {31, 32}, {100, 112}, {128, 128}})
    EXPECT_EQ(roomy(count), room) << count;
}

}  // namespace
}  // namespace weft::cuda
