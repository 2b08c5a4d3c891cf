// What is read, written and read again is the same, bit by bit, for every family and through checkpoints.
#include "weft/pretrained/export.h"

#include "base/faulty_file_system.h"
#include "pretrained/golden_models.h"
#include "pretrained/source_values.h"

namespace weft {
namespace {

void expect_same_tensors(const ModelSource& a, const ModelSource& b) {
  ASSERT_EQ(a.names().size(), b.names().size());
  for (size_t i = 0; i < a.names().size(); ++i) {
    ASSERT_EQ(a.names()[i].param, b.names()[i].param);
    EXPECT_EQ(values_of(a, a.names()[i]), values_of(b, b.names()[i])) << a.names()[i].param;
  }
}

std::vector<std::string> stored_names(const ModelSource& source) {
  std::vector<std::string> names;
  for (const StoredInfo& info : source.tensors().all()) names.push_back(info.to_text());
  return names;
}

// Families whose experts may lie together have them one by one when they are written.
bool keeps_names(const std::string& model) { return model != "qwen3_vl_moe" && model != "qwen3_5_moe_vl"; }

class ExportTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, ExportTest, testing::ValuesIn(GoldenModel::all()),
                         [](const auto& test) { return test.param; });

TEST_P(ExportTest, ImportExportImportIsTheSame) {
  const GoldenModel golden(GetParam());
  const TemporaryFolder folder;
  const auto source = open_model(golden.path());
  export_hugging_face(*source, folder / "copy");
  const auto copy = open_model(folder / "copy");
  EXPECT_EQ(copy->config(), source->config());
  if (keeps_names(GetParam())) EXPECT_EQ(stored_names(*copy), stored_names(*source));
  expect_same_tensors(*source, *copy);
}

// A checkpoint knows no config.json, so what is written back comes from the model's own configuration.
TEST_P(ExportTest, SurvivesACheckpoint) {
  const GoldenModel golden(GetParam());
  const TemporaryFolder folder;
  const auto source = open_model(golden.path());
  export_checkpoint(*source, folder / "checkpoints");
  const auto checkpoint = open_model(folder / "checkpoints");
  EXPECT_EQ(checkpoint->config(), source->config());
  expect_same_tensors(*source, *checkpoint);
  export_hugging_face(*checkpoint, folder / "back");
  const auto back = open_model(folder / "back");
  if (keeps_names(GetParam())) EXPECT_EQ(stored_names(*back), stored_names(*source));
  expect_same_tensors(*source, *back);
}

TEST_P(ExportTest, RoundsToTheDtypeAskedFor) {
  const GoldenModel golden(GetParam());
  const TemporaryFolder folder;
  const auto source = open_model(golden.path());
  export_hugging_face(*source, folder / "half", {.dtype = DType::bf16});
  const auto half = open_model(folder / "half");
  for (const ParamNames& names : source->names()) {
    std::vector<float> rounded = values_of(*source, names);
    for (float& x : rounded) x = float(BFloat16(x));
    EXPECT_EQ(values_of(*half, names), rounded) << names.param;
  }
  // Again without a dtype: as it is stored.
  export_hugging_face(*half, folder / "again");
  EXPECT_EQ(stored_names(*open_model(folder / "again")), stored_names(*half));
}

// A part that predicts a token further on, which is left out, is not told of either.
TEST(ExportConfigTest, TellsOfNoPartThatIsNotThere) {
  const GoldenModel golden("nemotron_h_latent");
  nlohmann::json json = nlohmann::json::parse(std::ifstream(golden.path() + "/config.json"));
  json["num_nextn_predict_layers"] = 1, json["something"] = "kept";
  std::ofstream(golden.path() + "/config.json") << json;
  const TemporaryFolder folder;
  export_hugging_face(*open_model(golden.path()), folder / "copy");
  const auto copy = nlohmann::json::parse(std::ifstream(folder / "copy/config.json"));
  EXPECT_EQ(copy.at("num_nextn_predict_layers"), 0);
  EXPECT_EQ(copy.at("something"), "kept");
}

// A full disk, or any other failure, leaves nothing that the next try would refuse.
TEST(ExportFailureTest, LeavesNothingHalfWritten) {
  const GoldenModel golden("gpt2");
  const auto source = open_model(golden.path());
  bool has_failed = true;
  for (int64_t n = 0; has_failed; n += 3) {
    const TemporaryFolder folder;
    FaultyFileSystem fs(Fault::enospc, n);
    try {
      export_hugging_face(*source, folder / "copy", {.fs = &fs});
      has_failed = fs.fired();
    } catch (const Error&) {
      if (std::filesystem::exists(folder / "copy"))
        EXPECT_NO_THROW(open_model(folder / "copy")) << n;
      else
        EXPECT_NO_THROW(export_hugging_face(*source, folder / "copy")) << n;
    }
    ASSERT_LT(n, 600);
  }
  const TemporaryFolder folder;
  export_hugging_face(*source, folder / "copy");
  EXPECT_EQ(list_folder(FileSystem::real(), folder.path()), std::vector<std::string>{"copy"});
}

TEST(ExportRefusalTest, NamesWhatItCannotDo) {
  const GoldenModel golden("llama");
  const TemporaryFolder folder;
  const auto source = open_model(golden.path());
  export_hugging_face(*source, folder / "copy");
  EXPECT_THROW(export_hugging_face(*source, folder / "copy"), Error);
  ModelConfig strange = source->config();
  strange.block = BlockKind::parallel, strange.experts = 4;
  complete(strange);
  EXPECT_THROW(write_hf_config(strange), Error);
}

// Numbers that the library looks for in each layer, and that weft computes with.
TEST(ExportConstantsTest, AreWrittenAndMustBeTheSame) {
  const TemporaryFolder folder;
  export_hugging_face(*open_model(GoldenModel("apertus").path()), folder / "copy");
  const std::string path = folder / "copy/model.safetensors";
  uint64_t header = 0, begin = 0;
  {
    const auto weights = open_weights(folder / "copy");
    for (const auto& [name, value] : {std::pair("beta", 0.5f), std::pair("eps", -1e-6f)}) {
      const StoredInfo* const info = weights->find(fmt::format("model.layers.2.mlp.act_fn.{}", name));
      ASSERT_NE(info, nullptr) << name;
      EXPECT_TRUE(info->dims.empty());
      float stored = 0;
      weights->read(*info, 0, 1, {&stored, 1});
      EXPECT_EQ(stored, value);
    }
  }
  EXPECT_NO_THROW(open_model(folder / "copy"));
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.read(reinterpret_cast<char*>(&header), sizeof header);
  std::string json(header, ' ');
  file.read(json.data(), std::streamsize(header));
  begin = nlohmann::json::parse(json)["model.layers.2.mlp.act_fn.beta"]["data_offsets"][0].get<uint64_t>();
  const float other = 0.25f;
  file.seekp(std::streamoff(sizeof header + header + begin));
  file.write(reinterpret_cast<const char*>(&other), sizeof other);
  file.close();
  try {
    open_model(folder / "copy");
    FAIL() << "opened with another number";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("act_fn.beta"), std::string::npos) << e.what();
  }
}

// What a recipe trains by a family's name is a model of that family, also where layers are told by their number.
class FamilyOfRecipeTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Families, FamilyOfRecipeTest, testing::ValuesIn(family_names()),
                         [](const auto& test) { return test.param; });

TEST_P(FamilyOfRecipeTest, IsWritten) {
  ModelConfig c = family_defaults(GetParam());
  c.layers = 8, c.hidden = 64, c.heads = 4, c.ffn = 96, c.vocab = 258, c.context = 64;
  for (const char* of_experts : {"gpt_oss", "olmoe", "minimax_m2", "kolibri1"})
    if (c.family == of_experts) c.experts = 4, c.experts_per_token = 2;
  if (c.kv_rank > 0 || c.family == "kimi_linear" || c.family == "hy_v4" || c.family == "minicpm3")
    c.kv_rank = 32, c.query_rank = 0, c.rotary_dim = 8, c.head_dim = 24, c.value_dim = 16;
  if (c.family == "hy_v4") c.query_rank = 16, c.index_heads = 2;
  complete(c);
  EXPECT_NO_THROW(write_hf_config(c));
}

// A Llama that weft trained with one field of another family is written as that family.
TEST(ExportFamilyTest, IsTheFirstThatCanSayAll) {
  const GoldenModel golden("llama");
  ModelConfig c = open_model(golden.path())->config();
  EXPECT_EQ(write_hf_config(c).family->model_type, "llama");
  c.qk_norm = true;
  EXPECT_EQ(write_hf_config(c).family->model_type, "qwen3");
  c.qk_norm = false, c.qkv_bias = true;
  EXPECT_EQ(write_hf_config(c).family->model_type, "qwen2");
  c.qkv_bias = false, c.window = 8;
  EXPECT_EQ(write_hf_config(c).family->model_type, "mistral");
  c.window = 0, c.experts = 4, c.expert_ffn = 7;
  complete(c);
  EXPECT_EQ(write_hf_config(c).family->model_type, "mixtral");
}

}  // namespace
}  // namespace weft
