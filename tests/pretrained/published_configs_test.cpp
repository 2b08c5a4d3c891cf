// Every published model's config.json is read, and means as many parameters as its makers count.
#include <nlohmann/json.hpp>

#include "weft/base/file.h"
#include "weft/pretrained/hf_family.h"

namespace weft {
namespace {

// Of each model its config.json, without some keys of which nothing is read, and its number of parameters, without
// biases by which routers choose; of one that reads images as well, those of its decoder.
nlohmann::json published_models() {
  const std::string file = fmt::format("{}/tests/pretrained/published_configs.json", WEFT_SOURCE_DIR);
  return nlohmann::json::parse(read_file(file, uint64_t(1) << 20));
}

TEST(PublishedConfigsTest, MeanAsManyParametersAsTheirMakersCount) {
  const nlohmann::json models = published_models();
  for (const auto& [name, model] : models.items()) {
    SCOPED_TRACE(name);
    try {
      const HfConfig config = parse_hf_config(model["config"].dump(), name);
      EXPECT_EQ(config.model.num_params(), model["parameters"].get<int64_t>());
      EXPECT_EQ(config.is_part, name.ends_with("(text)"));
      EXPECT_FALSE(names_of(*config.family, config.model, config.has_stacks()).empty());
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
    }
  }
}

}  // namespace
}  // namespace weft
