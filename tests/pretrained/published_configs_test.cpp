// Every published model's config.json is read, and means as many parameters as its makers count.
#include <nlohmann/json.hpp>

#include "weft/base/file.h"
#include "weft/pretrained/config_essence.h"
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

TEST(PublishedConfigsTest, ArePresets) {
  constexpr std::pair<const char*, const char*> kPresets[] = {
      {"deepseek-v3", "DeepSeek-V3"},
      {"deepseek-v3.2", "DeepSeek-V3.2"},
      {"falcon-h1-0.5b", "Falcon-H1-0.5B-Base"},
      {"gpt-j-6b", "gpt-j-6b"},
      {"phi-2", "phi-2"},
      {"glm-4.5-air", "GLM-4.5-Air"},
      {"kimi-linear-48b-a3b", "Kimi-Linear-48B-A3B-Instruct"},
      {"lfm2-1.2b", "LFM2-1.2B"},
      {"lfm2-8b-a1b", "LFM2-8B-A1B"},
      {"llama-3.1-8b", "Llama-3.1-8B"},
      {"llama-3.3-70b", "Llama-3.3-70B-Instruct"},
      {"mistral-7b", "Mistral-7B-v0.3"},
      {"nemotron-nano-9b-v2", "NVIDIA-Nemotron-Nano-9B-v2"},
      {"nemotron-3-nano-30b-a3b", "NVIDIA-Nemotron-3-Nano-30B-A3B"},
      {"nemotron-3-super-120b-a12b", "NVIDIA-Nemotron-3-Super-120B-A12B"},
      {"qwen3-0.6b", "Qwen3-0.6B"},
      {"qwen3-8b", "Qwen3-8B"},
      {"qwen3-235b-a22b", "Qwen3-235B-A22B"},
      {"qwen3-next-80b-a3b", "Qwen3-Next-80B-A3B"}};
  const nlohmann::json models = published_models();
  for (const auto& [name, published] : kPresets) {
    ModelConfig config = preset(name);
    complete(config);
    EXPECT_TRUE(essence(config) == essence(parse_hf_config(models[published]["config"].dump(), published).model))
        << name;
  }
}

}  // namespace
}  // namespace weft
