// A family's table gives every element of its files to one parameter, however a parameter is cut into runs.
#include <set>

#include "pretrained/sample_configs.h"
#include "weft/pretrained/hf_family.h"

namespace weft {
namespace {

class ParamNamesTest : public testing::TestWithParam<SampleConfig> {};

TEST_P(ParamNamesTest, EveryStoredElementBelongsToOneParameter) {
  const HfConfig config = parse_hf_config(GetParam().json, "config.json");
  std::map<std::string, std::vector<int>> seen;  // by stored tensor: how often each element was met
  for (const ParamNames& names : names_of(*config.family, config.model)) {
    const std::vector<int64_t> dims = names.stored_dims();
    const int64_t size = std::accumulate(dims.begin(), dims.end(), int64_t(1), std::multiplies<>());
    int64_t next = 0;
    names.each_run(0, names.shape.numel(), [&](size_t i, int64_t first, int64_t step, int64_t at, int64_t count) {
      EXPECT_EQ(at, next);
      next += count;
      std::vector<int>& counts = seen[names.stored[i]];
      counts.resize(size_t(size));
      for (int64_t e = 0; e < count; ++e) ++counts.at(size_t(first + e * step));
    });
    EXPECT_EQ(next, names.shape.numel());
  }
  for (const auto& [name, counts] : seen)
    for (size_t i = 0; i < counts.size(); ++i) ASSERT_EQ(counts[i], 1) << name << " element " << i;
}

TEST_P(ParamNamesTest, PartsOfAParameterLieWhereTheWholeDoes) {
  const HfConfig config = parse_hf_config(GetParam().json, "config.json");
  using Place = std::tuple<size_t, int64_t>;
  for (const ParamNames& names : names_of(*config.family, config.model)) {
    const auto places = [&](int64_t first, int64_t n, std::vector<Place>& out) {
      names.each_run(first, n, [&](size_t i, int64_t stored, int64_t step, int64_t, int64_t count) {
        for (int64_t e = 0; e < count; ++e) out.emplace_back(i, stored + e * step);
      });
    };
    std::vector<Place> whole, parts;
    const int64_t size = names.shape.numel();
    places(0, size, whole);
    for (int64_t at = 0; at < size; at += 7) places(at, std::min<int64_t>(7, size - at), parts);
    EXPECT_EQ(parts, whole) << names.param;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ParamNamesTest, testing::ValuesIn(sample_configs()),
                         [](const auto& test) { return std::string(test.param.name); });

// Of a grouped tensor: two key/value heads of width 2, each with two query heads before its key and its value.
TEST(IndexMapTest, FindsRowsOfGroupsAndTurnedPairs) {
  const auto rows = [](const IndexMap& map, int64_t n) {
    std::vector<int64_t> all;
    for (int64_t r = 0; r < n; ++r) all.push_back(map(r));
    return all;
  };
  using RowNumbers = std::vector<int64_t>;
  EXPECT_EQ(rows({.first = 3}, 3), (RowNumbers{3, 4, 5}));
  EXPECT_EQ(rows({.run = 2, .runs = 2, .stride = 8}, 8), (RowNumbers{0, 1, 2, 3, 8, 9, 10, 11}));
  EXPECT_EQ(rows({.first = 4, .run = 2, .stride = 8}, 4), (RowNumbers{4, 5, 12, 13}));
  EXPECT_EQ(rows({.run = 6, .stride = 6, .turned_at = 2, .turned = 4}, 6), (RowNumbers{2, 4, 3, 5, 0, 1}));
}

TEST(PatternTest, NumbersStandForMarks) {
  EXPECT_TRUE(matches_pattern("h.12.attn.bias", "h.#.attn.bias"));
  EXPECT_TRUE(matches_pattern("a.3.b.4", "a.#.b.@"));
  EXPECT_FALSE(matches_pattern("h..attn.bias", "h.#.attn.bias"));
  EXPECT_FALSE(matches_pattern("h.1.attn.bias.x", "h.#.attn.bias"));
  EXPECT_FALSE(matches_pattern("h.x.attn.bias", "h.#.attn.bias"));
}

}  // namespace
}  // namespace weft
