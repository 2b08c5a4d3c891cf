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

}  // namespace
}  // namespace weft
