// What is written to a GGUF file and read again is the same, for every family that such a file can say.
#include "weft/pretrained/export_gguf.h"

#include "base/faulty_file_system.h"
#include "pretrained/golden_models.h"
#include "pretrained/model_on_ranks.h"
#include "pretrained/source_values.h"
#include "support/test_data.h"
#include "weft/formats/ggml_blocks.h"
#include "weft/pretrained/folded_source.h"
#include "weft/pretrained/gguf_model.h"
#include "weft/pretrained/gguf_tokenizer.h"
#include "weft/pretrained/random_model.h"
#include "weft/text/byte_tokenizer.h"
#include "weft/text/readers/hf_tokenizer.h"
#include "weft/text/readers/to_gguf_vocabulary.h"

namespace weft {
namespace {

Logits logits_of(const ModelSource& source, const std::vector<int32_t>& ids) {
  return logits_on(
      source.config(), {}, [&](ForwardModel& m) { m.load(source); }, ids);
}

ModelConfig small_config(int64_t hidden, int64_t ffn) {
  ModelConfig c = family_defaults("llama");
  c.layers = 1, c.hidden = hidden, c.heads = 2, c.kv_heads = 1, c.ffn = ffn, c.vocab = 260, c.context = 16;
  complete(c);
  return c;
}

// What llama.cpp's converter makes of each; empty: no architecture that weft writes computes it.
struct Architecture {
  const char *model, *name;
};
constexpr Architecture kArchitectures[] = {
    {"falcon", ""},
    {"falcon_new", ""},
    {"falcon_serial", ""},
    {"gpt_neox", ""},
    {"gpt_neox_serial", ""},
    {"glm", "llama"},
    {"llama_dynamic", ""},
    {"cohere", "command-r"},
    {"cohere2", "cohere2"},
    {"cohere2_moe", ""},
    {"cohere2_moe_sum", ""},
    {"cwm", "llama"},
    {"deepseek_v2", "deepseek2"},
    {"mistral4", ""},
    {"deepseek_v3", ""},  // its stretch multiplies angles and scores by two different numbers
    {"ernie4_5", "ernie4_5"},
    {"exaone4", "exaone4"},
    {"exaone4_global", "exaone4"},
    {"exaone_moe", "exaone-moe"},
    {"mellum", ""},
    {"gemma", "gemma"},
    {"gemma2", "gemma2"},
    {"gemma3", "gemma3"},
    {"gemma3_vision", "gemma3"},
    {"gemma3_both_ways", "gemma-embedding"},
    {"gemma3_both_ways_scores", ""},
    {"gemma4", "gemma4"},
    {"gemma4_moe", "gemma4"},
    {"gemma4_plain", ""},  // angles are stretched too
    {"gemma4_vision", "gemma4"},
    {"gemma4_small", "gemma4"},
    {"gemma4_inputs", "gemma4"},
    {"glm4", "glm4"},
    {"glm4v", "glm4"},
    {"glm4_moe", "glm4moe"},
    {"glm4v_moe", "glm4moe"},
    {"glm4_moe_lite", "deepseek2"},
    {"gpt2", "gpt2"},
    {"gpt_bigcode", "starcoder"},
    {"gpt_oss", "gpt-oss"},
    {"opt", ""},
    {"granite", "granite"},
    {"hunyuan_v1_dense", "hunyuan-dense"},
    {"hunyuan_v1_moe", "hunyuan-moe"},
    {"granitemoe", "granitemoe"},
    {"granitemoeshared", "granitemoe"},
    {"granite_swa", ""},
    {"granitemoe_swa", ""},
    {"helium", "llama"},
    {"hy_v3", "glm4moe"},
    {"hy_v4", ""},
    {"hyperclovax", ""},  // it has norms behind its parts, whose results are scaled
    {"hyperclovax_pre", "granite"},
    {"internlm3", "llama"},
    {"iquestcoder", "llama"},
    {"jais2", "jais2"},
    {"granite4", "granite"},
    {"granite4_moe", "granitemoe"},
    {"granite4_h", "granitehybrid"},
    {"granite4_h_moe", "granitehybrid"},
    {"falcon_h1", "falcon-h1"},
    {"falcon_h1_norm", ""},  // its norm stands before the gate
    {"falcon_h1_plain", "falcon-h1"},
    {"bamba", "granitehybrid"},
    {"olmo_hybrid", ""},
    {"olmo_hybrid_turned", ""},
    {"afmoe", "afmoe"},
    {"apertus", ""},
    {"apertus_bias", ""},
    {"axk1", ""},
    {"kolibri1", ""},
    {"mimo_v2_flash", ""},
    {"deepseek_v32", "glm-dsa"},
    {"glm_moe_dsa", "glm-dsa"},
    {"glm_moe_dsa_shared", ""},
    {"kimi_linear", "kimi-linear"},
    {"lfm2", "lfm2"},
    {"lfm2_moe", "lfm2moe"},
    {"lfm3", ""},
    {"lfm3_plain", ""},
    {"nemotron", "nemotron"},
    {"nemotron_h", "nemotron_h"},
    {"nemotron_h_latent", "nemotron_h_moe"},
    {"nemotron_h_mixed", ""},
    {"nemotron_h_moe", "nemotron_h_moe"},
    {"arcee", "arcee"},
    {"dots1", "dots1"},
    {"solar_open", "glm4moe"},
    {"ernie4_5_moe", "ernie4_5-moe"},
    {"ernie4_5_moe_sparse", ""},  // its first dense layers and its step are not one rule there
    {"llama", "llama"},
    {"llama4", "llama4"},
    {"llama4_interleaved", ""},  // its few experts go with norms there
    {"llama4_vision", ""},
    {"llama3", "llama"},
    {"llama_both_ways", "llama"},
    {"eurobert", "llama"},
    {"llama_bias_tied", "llama"},
    {"llama_linear", "llama"},
    {"llama_yarn", "llama"},
    {"minimax_m2", "minimax-m2"},
    {"ministral", "llama"},
    {"ministral3", "mistral3"},
    {"mistral", "llama"},
    {"mistral3", "llama"},
    {"mixtral", "llama"},
    {"olmo", "olmo"},
    {"olmo2", "olmo2"},
    {"olmo3", "olmo2"},
    {"olmoe", "olmoe"},
    {"flex_olmo", ""},
    {"nanochat", ""},
    {"gptj", ""},
    {"gpt2_scores", ""},
    {"llama_scores", ""},
    {"gemma2_scores", ""},
    {"phi", "phi2"},
    {"phi3", "phi3"},
    {"phi3_longrope", "phi3"},
    {"qwen2", "qwen2"},
    {"qwen2_5_vl", "qwen2"},
    {"qwen2_vl", "qwen2"},
    {"qwen3", "qwen3"},
    {"internvl", "qwen3"},
    {"qwen3_vl", "qwen3"},
    {"qwen3_5", "qwen35"},
    {"qwen3_5_moe", "qwen35moe"},
    {"qwen3_5_moe_vl", "qwen35moe"},
    {"qwen3_5_vl", "qwen35"},
    {"qwen3_next", "qwen3next"},
    {"qwen2_moe", "qwen2moe"},
    {"qwen3_moe", "qwen3moe"},
    {"qwen3_moe_sparse", ""},  // every layer has experts there
    {"qwen3_vl_moe", "qwen3moe"},
    {"sarvam_mla", "deepseek2"},
    {"sarvam_moe", "glm4moe"},
    {"seed_oss", "seed_oss"},
    {"smollm3", "smollm3"},
    {"stablelm", "stablelm"},
    {"stablelm_parallel", "stablelm"},
    {"starcoder2", "starcoder2"},
    {"vaultgemma", ""},
    {"youtu", "deepseek2"},
    {"minicpm3", ""},
    {"minicpm3_direct", ""},
};
std::string architecture_of(const std::string& model) {
  for (const Architecture& a : kArchitectures)
    if (a.model == model) return a.name;
  ADD_FAILURE() << model << " is not in the table";
  return "";
}

class ExportGgufTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, ExportGgufTest, testing::ValuesIn(GoldenModel::all()),
                         [](const auto& test) { return test.param; });

TEST_P(ExportGgufTest, ReadsWhatItWrote) {
  const GoldenModel golden(GetParam());
  const TemporaryFolder folder;
  const std::string path = folder / "model.gguf";
  const auto source = open_model(golden.path());
  const std::string architecture = architecture_of(GetParam());
  if (architecture.empty()) {
    EXPECT_THROW(export_gguf(*source, path), Error);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
    return;
  }
  export_gguf(*source, path);
  EXPECT_EQ(GgufFile(path).at("general.architecture").string(), architecture);
  EXPECT_EQ(GgufFile(path).at("tokenizer.ggml.model").string(), kNoGgufModel);
  const auto file = open_model(path);
  ASSERT_EQ(file->names().size(), source->names().size());
  const bool is_folded = has_factors(source->config());  // into weights, which are then others
  for (size_t i = 0; i < source->names().size() && !is_folded; ++i) {
    const ParamNames& names = source->names()[i];
    ASSERT_EQ(file->names()[i].param, names.param);
    const ValueMap map = file->names()[i].values;
    std::vector<float> want = values_of(*source, names);
    for (float& x : want) x = value_of_stored(map, stored_value(map, x));
    EXPECT_EQ(values_of(*file, names), want) << names.param;
  }
  const Logits want = logits_of(*source, golden.ids());
  EXPECT_EQ(has_factors(file->config()), false);
  EXPECT_LT(worst_difference(logits_of(*file, golden.ids()), want), is_folded ? 3e-5 : 3e-6);
  EXPECT_LT(worst_difference(logits_of(*file, golden.ids()), golden.logits()), single_bound(source->config()));
  // And from there a folder again.
  export_hugging_face(*file, folder / "back");
  EXPECT_LT(worst_difference(logits_of(*open_model(folder / "back"), golden.ids()), want), is_folded ? 3e-5 : 3e-6);
}

TEST(ExportGgufExpertsTest, OfExpertsAloneAreInMxfp4) {
  ModelConfig config = small_config(64, 96);
  config.experts = 4, config.expert_ffn = 64;
  const TemporaryFolder folder;
  const std::string path = folder / "model.gguf";
  export_gguf(*random_model("random", config), path, {.type = GgmlType::mxfp4});
  const GgufFile file(path);
  EXPECT_EQ(file.tensor("blk.0.ffn_up_exps.weight").type, GgmlType::mxfp4);
  EXPECT_EQ(file.tensor("blk.0.ffn_down_exps.weight").type, GgmlType::mxfp4);
  EXPECT_EQ(file.tensor("blk.0.attn_q.weight").type, GgmlType::q8_0);
  EXPECT_EQ(file.tensor("blk.0.ffn_gate_inp.weight").type, GgmlType::f32);
}

class ExportGgufTypeTest : public testing::TestWithParam<GgmlType> {};
INSTANTIATE_TEST_SUITE_P(Types, ExportGgufTypeTest,
                         testing::Values(GgmlType::f32, GgmlType::f16, GgmlType::bf16, GgmlType::q8_0, GgmlType::q4_0,
                                         GgmlType::q4_1, GgmlType::q5_0, GgmlType::q5_1, GgmlType::q2_k,
                                         GgmlType::q3_k, GgmlType::q4_k, GgmlType::q5_k, GgmlType::q6_k),
                         [](const auto& test) { return std::string(weft::name_of(test.param)); });

TEST_P(ExportGgufTypeTest, MatricesAreRoundedAndVectorsAreNot) {
  const TemporaryFolder folder;
  const std::string path = folder / "model.gguf";
  const std::unique_ptr<ModelSource> random = random_model("random", small_config(256, 512));
  const ModelSource& source = *random;
  EXPECT_EQ(export_gguf(source, path, {.type = GetParam()}).notes.size(), 1u);  // of the tokenizer
  const auto file = open_model(path);
  for (const ParamNames& names : source.names()) {
    std::vector<float> want = values_of(source, names);
    const bool is_matrix = names.shape.rank() > 1;
    if (is_matrix) {
      std::vector<std::byte> blocks(*ggml_bytes(GetParam(), want.size()));
      quantize(GetParam(), want, blocks);
      dequantize(GetParam(), blocks, want);
    }
    EXPECT_EQ(values_of(*file, names), want) << names.param;
  }
  for (const StoredInfo& info : file->tensors().all())
    EXPECT_EQ(info.dtype_name, info.dims.size() > 1 ? weft::name_of(GetParam()) : "F32") << info.name;
}

TEST(ExportGgufUnevenTest, TakesATypeThatFitsAndSaysSo) {
  const TemporaryFolder folder;
  const std::unique_ptr<ModelSource> random = random_model("random", small_config(96, 20));
  const ModelSource& source = *random;
  const Exported exported = export_gguf(source, folder / "m.gguf", {.type = GgmlType::q4_k});
  const std::string notes = fmt::format("{}", fmt::join(exported.notes, "\n"));
  for (const char* words :
       {"Q5_0 instead of Q4_K", "token_embd.weight", "F16 instead of Q4_K", "blk.#.ffn_down.weight"})
    EXPECT_NE(notes.find(words), std::string::npos) << notes;
  const auto file = open_model(folder / "m.gguf");
  EXPECT_EQ(file->tensors().find("blk.0.attn_q.weight")->dtype_name, "Q5_0");
  EXPECT_EQ(file->tensors().find("blk.0.ffn_down.weight")->dtype_name, "F16");
}

TEST(ExportGgufRouterTest, StaysSingle) {
  const GoldenModel golden("qwen3_moe");
  const TemporaryFolder folder;
  export_gguf(*open_model(golden.path()), folder / "m.gguf", {.type = GgmlType::bf16});
  const auto file = open_model(folder / "m.gguf");
  EXPECT_EQ(file->tensors().find("blk.0.ffn_gate_inp.weight")->dtype_name, "F32");
  EXPECT_EQ(file->tensors().find("blk.0.ffn_up_exps.weight")->dtype_name, "BF16");
}

// A call of the file system fails, each in turn.
TEST(ExportGgufFailureTest, LeavesNothingHalfWritten) {
  const std::unique_ptr<ModelSource> random = random_model("random", small_config(32, 32));
  const ModelSource& source = *random;
  for (const Fault fault : {Fault::eio, Fault::enospc}) {
    bool has_failed = true;
    for (int64_t n = 0; has_failed; ++n) {
      const TemporaryFolder folder;
      const std::string path = folder / "m.gguf";
      FaultyFileSystem fs(fault, n);
      try {
        export_gguf(source, path, {.fs = &fs});
        has_failed = fs.fired();
      } catch (const Error&) {
      }
      ASSERT_LT(n, 200);
      // Where only the folder's names could not be made durable, the file is whole.
      if (std::filesystem::exists(path)) EXPECT_NO_THROW(open_model(path));
      EXPECT_FALSE(std::filesystem::exists(path + ".tmp")) << n;
    }
  }
}

TEST(ExportGgufFailureTest, NeitherReplacesAFileNorWritesWhatBlocksCannotHold) {
  const TemporaryFolder folder;
  const std::unique_ptr<ModelSource> random = random_model("random", small_config(32, 32));
  const ModelSource& source = *random;
  export_gguf(source, folder / "m.gguf");
  EXPECT_THROW(export_gguf(source, folder / "m.gguf"), Error);
  EXPECT_THROW(parse_ggml_type("--dtype", "iq2_s"), UsageError);
  EXPECT_EQ(parse_ggml_type("--dtype", "fp16"), GgmlType::f16);
  EXPECT_EQ(parse_ggml_type("--dtype", "Q4_k"), GgmlType::q4_k);
}

GgufVocabulary small_vocabulary() {
  return {.model = "gpt2",
          .pre = "qwen2",
          .tokens = {"a", "b", "ab", "1", "2", "12", "<|end|>", "<tool>"},
          .token_type = {1, 1, 1, 1, 1, 1, 3, 4},
          .merges = {"a b", "1 2"},
          .eos_token_id = 6};
}

TEST(ExportGgufTokenizerTest, GoesWithItsTemplateToAFileAndBack) {
  const GoldenModel golden("llama");
  const TemporaryFolder folder;
  const auto made = make_gguf_tokenizer(small_vocabulary(), "small");
  std::ofstream(golden.path() + "/tokenizer.json") << *hf_tokenizer_file(*made);
  std::ofstream(golden.path() + "/tokenizer_config.json")
      << R"({"eos_token": "<|end|>", "chat_template": "{{ messages }}!"})";
  const SamplingDefaults sampling{
      .temperature = 0.7, .top_p = 0.8, .min_p = 0.05, .repetition_penalty = 1.1, .top_k = 20};
  nlohmann::json generation{{"eos_token_id", {6, 7}}};
  write_sampling_defaults(generation, sampling);
  std::ofstream(golden.path() + "/generation_config.json") << generation;
  const auto source = open_model(golden.path());
  const auto tokenizer = source->tokenizer();
  export_gguf(*source, folder / "m.gguf");
  const auto file = open_model(folder / "m.gguf");
  export_hugging_face(*file, folder / "back");
  const auto back = open_model(folder / "back");
  for (const ModelSource* copy : {file.get(), back.get()}) {
    ASSERT_TRUE(copy->chat_template());
    EXPECT_EQ(copy->chat_template()->text, "{{ messages }}!");
    EXPECT_EQ(copy->sampling_defaults(), sampling);
    EXPECT_EQ(stop_tokens(*copy, *tokenizer), (std::vector<int32_t>{6, 7}));
    const auto again = copy->tokenizer();
    EXPECT_EQ(hf_tokenizer_file(*again), hf_tokenizer_file(*tokenizer));
    EXPECT_EQ(again->begin_of_document(), tokenizer->begin_of_document());
    EXPECT_EQ(again->end_of_document(), tokenizer->end_of_document());
  }
  // What llama.cpp reads says the same.
  const GgufVocabulary v = read_gguf_vocabulary(GgufFile(folder / "m.gguf"));
  EXPECT_EQ(v.model, "gpt2");
  EXPECT_EQ(int64_t(v.tokens.size()), source->config().vocab);
  EXPECT_EQ(v.token_type[6], 3);
  EXPECT_EQ(v.token_type[7], 4);
  EXPECT_EQ(v.token_type[8], 5);
  EXPECT_EQ(v.eos_token_id, 6);
  for (const char* text : {"abab12b", "a<tool>b21", "ab<|end|>"})
    EXPECT_EQ(make_gguf_tokenizer(v, "v")->encode(text, {.parse_special = true}),
              tokenizer->encode(text, {.parse_special = true}));
}

TEST(ExportGgufTokenizerTest, WeftsOwnIsKept) {
  const TemporaryFolder folder;
  const std::unique_ptr<ModelSource> random = random_model("random", small_config(32, 32));
  const ModelSource& source = *random;
  export_gguf(source, folder / "m.gguf");
  const GgufFile file(folder / "m.gguf");
  EXPECT_EQ(read_gguf_tokenizer(file)->name(), source.tokenizer()->name());
  EXPECT_EQ(read_gguf_vocabulary(file).model, kNoGgufModel);
}

struct Known {
  const char *path, *model, *pre;
};
class KnownTokenizerTest : public testing::TestWithParam<Known> {};
INSTANTIATE_TEST_SUITE_P(All, KnownTokenizerTest,
                         testing::Values(Known{"tokenizers/gpt2", "gpt2", "gpt-2"},
                                         Known{"tokenizers/llama2", "llama", ""},
                                         Known{"tokenizers/llama2/tokenizer.model", "llama", ""}),
                         [](const auto& test) { return fmt::format("{}_{}", test.param.model, test.index); });

TEST_P(KnownTokenizerTest, IsToldInTheWordsOfLlamaCpp) {
  const std::string path = test_data(GetParam().path);
  if (path.empty()) GTEST_SKIP() << no_test_data(GetParam().path);
  const auto tokenizer = load_tokenizer(path);
  const GgufVocabulary v = gguf_vocabulary_of(*tokenizer, tokenizer->vocab_size() + 3);
  EXPECT_EQ(v.model, GetParam().model);
  EXPECT_EQ(v.pre, GetParam().pre);
  EXPECT_EQ(int32_t(v.tokens.size()), tokenizer->vocab_size() + 3);
  EXPECT_EQ(v.eos_token_id, tokenizer->end_of_document());
}

}  // namespace
}  // namespace weft
