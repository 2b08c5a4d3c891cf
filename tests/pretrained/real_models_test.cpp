// Models that others saved give the logits and the tokens that others computed, on every mesh.
#include <nlohmann/json.hpp>

#include "base/temporary_folder.h"
#include "pretrained/model_on_ranks.h"
#include "support/test_data.h"
#include "weft/base/json.h"

namespace weft {
namespace {

struct TinyCase {
  const char* model;
  MeshShape mesh;
};

std::string name_of(const TinyCase& c) { return fmt::format("{}_{}", c.model, name_of_mesh(c.mesh)); }

// A folder as Hugging Face lays it out, of files that lie side by side.
class Folder {
 public:
  explicit Folder(const std::string& model)
      : logits_(nlohmann::json::parse(std::ifstream(path(model, "_logits.json")))) {
    std::filesystem::copy_file(path(model, ".safetensors"), folder_ / "model.safetensors");
    const std::string config = path(model, "_config.json");
    if (!config.empty()) {
      std::filesystem::copy_file(config, folder_ / "config.json");
      return;
    }
    nlohmann::json made = logits_["config"];
    made["model_type"] = "gpt2", made["vocab_size"] = made["vocab"];
    std::ofstream(folder_ / "config.json") << made;
  }
  std::string path() const { return folder_.path(); }
  const nlohmann::json& logits() const { return logits_; }
  static std::string path(const std::string& model, const char* end) { return test_data("models/" + model + end); }

 private:
  TemporaryFolder folder_;
  nlohmann::json logits_;
};

class TinyModelsTest : public testing::TestWithParam<TinyCase> {};

TEST_P(TinyModelsTest, GiveTheirLogits) {
  const std::string weights = std::string(GetParam().model) + ".safetensors";
  if (test_data("models/" + weights).empty()) GTEST_SKIP() << no_test_data("models/" + weights);
  const Folder folder(GetParam().model);
  const auto source = open_model(folder.path());
  const auto sequences = folder.logits()["sequences"].get<std::vector<std::vector<int32_t>>>();
  ASSERT_FALSE(sequences.empty());
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Logits got = logits_on(
        source->config(), GetParam().mesh, [&](ForwardModel& m) { m.load(*source); }, sequences[i]);
    EXPECT_LT(worst_difference(got, folder.logits()["logits"][i].get<Logits>()), 1e-5);
  }
}

std::vector<TinyCase> tiny_cases() {
  std::vector<TinyCase> cases;
  for (const char* model : {"tiny_llama", "tiny_gpt2", "tiny_qwen3"})
    for (const MeshShape& mesh : {MeshShape{}, MeshShape{.tp = 2}, MeshShape{.pp = 2}, MeshShape{.pp = 2, .tp = 2}})
      cases.push_back({model, mesh});
  for (const MeshShape& mesh : {MeshShape{}, MeshShape{.tp = 2}, MeshShape{.pp = 2}, MeshShape{.shard = 2, .ep = 2},
                                MeshShape{.pp = 2, .shard = 2, .tp = 2, .ep = 2}})
    cases.push_back({"tiny_mixtral", mesh});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Models, TinyModelsTest, testing::ValuesIn(tiny_cases()),
                         [](const auto& test) { return name_of(test.param); });

struct StoriesCase {
  const char* file;  // "" for the folder
  MeshShape mesh;
};
class StoriesTest : public testing::TestWithParam<StoriesCase> {};

TEST_P(StoriesTest, GoesOnAsItsAuthorsProgramDid) {
  const std::string folder = test_data("models/stories260K");
  if (folder.empty()) GTEST_SKIP() << no_test_data("models/stories260K");
  const auto golden = nlohmann::json::parse(std::ifstream(folder + "/golden.json"));
  const auto prompt = golden["prompt_ids"].get<std::vector<int32_t>>();
  const auto want = golden["greedy_ids"].get<std::vector<int32_t>>();
  const auto source = open_model(folder + GetParam().file);
  const Fill fill = [&](ForwardModel& m) { m.load(*source); };
  std::vector<int32_t> got = prompt;
  const auto made = greedy_on(source->config(), GetParam().mesh, fill, prompt, int64_t(want.size() - prompt.size()));
  got.insert(got.end(), made.begin(), made.end());
  EXPECT_EQ(got, want);
}

std::vector<StoriesCase> stories_cases() {
  std::vector<StoriesCase> cases;
  for (const char* file : {"", "/stories260K.f32.gguf"})
    for (const MeshShape& mesh :
         {MeshShape{}, MeshShape{.tp = 2}, MeshShape{.tp = 4}, MeshShape{.pp = 5}, MeshShape{.pp = 2, .tp = 2}})
      cases.push_back({file, mesh});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Meshes, StoriesTest, testing::ValuesIn(stories_cases()), [](const auto& test) {
  return (*test.param.file ? "gguf_" : "safetensors_") + name_of_mesh(test.param.mesh);
});

}  // namespace
}  // namespace weft
