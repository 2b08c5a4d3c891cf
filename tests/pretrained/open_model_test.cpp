// What a folder's files say beside the weights, and folders of PyTorch's own format.
#include <filesystem>

#include "pretrained/golden_models.h"
#include "weft/pretrained/model_source.h"

namespace weft {
namespace {

std::string data(const char* name) { return fmt::format("{}/tests/pretrained/data/{}", WEFT_SOURCE_DIR, name); }

void expect_golden_values(const ModelSource& source) {
  for (const ParamNames& names : source.names()) {
    std::vector<float> values(size_t(names.shape.numel()));
    source.read(names.param, 0, values);
    const std::span<const int64_t> dims = names.shape.dims();
    EXPECT_EQ(values, golden_values(names.stored[0], {dims.begin(), dims.end()})) << names.param;
  }
}

TEST(OpenModelTest, ReadsPyTorchsOwnFormat) {
  const auto source = open_model(data("llama_bin"));
  EXPECT_EQ(source->tensors().all().size(), 12u);
  expect_golden_values(*source);
}

TEST(OpenModelTest, PrefersSafetensors) {
  const TemporaryFolder folder;
  std::filesystem::copy(data("llama_bin"), folder.path(), std::filesystem::copy_options::recursive);
  std::ofstream(folder / "model.safetensors") << "broken";
  try {
    open_model(folder.path());
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("model.safetensors"), std::string::npos) << e.what();
  }
}

TEST(OpenModelTest, FindsWhatEndsATextInEitherFile) {
  const TemporaryFolder folder;
  std::filesystem::copy(data("llama_bin"), folder.path(), std::filesystem::copy_options::recursive);
  const auto ends = [&] { return open_model(folder.path())->special_ids().ends; };
  EXPECT_EQ(ends(), std::vector<int32_t>());
  nlohmann::json config = nlohmann::json::parse(std::ifstream(folder / "config.json"));
  config["eos_token_id"] = 7;
  std::ofstream(folder / "config.json") << config;
  EXPECT_EQ(ends(), std::vector<int32_t>{7});
  std::ofstream(folder / "generation_config.json") << R"({"eos_token_id": [3, 12]})";
  EXPECT_EQ(ends(), (std::vector<int32_t>{3, 12}));
  std::ofstream(folder / "generation_config.json") << R"({"eos_token_id": 13})";
  EXPECT_THROW(ends(), Error);
}

TEST(OpenModelTest, FindsHowItsMakersSample) {
  const TemporaryFolder folder;
  std::filesystem::copy(data("llama_bin"), folder.path(), std::filesystem::copy_options::recursive);
  const auto defaults = [&] { return open_model(folder.path())->sampling_defaults(); };
  EXPECT_TRUE(defaults().is_empty());
  const auto say = [&](const char* text) { std::ofstream(folder / "generation_config.json") << text; };
  say(R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": null, "max_length": 20})");
  EXPECT_EQ(defaults(), (SamplingDefaults{.temperature = 0.6, .top_p = 0.95, .top_k = 20}));
  EXPECT_EQ(to_text(defaults()), "temperature 0.6, top_p 0.95, top_k 20");
  say(R"({"min_p": 0.05, "repetition_penalty": 1, "top_k": -1})");
  EXPECT_EQ(defaults(), (SamplingDefaults{.min_p = 0.05, .repetition_penalty = 1, .top_k = 0}));
  say(R"({"temperature": "warm"})");
  EXPECT_THROW(defaults(), Error);
}

}  // namespace
}  // namespace weft
