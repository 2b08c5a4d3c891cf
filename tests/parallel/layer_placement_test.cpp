// Which layers go to which stage: optimal by comparison with every placement, and what users may write instead.
#include "weft/parallel/pipeline/layer_placement.h"

#include "weft/base/error.h"

namespace weft {
namespace {

std::vector<int> sizes_of(const std::vector<LayerRange>& ranges) {
  std::vector<int> sizes;
  int next = 0;
  for (const LayerRange& range : ranges) {
    EXPECT_EQ(range.begin, next);
    next = range.end;
    sizes.push_back(range.size());
  }
  return sizes;
}

double slowest(const std::vector<int>& sizes, const LayerCosts& costs) {
  double worst = 0;
  for (size_t s = 0; s < sizes.size(); ++s)
    worst = std::max(
        worst, sizes[s] * costs.layer + (s == 0 ? costs.embedding : 0) + (s + 1 == sizes.size() ? costs.head : 0));
  return worst;
}

double best_of_all(std::vector<int>& sizes, size_t stage, int left, const LayerCosts& costs) {
  if (stage + 1 == sizes.size()) {
    sizes[stage] = left;
    return slowest(sizes, costs);
  }
  double best = 1e300;
  for (int n = 0; n <= left; ++n) {
    sizes[stage] = n;
    best = std::min(best, best_of_all(sizes, stage + 1, left - n, costs));
  }
  return best;
}

TEST(PlaceLayersTest, NoOtherPlacementIsFaster) {
  for (const LayerCosts& costs :
       {LayerCosts{}, LayerCosts{1, 0.5, 2.5}, LayerCosts{2, 0, 3}, LayerCosts{0.3, 7, 0.1}})
    for (int stages = 1; stages <= 5; ++stages)
      for (int layers = 0; layers <= 9; ++layers) {
        std::vector<int> any(size_t(stages), 0);
        const std::vector<int> sizes = sizes_of(place_layers(layers, stages, costs));
        EXPECT_NEAR(slowest(sizes, costs), best_of_all(any, 0, layers, costs), 1e-12) << layers << " on " << stages;
      }
}

// Of layers that differ, too.
TEST(PlaceLayersTest, WeighsEveryLayer) {
  const std::vector<double> costs{4, 1, 1, 1, 1, 4, 1, 1};
  EXPECT_EQ(sizes_of(place_layers(costs, 2, 0, 0)), (std::vector<int>{4, 4}));
  EXPECT_EQ(sizes_of(place_layers(costs, 3, 0, 0)), (std::vector<int>{1, 4, 3}));
  EXPECT_EQ(sizes_of(place_layers(costs, 3, 1, 2)), (std::vector<int>{2, 4, 2}));
  EXPECT_EQ(sizes_of(place_layers(std::vector<double>{9, 1, 1, 1}, 3, 0, 0)), (std::vector<int>{1, 1, 2}));
  EXPECT_THROW(place_layers(std::vector<double>{1, 0}, 2, 0, 0), Error);
}

TEST(PlaceLayersTest, GivesLessToEarlierStages) {
  EXPECT_EQ(sizes_of(place_layers(12, 4)), (std::vector<int>{3, 3, 3, 3}));
  EXPECT_EQ(sizes_of(place_layers(10, 4)), (std::vector<int>{2, 2, 3, 3}));
  EXPECT_EQ(sizes_of(place_layers(10, 4, {1, 0, 1})), (std::vector<int>{2, 3, 3, 2}));
  EXPECT_EQ(sizes_of(place_layers(22, 4, {1, 1, 1})), (std::vector<int>{5, 6, 6, 5}));
}

TEST(PlaceLayersTest, OnlyOuterStagesGoWithoutLayersWhileThatIsPossible) {
  EXPECT_EQ(sizes_of(place_layers(4, 4)), (std::vector<int>{1, 1, 1, 1}));
  EXPECT_EQ(sizes_of(place_layers(3, 4)), (std::vector<int>{0, 1, 1, 1}));
  EXPECT_EQ(sizes_of(place_layers(2, 4)), (std::vector<int>{0, 1, 1, 0}));
  EXPECT_EQ(sizes_of(place_layers(1, 4)), (std::vector<int>{0, 0, 1, 0}));
  EXPECT_EQ(sizes_of(place_layers(0, 2)), (std::vector<int>{0, 0}));
}

TEST(LayersPerStageTest, ReadsAList) {
  EXPECT_EQ(sizes_of(parse_layers_per_stage("6,6,5,5", 22, 4)), (std::vector<int>{6, 6, 5, 5}));
  EXPECT_EQ(sizes_of(parse_layers_per_stage(" 0, 3 ,1", 4, 3)), (std::vector<int>{0, 3, 1}));
}

TEST(LayersPerStageTest, SaysWhatIsWrong) {
  const auto message = [](const char* text) -> std::string {
    try {
      parse_layers_per_stage(text, 22, 4);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message("6,6,5"),
            "mesh.layers_per_stage: \"6,6,5\" is for 3 stages, the pipeline has 4; write 4 numbers");
  EXPECT_EQ(message("6,6,5,6"), "mesh.layers_per_stage: \"6,6,5,6\" places 23 layers, the model has 22");
  for (const char* bad : {"", "6,6,5,5,", "6,6,-5,15", "6;6;5;5", "6,,5,5", "99999999999,1,1,1", "6,6,5,5x"})
    EXPECT_NE(message(bad).find("is not a number of layers"), std::string::npos) << bad << ": " << message(bad);
}

}  // namespace
}  // namespace weft
