// Names of families and presets: what is said of those that are not known.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "support/message_of.h"
#include "weft/base/error.h"
#include "weft/models/model_config.h"

namespace weft {
namespace {

TEST(RegistryTest, NamesThatAreNotKnownAreAnsweredWithTheNearestWhereOneIsNear) {
  const std::string families = fmt::format("there are {}", fmt::join(family_names(), ", "));
  EXPECT_EQ(message_of<UsageError>([] { family_defaults("lama"); }),
            "model.family = \"lama\" is not known: " + families + "; did you mean llama?");
  EXPECT_EQ(message_of<UsageError>([] { family_defaults("perceptron"); }),
            "model.family = \"perceptron\" is not known: " + families);
  const std::string presets = fmt::format("there are {}", fmt::join(preset_names(), ", "));
  EXPECT_EQ(message_of<UsageError>([] { preset("gpt2-124"); }),
            "model.preset = \"gpt2-124\" is not known: " + presets + "; did you mean gpt2-124m?");
  EXPECT_EQ(message_of<UsageError>([] { preset("abacus"); }), "model.preset = \"abacus\" is not known: " + presets);
}

// As their makers count them, in billions.
TEST(RegistryTest, PresetsHaveTheParametersOfThePublishedModels) {
  const std::pair<const char*, double> models[] = {
      {"llama-3.2-3b", 3.21}, {"llama-3-8b", 8.03},      {"qwen2.5-0.5b", 0.49}, {"qwen2.5-1.5b", 1.54},
      {"qwen2.5-3b", 3.09},   {"qwen2.5-7b", 7.61},      {"qwen3-4b", 4.02},     {"qwen3-14b", 14.77},
      {"qwen3-32b", 32.76},   {"llama-3.1-405b", 405.85}};
  for (const auto& [name, billions] : models) {
    ModelConfig model = preset(name);
    complete(model);
    EXPECT_NEAR(double(model.num_params()) * 1e-9, billions, 0.01) << name;
  }
}

}  // namespace
}  // namespace weft
