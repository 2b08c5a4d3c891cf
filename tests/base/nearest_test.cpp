// Nearest: typing mistakes find their word, strangers find nothing.
#include "weft/base/nearest.h"

namespace weft {
namespace {

TEST(Nearest, EditDistances) {
  struct Case {
    std::string_view a, b;
    int distance;
  };
  for (const Case& c : {Case{"", "", 0},
                        {"abc", "abc", 0},
                        {"abc", "acb", 1},
                        {"steps", "step", 1},
                        {"", "abc", 3},
                        {"kitten", "sitting", 3},
                        {"warmup", "wramup", 1},
                        {"abc", "xyz", 3}}) {
    EXPECT_EQ(edit_distance(c.a, c.b, 10), c.distance) << c.a << " " << c.b;
    EXPECT_EQ(edit_distance(c.b, c.a, 10), c.distance) << c.a << " " << c.b;
  }
  EXPECT_EQ(edit_distance("kitten", "sitting", 2), 3);
}

TEST(Nearest, FindsTheLikelyWord) {
  const std::vector<std::string> keys{"train.steps", "train.seed", "train.seq_len", "optimizer.lr", "lr"};
  EXPECT_EQ(nearest("train.step", keys), "train.steps");
  EXPECT_EQ(nearest("training.steps", keys), "train.steps");
  EXPECT_EQ(nearest("train.sede", keys), "train.seed");
  EXPECT_EQ(nearest("optimiser.lr", keys), "optimizer.lr");
  EXPECT_EQ(nearest("something_else", keys), "");
  EXPECT_EQ(nearest(std::string(100'000, 'x'), keys), "");
  EXPECT_EQ(nearest("x", {}), "");
  EXPECT_EQ(did_you_mean("lt", keys), "; did you mean lr?");
}

}  // namespace
}  // namespace weft
