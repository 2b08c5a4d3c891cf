// The decoder of a model that reads images as well is opened as a model of its own.
#include <nlohmann/json.hpp>

#include "pretrained/golden_models.h"
#include "pretrained/model_on_ranks.h"
#include "weft/pretrained/export.h"
#include "weft/pretrained/hf_family.h"
#include "weft/pretrained/peft.h"
#include "weft/pretrained/random_model.h"

namespace weft {
namespace {

nlohmann::json config_of(const std::string& golden) {
  return nlohmann::json::parse(read_file(GoldenModel(golden).path() + "/config.json", uint64_t(1) << 20));
}

HfConfig parse(const nlohmann::json& config) { return parse_hf_config(config.dump(), "folder/config.json"); }

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// Files of one model under other names; some versions of the library write the first, some the second.
class Renamed {
 public:
  Renamed(const std::string& golden, const std::function<std::string(std::string)>& name) : model_(golden) {
    const std::string file = model_.path() + "/model.safetensors";
    std::vector<std::vector<std::byte>> values;
    std::vector<SafetensorsInfo> infos;
    {
      const SafetensorsFile stored(file);
      for (const SafetensorsEntry& entry : stored.entries()) {
        const Bytes bytes = stored.bytes(entry);
        values.emplace_back(bytes.begin(), bytes.end());
        infos.push_back({name(entry.name), entry.dtype(), entry.shape()});
      }
    }
    std::filesystem::remove(file);
    SafetensorsWriter writer(FileSystem::real(), file, infos);
    for (const auto& v : values) writer.write(v);
    writer.finish();
  }
  const GoldenModel& model() const { return model_; }

 private:
  GoldenModel model_;
};

std::string with_prefix(std::string name, std::string_view from, std::string_view to) {
  return name.starts_with(from) ? std::string(to) + name.substr(from.size()) : name;
}

double difference(const GoldenModel& golden) {
  const auto source = open_model(golden.path());
  const Fill fill = [&](ForwardModel& m) { m.load(*source); };
  return worst_difference(logits_on(source->config(), {}, fill, golden.ids()), golden.logits());
}

// Published files call dense layers mlp; those that Hugging Face's library saves call them what it calls experts
// there.
TEST(OtherNamesTest, OfDenseLayersAreFound) {
  constexpr std::string_view kDense = "model.layers.0.mlp.", kByLibrary = "model.layers.0.block_sparse_moe.";
  const Renamed saved("kimi_linear", [&](const std::string& name) { return with_prefix(name, kDense, kByLibrary); });
  EXPECT_LT(difference(saved.model()), 10 * kSingle);
}

TEST(TextPartTest, IsFoundByOlderNamesAndByNewerOnes) {
  const Renamed newer("mistral3", [](const std::string& name) {
    return with_prefix(with_prefix(name, "language_model.model.", "model.language_model."), "language_model.lm_head",
                       "lm_head");
  });
  EXPECT_LT(difference(newer.model()), kSingle);
  const Renamed older("qwen3_vl", [](const std::string& name) {
    return with_prefix(name, "model.language_model.", "language_model.model.");
  });
  EXPECT_LT(difference(older.model()), kSingle);
}

// A description without a part of its own for the decoder, as Qwen published it first.
TEST(TextPartTest, MayBeDescribedBesideTheOthers) {
  nlohmann::json flat = config_of("qwen2_5_vl");
  const ModelConfig apart = parse(flat).model;
  nlohmann::json text = flat["text_config"];
  text.erase("model_type"), text.erase("rope_parameters");
  flat.erase("text_config"), flat.update(text);
  flat["rope_theta"] = 10000.0, flat["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", {1, 1, 0}}};
  const HfConfig config = parse(flat);
  EXPECT_EQ(config.model, apart);
  EXPECT_TRUE(config.is_part);
}

TEST(TextPartTest, WhatIsSaidOfTheWholeModelHolds) {
  nlohmann::json whole = config_of("qwen3_vl");
  EXPECT_TRUE(parse(whole).model.tie_embeddings);
  whole["tie_word_embeddings"] = false;
  EXPECT_FALSE(parse(whole).model.tie_embeddings);
  whole["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  EXPECT_TRUE(parse(whole).quantization.has_value());
}

TEST(TextPartTest, OfAnotherKindIsRefusedByItsName) {
  nlohmann::json whole = config_of("mistral3");
  whole["text_config"]["model_type"] = "mamba";
  const std::string unknown = error_of([&] { parse(whole); });
  EXPECT_NE(unknown.find("folder/config.json, text_config: mamba models are not known"), std::string::npos)
      << unknown;
  whole["text_config"] = 3;
  EXPECT_NE(error_of([&] { parse(whole); }).find("text_config"), std::string::npos);
  whole = config_of("mistral3");
  whole["model_type"] = "gemma3x";
  const std::string nearest = error_of([&] { parse(whole); });
  EXPECT_NE(nearest.find("the nearest is gemma3"), std::string::npos) << nearest;
}

TEST(TextPartTest, ATensorTwiceIsRefused) {
  const std::string twice = error_of([] {
    const Renamed both("internvl", [](const std::string& name) {
      return name == "vision_tower.embeddings.cls_token" ? "model.norm.weight" : name;
    });
    open_model(both.model().path());
  });
  EXPECT_NE(twice.find("has the tensor model.norm.weight twice"), std::string::npos) << twice;
}

TEST(TextPartTest, IsWrittenAloneAndSaysSo) {
  const GoldenModel golden("gemma3_vision");
  const TemporaryFolder folder;
  const auto source = open_model(golden.path());
  const Exported exported = export_hugging_face(*source, folder / "text");
  ASSERT_FALSE(exported.notes.empty());
  EXPECT_NE(exported.notes.back().find("the decoder of"), std::string::npos) << exported.notes.back();
  const auto text = nlohmann::json::parse(read_file(folder / "text/config.json", uint64_t(1) << 20));
  EXPECT_EQ(text["model_type"], "gemma3_text");
  EXPECT_FALSE(text.contains("text_config") || text.contains("vision_config"));
}

// Adapters have the names of modules, whichever names the weights have; one beside another part is not left out.
// Their configuration may say a pattern, which their tensors answer.
TEST(TextPartTest, TakesAdaptersBesideItselfOnly) {
  const GoldenModel golden("mistral3");
  const std::shared_ptr<const ModelSource> base = open_model(golden.path());
  const int64_t hidden = base->config().hidden, heads = base->config().heads * base->config().head_dim;
  const auto open = [&](std::string_view module) {
    const TemporaryFolder folder;
    write_file_atomically(
        FileSystem::real(), folder / kPeftConfigName,
        R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ".*language_model.*q_proj"})");
    std::vector<SafetensorsInfo> infos;
    for (int64_t layer = 0; layer < base->config().layers; ++layer) {
      const std::string name = fmt::format("base_model.model.{}.{}.self_attn.q_proj.lora_", module, layer);
      infos.push_back({name + "A.weight", DType::f32, {2, hidden}});
      infos.push_back({name + "B.weight", DType::f32, {heads, 2}});
    }
    if (module == "vision_tower.layers") infos.front().name = "base_model.model.vision_tower.layers.0.lora_A.weight";
    SafetensorsWriter writer(FileSystem::real(), folder / kPeftWeightsName, infos);
    for (const SafetensorsInfo& info : infos) {
      std::vector<float> values(size_t(info.shape.numel()), 0.25f);
      writer.write(std::as_bytes(std::span(values)));
    }
    writer.finish();
    return open_adapted(base, folder.path());
  };
  for (const char* module : {"model.language_model.layers", "language_model.model.layers", "model.layers"}) {
    const auto adapted = open(module);
    std::vector<float> a(size_t(2 * hidden));
    adapted->read("layers.1.attention.query.lora_a", 0, a);
    EXPECT_EQ(a, std::vector<float>(a.size(), 0.25f)) << module;
  }
  EXPECT_THROW(open("vision_tower.layers"), Error);
}

TEST(TextPartTest, AdaptersAreWrittenForTheWholeModelThatTheyAreFor) {
  const GoldenModel golden("mistral3");
  const TemporaryFolder folder;
  const std::shared_ptr<const ModelSource> base = open_model(golden.path());
  ModelConfig config = base->config();
  config.lora = {.rank = 2, .targets = lora_targets({"q"})};
  complete(config);
  const auto adapted = random_model("random", config);
  const auto first_name = [&](const std::string& of, const std::string& to) {
    write_peft(*adapted, of, folder / to);
    return SafetensorsFile(folder / to + "/" + kPeftWeightsName).entries().front().name;
  };
  EXPECT_TRUE(first_name(golden.path(), "inside").starts_with("base_model.model.model.language_model.layers.0."));
  EXPECT_TRUE(first_name("somewhere/else", "alone").starts_with("base_model.model.model.layers.0."));
  EXPECT_EQ(open_adapted(base, folder / "inside")->config().lora.rank, 2);
  EXPECT_EQ(open_adapted(base, folder / "alone")->config().lora.rank, 2);
}

}  // namespace
}  // namespace weft
