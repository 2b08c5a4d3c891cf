// Other programs' configurations: every key is accounted for, and the recipe is what it says.
#include "weft/plan/imports/import.h"

#include <map>
#include <regex>
#include <set>

#include "weft/base/excerpt.h"
#include "weft/base/file.h"
#include "weft/plan/imports/config_entry.h"
#include "weft/plan/imports/translation.h"
#include "weft/train/recipe.h"

namespace weft::plan {
namespace {

const std::string kFolder = std::string(WEFT_SOURCE_DIR) + "/tests/plan/data/imports/";

Import import_file(const std::string& name, const ImportOptions& options = {}) {
  return import_config(read_file(kFolder + name, kMostConfigBytes), name, options);
}
Import import_text(const std::string& text, std::optional<ImportKind> kind = {}) {
  return import_config(text, "theirs", {.kind = kind});
}
const ImportedKey* find(const Import& import, const std::string& key) {
  for (const ImportedKey& k : import.keys)
    if (k.key == key) return &k;
  return nullptr;
}
std::string refusal_of(const std::string& text, std::optional<ImportKind> kind = {}) {
  try {
    import_text(text, kind);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

struct ImportCase {
  std::string file;
  ImportKind kind;
  size_t num_keys;
  std::vector<std::string> lines;    // of the recipe
  std::vector<std::string> unknown;  // keys
  std::vector<std::string> open;     // keys of the recipe
};

std::vector<ImportCase> cases() {
  return {
      {"deepspeed_zero3_offload.json",
       ImportKind::deepspeed,
       45,
       {"zero = 3", "dp = 8", "offload_optimizer = \"host\"", "offload_parameters = \"disk\"",
        "offload_dir = \"/local_nvme\"", "offload_activations = \"host\"", "recompute = \"block\"",
        "global_batch = 256", "micro_batch = 4", "precision = \"bf16\"", "schedule = \"linear\"", "warmup = 100",
        "steps = 5000", "betas = [0.9, 0.95]", "lr = 2e-05", "clip = 1.0"},
       {},
       {"model", "data.train", "train.seq_len"}},
      {"deepspeed_trainer_auto.json",
       ImportKind::deepspeed,
       27,
       {"zero = 2", "name = \"adamw\"", "schedule = \"constant\""},
       {},
       {"mesh.dp", "train.micro_batch", "optimizer.lr", "train.steps", "model"}},
      {"deepspeed_pretrain_fp16.json",
       ImportKind::deepspeed,
       25,
       {"zero = 1", "precision = \"fp16\"", "global_batch = 1024", "micro_batch = 8", "clip = 0.5",
        "dir = \"logs/pretrain\"", "tensorboard = true"},
       {},
       {"optimizer.name", "mesh.dp"}},
      {"megatron_gpt3.sh",
       ImportKind::megatron,
       37,
       {"family = \"gpt2\"", "layers = 96", "hidden = 12288", "ffn = 49152", "tp = 8", "pp = 16", "dp = 1",
        "schedule = \"interleaved\"", "virtual_stages = 3", "warmup = 430", "precision = \"fp16\"",
        "tokenizer = \"/data/gpt2\"", "dropout = 0.1", "bias = true", "tie_embeddings = true",
        "valid_fraction = 0.05"},
       {},
       {"checkpoint.dir", "data.train"}},
      {"megatron_llama.args",
       ImportKind::megatron,
       49,
       {"family = \"llama\"", "kv_heads = 8", "rope_scaling = \"llama3\"", "rope_theta = 500000.0", "bias = false",
        "tie_embeddings = false", "activation = \"swiglu\"", "steps = 10000", "warmup = 100", "cp = 2",
        "cp_mode = \"ulysses\"", "sequence_parallel = true", "zero = 1", "recompute = \"block\"", "timeout_s = 600",
        "precision = \"fp8\"", "betas = [0.9, 0.95]", "weight_decay = 0.1"},
       {},
       {"mesh.dp"}},
      {"megatron_mixture.sh",
       ImportKind::megatron,
       42,
       {"mtp_layers = 1", "mtp_loss = 0.3", "experts = 64", "experts_per_token = 6", "expert_ffn = 1408",
        "shared_experts = 2", "first_dense_layers = 1", "norm_topk = false", "ep = 8", "kv_rank = 512",
        "head_dim = 192", "rotary_dim = 64", "value_dim = 128"},
       {},
       {"mesh.tp", "mesh.dp"}},
      {"nanotron_tiny_llama.yaml",
       ImportKind::nanotron,
       82,
       {"family = \"llama\"", "layers = 2", "hidden = 16", "dp = 2", "pp = 2", "tp = 2", "sequence_parallel = true",
        "schedule = \"1f1b\"", "schedule = \"cosine\"", "accumulation = 4", "lr = 0.0003", "min_lr = 1e-05",
        "every = 10", "tie_embeddings = true", "zero = 0"},
       {},
       {"data.train"}},
      {"nanotron_experts.yaml",
       ImportKind::nanotron,
       80,
       {"family = \"qwen2\"", "experts = 8", "expert_ffn = 768", "ep = 4", "dp = 8", "recompute = \"block\"",
        "schedule = \"wsd\"", "decay_steps = 5000", "documents = true", "norm_eps = 1e-06"},
       {},
       {"data.train"}},
      {"nanotron_pipeline.yaml",
       ImportKind::nanotron,
       26,
       {"schedule = \"gpipe\"", "pp = 8", "precision = \"fp16\"", "name = \"sgd\"", "clip = 0.0", "lr = 0.0003"},
       {},
       {"data.train"}},
      {"picotron_base.json",
       ImportKind::picotron,
       36,
       {"tp = 2", "cp = 2", "pp = 2", "dp = 2", "layers = 16", "kv_heads = 4", "micro_batch = 32", "seq_len = 1024",
        "lr = 0.0003", "every = 300", "precision = \"bf16\"", "schedule = \"constant\""},
       {},
       {"model.path", "data.train"}},
      {"picotron_tokens.json",
       ImportKind::picotron,
       25,
       {"schedule = \"gpipe\"", "steps = 100", "precision = \"fp32\"", "accumulation = 8"},
       {},
       {"model.path"}},
      {"picotron_single.json", ImportKind::picotron, 16, {"dp = 1", "steps = 10"}, {}, {"model.path"}},
      {"accelerate_fsdp.yaml",
       ImportKind::accelerate,
       29,
       {"zero = 3", "hsdp = 2", "dp = 16", "recompute = \"block\"", "precision = \"bf16\""},
       {},
       {"train.steps", "model"}},
      {"accelerate_fsdp2.yaml",
       ImportKind::accelerate,
       17,
       {"zero = 3", "reshard_after_forward = false", "offload_parameters = \"host\"", "offload_optimizer = \"host\"",
        "dp = 2", "cp = 2", "cp_mode = \"allgather\"", "precision = \"fp16\""},
       {},
       {"train.seq_len"}},
      {"accelerate_deepspeed.yaml",
       ImportKind::accelerate,
       15,
       {"zero = 3", "accumulation = 4", "clip = 1.0", "offload_optimizer = \"host\"", "dp = 8",
        "precision = \"fp32\""},
       {},
       {"optimizer"}},
      {"accelerate_plain.yaml", ImportKind::accelerate, 7, {"dp = 1", "precision = \"fp32\""}, {}, {"model"}},
  };
}

class ImportTest : public testing::TestWithParam<ImportCase> {};
INSTANTIATE_TEST_SUITE_P(Files, ImportTest, testing::ValuesIn(cases()), [](const auto& test) {
  std::string name = test.param.file;
  std::ranges::replace(name, '.', '_');
  return name;
});

TEST_P(ImportTest, EveryKeyIsAccountedFor) {
  const Import import = import_file(GetParam().file);
  EXPECT_EQ(import.kind, GetParam().kind) << name_of(import.kind);
  std::set<std::string> keys;
  for (const ImportedKey& k : import.keys) {
    EXPECT_TRUE(keys.insert(k.key).second) << k.key << " is there twice";
    const bool is_known = std::ranges::find(GetParam().unknown, k.key) == GetParam().unknown.end();
    EXPECT_EQ(k.fate != Fate::unknown, is_known) << k.key;
  }
  EXPECT_EQ(keys.size(), GetParam().num_keys) << fmt::format("{}", fmt::join(keys, "\n"));
}

TEST_P(ImportTest, TheRecipeSaysTheSame) {
  const Import import = import_file(GetParam().file);
  for (const std::string& line : GetParam().lines)
    EXPECT_NE(("\n" + import.recipe).find("\n" + line + "\n"), std::string::npos) << line << "\n" << import.recipe;
  EXPECT_EQ(import.refusal, "");
  Toml toml = Toml::parse(import.recipe, "imported.toml");
  EXPECT_NO_THROW(read_recipe(toml));
  for (const std::string& key : GetParam().open)
    EXPECT_TRUE(std::ranges::any_of(import.open, [&](const OpenKey& k) { return k.key == key; })) << key;
}

// Every "section.key" of a recipe that a text names.
std::vector<std::string> recipe_keys_in(const std::string& text) {
  static const std::regex kKey(R"(\b(?:model|data|train|optimizer|mesh|checkpoint|log|lora)\.[a-z][a-z_]*)");
  std::vector<std::string> keys;
  for (std::sregex_iterator it(text.begin(), text.end(), kKey), end; it != end; ++it) keys.push_back(it->str());
  return keys;
}

bool is_recipe_key(const Import& import, const std::string& key) {
  Toml toml = Toml::parse(import.recipe, "imported.toml");
  toml.apply({fmt::format("--{}=1", key)});
  try {
    read_recipe(toml);
  } catch (const Error& e) {  // or the value is refused
    return std::string(e.what()).find(key + " is not a key") == std::string::npos;
  }
  return true;
}

// A key that is taken says as which of the recipe's; one that is open, which to write or why nothing is known; every
// other one says why. What names a key of the recipe names one that is there.
TEST_P(ImportTest, EveryKeyIsAnsweredWithAReason) {
  const Import import = import_file(GetParam().file);
  std::map<std::string, bool> is_key;
  for (const ImportedKey& k : import.keys) {
    const std::string answer = fmt::format("{} = {}: {}: {}", k.key, k.value, name_of(k.fate), k.says);
    const std::vector<std::string> named = recipe_keys_in(k.says);
    switch (k.fate) {
      case Fate::taken: EXPECT_FALSE(named.empty() || k.says.find(" = ") == std::string::npos) << answer; break;
      case Fate::open:
        EXPECT_TRUE(!named.empty() || k.says.ends_with("write its value into the file") || k.key.starts_with('$'))
            << answer << ": which key is to be written?";
        break;
      case Fate::same: EXPECT_FALSE(k.says.empty()) << answer; break;
      case Fate::not_needed:
      case Fate::no_counterpart:
      case Fate::unknown:
        EXPECT_TRUE(!named.empty() || std::ranges::count(k.says, ' ') >= 2) << answer << ": that is no reason";
        EXPECT_FALSE(k.says.ends_with(' ') || k.says.ends_with(':')) << answer;
        break;
    }
    for (const std::string& key : named) {
      if (!is_key.contains(key)) is_key[key] = is_recipe_key(import, key);
      EXPECT_TRUE(is_key[key] || k.key.find(key) != k.key.npos) << answer << ": a recipe has no " << key;
    }
  }
  for (const OpenKey& k : import.open) EXPECT_FALSE(k.says.empty()) << k.key;
  for (const ImpliedKey& k : import.implied) EXPECT_FALSE(k.says.empty()) << k.key;
}

// The same of the tables as a whole, of which no file has every key.
TEST(ImportTableTest, EveryRuleHasAReason) {
  const Import import = import_file("megatron_llama.args");
  std::map<std::string, bool> is_key;
  for (const Format& format :
       {deepspeed_format(), megatron_format(), nanotron_format(), picotron_format(), accelerate_format()})
    for (const Rule& rule : format.rules) {
      const std::string text(rule.text), answer = fmt::format("{}: {}: {}", format.name, rule.pattern, text);
      EXPECT_FALSE(text.empty() && !rule.take) << answer;
      const std::vector<std::string> named = recipe_keys_in(text);
      if (rule.fate == Fate::taken) EXPECT_TRUE(!named.empty() || (text.empty() && rule.take)) << answer;
      if (rule.fate == Fate::not_needed || rule.fate == Fate::no_counterpart)
        EXPECT_TRUE(!named.empty() || std::ranges::count(text, ' ') >= 2) << answer;
      for (const std::string& key : named) {
        if (!is_key.contains(key)) is_key[key] = is_recipe_key(import, key);
        EXPECT_TRUE(is_key[key]) << answer << ": a recipe has no " << key;
      }
    }
}

TEST(ImportTest, WhatHasNoValueOfItsOwnSaysWhy) {
  const Import import = import_text(R"({"train_batch_size": 8, "something_of_tomorrow": 1,
    "fp16": {"enabled": true, "loss_scale": "auto"}, "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto"}},
    "zero_optimization": {"stage": 1, "reduce_bucket_size": "auto"}})");
  const ImportedKey* const tomorrow = find(import, "something_of_tomorrow");
  EXPECT_EQ(tomorrow->fate, Fate::unknown);
  EXPECT_NE(tomorrow->says.find("none of the keys"), std::string::npos) << tomorrow->says;
  EXPECT_EQ(find(import, "scheduler.params.warmup_min_lr")->says, "warm-up begins at 0");
  EXPECT_EQ(find(import, "fp16.loss_scale")->says, "another file sets it: write its value into the file");
  EXPECT_EQ(find(import, "zero_optimization.reduce_bucket_size")->fate, Fate::not_needed);
}

TEST(ImportTest, UnknownKeysAreNamed) {
  const Import import = import_text(R"({"train_batch_size": 8, "zero_optimization": {"stage": 1, "overlap_com": true},
    "something_else": {"of": [1, {"mine": 2}]}})");
  ASSERT_TRUE(find(import, "zero_optimization.overlap_com"));
  EXPECT_EQ(find(import, "zero_optimization.overlap_com")->fate, Fate::unknown);
  EXPECT_EQ(find(import, "zero_optimization.overlap_com")->says, "did you mean zero_optimization.overlap_comm?");
  ASSERT_TRUE(find(import, "something_else.of.1.mine"));
  EXPECT_EQ(find(import, "something_else.of.1.mine")->fate, Fate::unknown);
  EXPECT_TRUE(find(import, "something_else.of.0"));
  EXPECT_EQ(import.keys.size(), 5u);
}

TEST(ImportTest, WhatScriptsLeaveOpenIsSaid) {
  const Import import = import_file("megatron_mixture.sh");
  EXPECT_EQ(find(import, "--tensor-model-parallel-size")->fate, Fate::open);
  EXPECT_EQ(find(import, "$EXTRA_ARGS")->fate, Fate::open);
  const Import again = import_text("--num-layers 4 --num-layers 8 --hidden-size 64");
  EXPECT_EQ(again.keys.size(), 2u);
  EXPECT_EQ(find(again, "--num-layers")->says, "model.layers = 8; given 2 times, the last counts");
}

TEST(ImportTest, MegatronsOwnYaml) {
  const Import import = import_text(
      "language_model:\n  num_layers: 24\n  hidden_size: 1024\n  add_bias_linear: False\n"
      "model_parallel:\n  tensor_model_parallel_size: 2\n");
  EXPECT_EQ(import.kind, ImportKind::megatron);
  EXPECT_EQ(find(import, "language_model.num_layers")->says, "model.layers = 24");
  EXPECT_EQ(find(import, "model_parallel.tensor_model_parallel_size")->says, "mesh.tp = 2");
}

TEST(ImportTest, ACommandLineFillsIn) {
  const Import import = import_file("deepspeed_trainer_auto.json",
                                    {.kind = {}, .model = "llama-1b", .data = "a.txt", .num_devices = 16});
  EXPECT_NE(import.recipe.find("preset = \"llama-1b\""), std::string::npos);
  EXPECT_NE(import.recipe.find("train = \"a.txt\""), std::string::npos);
  EXPECT_NE(import.recipe.find("dp = 16"), std::string::npos);
  EXPECT_THROW(import_file("nanotron_tiny_llama.yaml", {.kind = {}, .model = "llama-1b"}), UsageError);
}

// What contradicts itself is shown all the same, and said.
TEST(ImportTest, AContradictionIsSaid) {
  const Import import = import_text(R"({"train_batch_size": 10, "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 3})");
  EXPECT_EQ(import.keys.size(), 3u);
  EXPECT_NE(import.refusal, "");
}

TEST(ImportTest, WhatIsNotReadIsRefused) {
  const struct {
    std::string text, what;
    std::optional<ImportKind> kind = {};
  } refused[] = {
      {R"({"train_batch_size": 8,})", "line 1"},
      {R"({"a": 1, "a": 2})", "twice"},
      {R"([1, 2])", "keys and values"},
      {"{}", "write one object"},
      {R"({"train_batch_size": "many"})", "must be a number"},
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": 1.5}})", "whole number"},
      {R"({"hello": "world"})", "--from"},
      {"parallelism:\n  dp: 2\n tp: 1\n", "line 3"},
      {"tokens: &x {a: 1}\n", "anchors"},
      {"tokens: {a: *x}\n", "aliases"},
      {"tokens: !!python/object:os.system {}\n", "tags"},
      {"tokens:\n  a: 1\n  a: 2\n", "line 3: the key 'a' appears twice"},
      {"distributed_type: NO\n---\nb: 1\n", "second document"},
      {"- 1\n- 2\n", "keys and values"},
      {"tokens: " + std::string(40, '[') + std::string(40, ']'), "nested deeper"},
      {"", "keys and values"},
      {"--num-layers 'four", "quote", ImportKind::megatron},
      {"--num-layers four", "line 1: --num-layers = four must be a number", ImportKind::megatron},
      {"A=--x\nA=${A", "bracket", ImportKind::megatron},
      {"# nothing\n", "keys and values"},
      {std::string(2 << 20, ' '), "larger"},
  };
  for (const auto& r : refused) {
    const std::string message = refusal_of(r.text, r.kind);
    EXPECT_NE(message.find(r.what), std::string::npos) << excerpt(r.text) << "\n" << message;
    EXPECT_TRUE(message.starts_with("theirs")) << message;
  }
}

// Variables that double each other's values.
TEST(ImportTest, GrowingVariablesAreRefused) {
  std::string script = "A0=xxxxxxxxxxxxxxxx\n";
  for (int i = 1; i < 40; ++i) script += fmt::format("A{}=$A{}$A{}\n", i, i - 1, i - 1);
  EXPECT_NE(refusal_of(script + "run --num-layers $A39\n", ImportKind::megatron), "");
}

// What a recipe refuses beside the others is not written: a constant rate has no end, and what is not on a disk no
// folder.
TEST(ImportTest, KeysWithoutEffectAreLeftOut) {
  const struct {
    std::string text, key;
    ImportKind kind;
  } cases[] = {{R"({"train_batch_size": 8, "scheduler": {"type": "WarmupLR", "params": {"cos_min_ratio": 0.1}}})",
                "scheduler.params.cos_min_ratio", ImportKind::deepspeed},
               {"--lr 1e-4\n--min-lr 1e-5\n--lr-decay-style constant\n", "--min-lr", ImportKind::megatron},
               {"distributed_type: DEEPSPEED\ndeepspeed_config:\n  offload_param_device: none\n"
                "  offload_param_nvme_path: /nvme\n",
                "deepspeed_config.offload_param_nvme_path", ImportKind::accelerate}};
  for (const auto& c : cases) {
    const Import import = import_text(c.text, c.kind);
    ASSERT_TRUE(find(import, c.key)) << c.key;
    EXPECT_EQ(find(import, c.key)->fate, Fate::not_needed) << c.key;
    EXPECT_EQ(import.recipe.find("min_lr"), std::string::npos) << import.recipe;
    EXPECT_EQ(import.recipe.find("offload_dir"), std::string::npos) << import.recipe;
    EXPECT_EQ(import.refusal, "") << import.recipe;
  }
}

struct GradientCase {
  const char* name;
  ImportKind kind;
  std::string text, key;
  Fate fate;
};
class ImportedGradientsTest : public testing::TestWithParam<GradientCase> {};
INSTANTIATE_TEST_SUITE_P(
    Keys, ImportedGradientsTest,
    testing::Values(GradientCase{"deepspeed", ImportKind::deepspeed,
                                 R"({"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "bf16"}})",
                                 "data_types.grad_accum_dtype", Fate::taken},
                    GradientCase{"deepspeed_fp32", ImportKind::deepspeed,
                                 R"({"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}})",
                                 "data_types.grad_accum_dtype", Fate::same},
                    GradientCase{"deepspeed_fp16", ImportKind::deepspeed,
                                 R"({"fp16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp16"}})",
                                 "data_types.grad_accum_dtype", Fate::no_counterpart},
                    GradientCase{"megatron_reduced", ImportKind::megatron, "--bf16\n--grad-reduce-in-bf16\n",
                                 "--grad-reduce-in-bf16", Fate::taken},
                    GradientCase{"megatron_main", ImportKind::megatron, "--bf16\n--main-grads-dtype bf16\n",
                                 "--main-grads-dtype", Fate::taken},
                    GradientCase{"megatron_of_fp16", ImportKind::megatron, "--fp16\n--grad-reduce-in-bf16\n",
                                 "--grad-reduce-in-bf16", Fate::no_counterpart},
                    GradientCase{"nanotron", ImportKind::nanotron,
                                 "model:\n  dtype: bfloat16\noptimizer:\n  accumulate_grad_in_fp32: false\n",
                                 "optimizer.accumulate_grad_in_fp32", Fate::taken}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_P(ImportedGradientsTest, AreOfBf16WhereTheProductsAre) {
  const GradientCase& c = GetParam();
  const Import import = import_text(c.text, c.kind);
  const ImportedKey* const key = find(import, c.key);
  ASSERT_TRUE(key);
  EXPECT_EQ(key->fate, c.fate) << key->says;
  EXPECT_EQ(import.recipe.find("gradients = \"bf16\"") != std::string::npos, c.fate == Fate::taken) << import.recipe;
}

}  // namespace
}  // namespace weft::plan
