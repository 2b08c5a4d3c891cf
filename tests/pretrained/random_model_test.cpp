// A preset's initial weights as a model: its whole shape is known, and its values are the same wherever one begins.
#include "weft/pretrained/random_model.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(RandomModelTest, IsOpenedByThePresetsName) {
  const std::unique_ptr<ModelSource> model = open_model("random:llama-1b");
  EXPECT_EQ(model->kind(), SourceKind::random);
  EXPECT_EQ(model->config().head_dim, 64);
  EXPECT_EQ(model->config(), model_config_of("random:llama-1b"));
  EXPECT_EQ(model->tokenizer()->encode("ab", {}).size(), 2u);
}

TEST(RandomModelTest, ValuesAreAFunctionOfTheirPlace) {
  const std::unique_ptr<ModelSource> model = open_model("random:llama-1b");
  for (const ParamNames& names : model->names()) {
    std::vector<float> all(64), part(16);
    model->read(names.param, 32, all);
    model->read(names.param, 72, part);
    EXPECT_TRUE(std::ranges::equal(part, std::span(all).subspan(40, 16))) << names.param;
    const bool is_norm = names.shape.rank() == 1;
    EXPECT_EQ(std::ranges::count(all, 1.0f) == 64, is_norm) << names.param;
  }
}

TEST(RandomModelTest, OtherNamesAreRefused) { EXPECT_THROW(open_model("random:llama-2b"), UsageError); }

}  // namespace
}  // namespace weft
