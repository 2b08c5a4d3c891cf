// What a config.json says is read, and what weft cannot do is refused by name.
#include <nlohmann/json.hpp>

#include "pretrained/sample_configs.h"
#include "weft/pretrained/export.h"
#include "weft/pretrained/hf_family.h"
#include "weft/pretrained/python_json.h"

namespace weft {
namespace {

std::string config_error(const nlohmann::json& json) {
  try {
    parse_hf_config(json.dump(), "folder/config.json");
  } catch (const UsageError& e) {
    return std::string("a usage error: ") + e.what();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(HfConfigTest, KeysThatAreAbsentHaveTheirDefaults) {
  const ModelConfig llama = parse_hf_config(sample("llama").dump(), "x").model;
  EXPECT_EQ(llama.head_dim, 2);
  EXPECT_EQ(llama.norm_eps, 1e-6f);
  EXPECT_EQ(llama.rope_theta, 1e4);
  EXPECT_FALSE(llama.tie_embeddings);
  const ModelConfig gpt2 = parse_hf_config(sample("gpt2").dump(), "x").model;
  EXPECT_EQ(gpt2.ffn, 32);
  EXPECT_EQ(gpt2.activation, Activation::gelu_tanh);
  EXPECT_TRUE(gpt2.tie_embeddings);
  nlohmann::json by_class = sample("qwen3");
  by_class.erase("model_type"), by_class["architectures"] = {"Qwen3ForCausalLM"};
  EXPECT_TRUE(parse_hf_config(by_class.dump(), "x").model.qk_norm);
}

// Version 5 of the library writes what was in several keys as rope_parameters, of local layers apart.
TEST(HfConfigTest, LocalLayersOfOlmo3AreNotStretchedHoweverThatIsWritten) {
  const nlohmann::json stretched{{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 8}};
  nlohmann::json older = sample("olmo3"), newer = older;
  older["rope_theta"] = 1e5, older["rope_scaling"] = stretched;
  nlohmann::json& parameters = newer["rope_parameters"];
  parameters["full_attention"] = stretched, parameters["full_attention"]["rope_theta"] = 1e5;
  parameters["sliding_attention"] = {{"rope_type", "default"}, {"rope_theta", 1e5}};
  const ModelConfig config = parse_hf_config(newer.dump(), "x").model;
  EXPECT_EQ(config, parse_hf_config(older.dump(), "x").model);
  EXPECT_EQ(config.rope_scaling.kind, RopeScaling::Kind::yarn);
  EXPECT_EQ(config.local_rope_theta, 1e5);
  EXPECT_TRUE(config.is_local(0) && !config.is_local(3));
}

// Of published files of these models, beside what the samples say.
TEST(HfConfigTest, KeysOfPublishedFilesAreRead) {
  const std::pair<const char*, nlohmann::json> files[] = {
      {"deepseek_v2", {{"scoring_func", "softmax"}}},
      {"deepseek_v3", {{"scoring_func", "sigmoid"}, {"topk_method", "noaux_tc"}}},
      {"deepseek_v3", {{"model_type", "kimi_k2"}}},
      {"minimax_m2", {{"scoring_func", "sigmoid"}, {"use_routing_bias", true}, {"qk_norm_type", "per_layer"}}},
      {"starcoder2", {{"norm_type", "layer_norm"}, {"mlp_type", "default"}}},
      {"gpt_oss",
       {{"hidden_act", "silu"}, {"swiglu_limit", 7.0}, {"experts_per_token", 4}, {"initial_context_length", 4096}}}};
  for (const auto& [name, keys] : files) {
    nlohmann::json json = sample(name);
    ASSERT_TRUE(json.is_object()) << name;
    const ModelConfig plain = parse_hf_config(json.dump(), "x").model;
    json.update(keys);
    EXPECT_EQ(parse_hf_config(json.dump(), "x").model, plain) << name;
  }
}

TEST(HfConfigTest, RoutersOfAxk1MayHaveNoBiases) {
  nlohmann::json json = sample("axk1");
  const ModelConfig biased = parse_hf_config(json.dump(), "x").model;
  json["topk_method"] = "noaux_tc";
  EXPECT_EQ(parse_hf_config(json.dump(), "x").model, biased);
  json["topk_method"] = "none";
  EXPECT_TRUE(biased.router_bias && !parse_hf_config(json.dump(), "x").model.router_bias);
}

TEST(HfConfigTest, AnglesOfApertusAreStretchedUnlessItSaysOtherwise) {
  nlohmann::json json = sample("apertus_bias");
  EXPECT_EQ(parse_hf_config(json.dump(), "x").model.rope_scaling.kind, RopeScaling::Kind::none);
  json.erase("rope_parameters");
  const ModelConfig c = parse_hf_config(json.dump(), "x").model;
  EXPECT_EQ(c.rope_theta, 1.2e7);
  EXPECT_EQ(c.rope_scaling.kind, RopeScaling::Kind::llama3);
  EXPECT_EQ(c.rope_scaling.factor, 8);
  EXPECT_EQ(c.rope_scaling.original_context, 8192);
  EXPECT_TRUE(c.is_xielu && !c.is_gated);
}

TEST(HfConfigTest, FactorsOfMiniCpm3MayBeNull) {
  nlohmann::json json = sample("minicpm3");
  const ModelConfig told = parse_hf_config(json.dump(), "x").model;
  EXPECT_EQ(told.residual_scale, float(1.4 / std::sqrt(3.0)));
  EXPECT_EQ(told.logit_scale, 10.0f / 16);
  EXPECT_EQ(told.value_dim, 4);
  for (const char* key : {"scale_depth", "dim_model_base"}) json[key] = nullptr;
  const ModelConfig plain = parse_hf_config(json.dump(), "x").model;
  EXPECT_EQ(plain.residual_scale, 1);
  EXPECT_EQ(plain.logit_scale, 1);
  for (const char* key : {"scale_depth", "dim_model_base", "scale_emb"}) json.erase(key);
  json["hidden_size"] = 512;
  const ModelConfig absent = parse_hf_config(json.dump(), "x").model;
  EXPECT_EQ(absent.residual_scale, told.residual_scale);
  EXPECT_EQ(absent.logit_scale, 0.5f);
  EXPECT_EQ(absent.embedding_scale, 12);
}

// The library's own names, and those of the first files.
TEST(HfConfigTest, KeysOfSarvamHaveTwoNames) {
  for (const char* name : {"sarvam_moe", "sarvam_mla"}) {
    nlohmann::json json = sample(name);
    const ModelConfig plain = parse_hf_config(json.dump(), "x").model;
    EXPECT_EQ(plain.experts, 8) << name;
    for (const auto& [first, own] :
         {std::pair{"num_experts", "n_routed_experts"}, std::pair{"num_shared_experts", "n_shared_experts"},
          std::pair{"use_qkv_bias", "attention_bias"}})
      if (json.contains(first)) json[own] = json[first], json.erase(first);
    EXPECT_EQ(parse_hf_config(json.dump(), "x").model, plain) << name;
  }
  EXPECT_EQ(parse_hf_config(sample("sarvam_mla").dump(), "x").model.rope_scaling.kind, RopeScaling::Kind::yarn);
}

// As Transformers writes them since it knows shapes layer by layer.
TEST(HfConfigTest, ShapesOfLayersAreReadOneByOne) {
  nlohmann::json json = sample("gemma4");
  const ModelConfig plain = parse_hf_config(json.dump(), "x").model;
  EXPECT_EQ(plain.head_dim_of(2), 12);
  EXPECT_EQ(plain.kv_heads_of(2), 1);
  for (const char* key : {"global_head_dim", "num_global_key_value_heads"}) json.erase(key);
  const nlohmann::json of_global = {{"head_dim", 12}, {"num_key_value_heads", 1}};
  json["per_layer_config"] = {{"2", of_global}, {"5", of_global}};
  EXPECT_EQ(parse_hf_config(json.dump(), "x").model, plain);
  json["per_layer_config"]["5"]["head_dim"] = 16;
  EXPECT_NE(config_error(json).find("per_layer_config"), std::string::npos) << config_error(json);
  json["per_layer_config"] = {{"1", of_global}};
  EXPECT_NE(config_error(json).find("per_layer_config"), std::string::npos) << config_error(json);
}

// As the library writes them, and as published files have them.
TEST(HfConfigTest, LayersOfKimiLinearAreToldByNameOrByNumber) {
  nlohmann::json json = sample("kimi_linear");
  const ModelConfig plain = parse_hf_config(json.dump(), "x").model;
  EXPECT_TRUE(plain.is_recurrent(0) && plain.attends(1) && plain.is_recurrent(3) && plain.attends(4));
  EXPECT_TRUE(plain.is_latent() && !plain.is_rotated(1) && plain.has_experts(1) && !plain.has_experts(0));
  json.erase("linear_attn_config"), json.erase("first_k_dense_replace");
  json.update({{"layer_types",
                {"linear_attention", "full_attention", "linear_attention", "linear_attention", "full_attention"}},
               {"mlp_layer_types", {"dense", "sparse", "sparse", "sparse", "sparse"}},
               {"linear_num_heads", 4},
               {"linear_head_dim", 6},
               {"linear_conv_kernel_dim", 4}});
  EXPECT_EQ(parse_hf_config(json.dump(), "x").model, plain);
  json.erase("layer_types");
  const ModelConfig absent = parse_hf_config(json.dump(), "x").model;
  EXPECT_TRUE(absent.is_recurrent(0) && absent.is_recurrent(3) && absent.attends(4));
}

// What other programs would take for something else.
TEST(HfConfigTest, AKeyThatSaysNothingIsNotOneThatIsAbsent) {
  nlohmann::json json = sample("deepseek_v2");
  ASSERT_TRUE(json.at("q_lora_rank").is_null());
  const ModelConfig direct = parse_hf_config(json.dump(), "x").model;
  EXPECT_EQ(direct.query_rank, 0);
  EXPECT_TRUE(nlohmann::json::parse(write_hf_config(direct).json).at("q_lora_rank").is_null());
  json.erase("q_lora_rank");
  EXPECT_EQ(parse_hf_config(json.dump(), "x").model.query_rank, 1536);
}

TEST(HfConfigTest, WholeNumbersAreWrittenAsSuch) {
  for (const char* name : {"gemma2", "gemma3"}) {
    const ModelConfig config = parse_hf_config(sample(name).dump(), "x").model;
    const nlohmann::json written = nlohmann::json::parse(write_hf_config(config).json);
    EXPECT_TRUE(written.at("query_pre_attn_scalar").is_number_integer()) << name;
  }
}

// Null, where experts read what others do.
TEST(HfConfigTest, LatentRowsOfExpertsAreWrittenWhereThereAreSome) {
  nlohmann::json json = sample("nemotron_h_latent");
  json["num_nextn_predict_layers"] = 1, json["mtp_hybrid_override_pattern"] = "*E";
  const ModelConfig latent = parse_hf_config(json.dump(), "x").model;
  EXPECT_EQ(latent.expert_latent_dim, 14);
  EXPECT_EQ(latent.mtp_layers, 0);
  const nlohmann::json written = nlohmann::json::parse(write_hf_config(latent).json);
  EXPECT_EQ(written.at("moe_latent_size"), 14);
  const ModelConfig plain = parse_hf_config(sample("nemotron_h_moe").dump(), "x").model;
  EXPECT_TRUE(nlohmann::json::parse(write_hf_config(plain).json).at("moe_latent_size").is_null());
  ModelConfig elsewhere = parse_hf_config(sample("qwen3_moe").dump(), "x").model;
  elsewhere.expert_latent_dim = 8;
  EXPECT_THROW(write_hf_config(elsewhere), Error);
}

// Python's JSON has words for numbers that JSON has not; texts may have them too.
TEST(HfConfigTest, NumbersThatJsonHasNot) {
  std::string text = sample("nemotron_h").dump();
  text.insert(1, R"("time_step_limit": [0.0, Infinity], "lowest": -Infinity, "none": NaN, "say": "\"NaN", )");
  EXPECT_EQ(parse_hf_config(text, "x").model, parse_hf_config(sample("nemotron_h").dump(), "x").model);
  EXPECT_EQ(without_python_numbers(R"({"a": [-Infinity, NaN], "b": "Infinity\" NaN"})"),
            R"({"a": [{"__float__": "-Infinity"}, {"__float__": "NaN"}], "b": "Infinity\" NaN"})");
  EXPECT_EQ(without_python_numbers("\"\\"), "\"\\");
  nlohmann::json json = sample("llama");
  for (const char* key : {"rms_norm_eps", "hidden_size"}) {
    json = sample("llama"), json[key] = {{"__float__", "NaN"}};  // what parsing makes of the word
    EXPECT_NE(config_error(json).find(fmt::format("{} = NaN is no number", key)), std::string::npos)
        << config_error(json);
  }
}

// The library adds the loss only where the configuration asks for the routers' logits.
TEST(HfConfigTest, TheBalancingLossCountsWhereRoutersAreHeard) {
  for (const char* name : {"mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "granitemoe"}) {
    nlohmann::json json = sample(name);
    json["router_aux_loss_coef"] = 0.25;
    json.erase("output_router_logits");
    EXPECT_EQ(parse_hf_config(json.dump(), "x").model.aux_loss, 0) << name;
    json["output_router_logits"] = false;
    EXPECT_EQ(parse_hf_config(json.dump(), "x").model.aux_loss, 0) << name;
    json["output_router_logits"] = true;
    EXPECT_EQ(parse_hf_config(json.dump(), "x").model.aux_loss, 0.25f) << name;
  }
}

struct Mistake {
  const char* name;
  const char* model;
  nlohmann::json change;  // null removes a key
  std::vector<const char*> words;
};

class HfConfigMistakeTest : public testing::TestWithParam<Mistake> {};

TEST_P(HfConfigMistakeTest, IsNamed) {
  nlohmann::json json = sample(GetParam().model);
  for (const auto& item : GetParam().change.items()) {
    if (item.value().is_null())
      json.erase(item.key());
    else
      json[item.key()] = item.value();
  }
  const std::string message = config_error(json);
  EXPECT_FALSE(message.starts_with("a usage error")) << message;
  EXPECT_NE(message.find("folder/config.json"), std::string::npos) << message;
  for (const char* word : GetParam().words) EXPECT_NE(message.find(word), std::string::npos) << message;
}

using Json = nlohmann::json;
INSTANTIATE_TEST_SUITE_P(
    Mistakes, HfConfigMistakeTest,
    testing::Values(
        Mistake{"unknown_model", "llama", Json{{"model_type", "lama"}}, {"lama", "nearest is llama"}},
        Mistake{"no_width_of_a_hybrid", "granite4_h", Json{{"hidden_size", 0}}, {"mamba_d_head"}},
        Mistake{"no_heads_of_states", "granite4_h", Json{{"mamba_n_heads", 0}}, {"mamba_n_heads", "divide"}},
        Mistake{"heads_of_states_of_another_width", "granite4_h", Json{{"mamba_d_head", 9}}, {"mamba_d_head"}},
        Mistake{
            "limited_steps", "granite4_h", Json{{"time_step_limit", {0.0, 0.1}}}, {"time_step_limit", "infinity"}},
        Mistake{"biases_of_projectors", "falcon_h1", Json{{"projectors_bias", true}}, {"projectors_bias"}},
        Mistake{
            "four_factors", "falcon_h1", Json{{"ssm_multipliers", {1, 1, 1, 1}}}, {"ssm_multipliers", "5 numbers"}},
        Mistake{"a_factor_of_0", "falcon_h1", Json{{"mlp_multipliers", {0, 1}}}, {"mlp_gate_scale"}},
        Mistake{"inputs_times_a_number_beside_biases",
                "falcon_h1",
                Json{{"attention_bias", true}},
                {"attention_in_multiplier", "biases"}},
        Mistake{
            "layer_that_attends_beyond_the_last", "bamba", Json{{"attn_layer_indices", {5}}}, {"attn_layer_indices"}},
        Mistake{"no_keys_of_states", "olmo_hybrid", Json{{"linear_num_key_heads", 0}}, {"linear_num_key_heads"}},
        Mistake{"heads_of_published_keys", "mimo_v2_flash", Json{{"swa_num_key_value_heads", 3}}, {"swa_num_key"}},
        Mistake{"layers_of_published_keys",
                "mimo_v2_flash",
                Json{{"hybrid_layer_pattern", {0, 1, 1, 1, 1}}},
                {"hybrid_layer_pattern", "otherwise"}},
        Mistake{"another_share_that_turns", "bamba", Json{{"attn_rotary_emb", 6}}, {"attn_rotary_emb", "half"}},
        Mistake{"selection_of_another_layer",
                "glm_moe_dsa",
                Json{{"indexer_types", {"shared", "full", "full"}}},
                {"indexer_types", "must be full"}},
        Mistake{
            "another_kind_of_index", "glm_moe_dsa", Json{{"indexer_types", {"full", "half", "full"}}}, {"not half"}},
        Mistake{"index_pattern", "glm_moe_dsa", Json{{"index_topk_pattern", "FSF"}}, {"index_topk_pattern"}},
        Mistake{"one_stream", "hy_v4", Json{{"hc_mult", 1}}, {"hc_mult", "several"}},
        Mistake{"another_limit", "hy_v4", Json{{"swiglu_limit", 7}}, {"swiglu_limit"}},
        Mistake{"no_index", "deepseek_v32", Json{{"index_n_heads", 0}}, {"index_n_heads"}},
        Mistake{"biases_of_some", "internlm3", Json{{"bias", false}}, {"bias", "all projections"}},
        Mistake{"clipped_queries", "iquestcoder", Json{{"clip_qkv", 8.0}}, {"clip_qkv"}},
        Mistake{"narrow_heads", "helium", Json{{"head_dim", 2}}, {"head_dim"}},
        Mistake{"biases_of_experts", "hy_v3", Json{{"mlp_bias", true}}, {"mlp_bias"}},
        Mistake{"no_pattern", "cohere2_moe", Json{{"sliding_window_pattern", 0}}, {"sliding_window_pattern"}},
        Mistake{"no_kind_of_experts",
                "cohere2_moe",
                Json{{"shared_expert_combination_strategy", "max"}},
                {"shared_expert_combination_strategy", "average"}},
        Mistake{"angles_of_some_layers", "granite_swa", Json{{"layer_rope_theta", {0, 1}}}, {"layer_rope_theta"}},
        Mistake{"angles_that_differ",
                "granitemoe_swa",
                Json{{"layer_rope_theta", {50000, 5000, 5000, 5001, 50000}}},
                {"layer_rope_theta", "alike"}},
        Mistake{"a_kind_of_layer_of_lfm3",
                "lfm3",
                Json{{"layer_types", {"conv", "conv", "mamba", "conv", "conv"}}},
                {"layer_types", "not mamba"}},
        Mistake{"some_layers_of_lfm3", "lfm3", Json{{"layer_types", {"conv"}}}, {"layer_types", "every layer"}},
        Mistake{"local_layers_of_no_window", "lfm3", Json{{"sliding_window", 0}}, {"sliding_window"}},
        Mistake{"biases_of_convolutions", "lfm3", Json{{"conv_bias", true}}, {"conv_bias"}},
        Mistake{"angles_of_no_kind", "lfm3", Json{{"rope_parameters", {{"rope_theta", 1e4}}}}, {"rope_parameters"}},
        Mistake{"queries_without_latents", "axk1", Json{{"q_lora_rank", 0}}, {"q_lora_rank"}},
        Mistake{"another_activation_of_apertus", "apertus", Json{{"hidden_act", "silu"}}, {"hidden_act", "xielu"}},
        Mistake{"norms_behind_parts_of_apertus", "apertus", Json{{"post_norm", true}}, {"post_norm"}},
        Mistake{"sums_times_nothing", "minicpm3", Json{{"scale_depth", 0}}, {"scale_depth", "above 0"}},
        Mistake{"logits_over_nothing", "minicpm3", Json{{"dim_model_base", 0}}, {"dim_model_base", "above 0"}},
        Mistake{"a_shared_expert_of_another_width",
                "kolibri1",
                Json{{"shared_expert_intermediate_size", 15}},
                {"shared_expert_intermediate_size", "multiple"}},
        Mistake{"gates_with_biases", "afmoe", Json{{"attention_bias", true}}, {"attention_bias"}},
        Mistake{"unknown_layers",
                "granite4_h",
                Json{{"layer_types", {"mamba", "attention", "mlp", "mamba", "attention"}}},
                {"layer_types", "not mlp"}},
        Mistake{
            "layers_without_a_name", "granite4_h", Json{{"layer_types", {"mamba"}}}, {"layer_types", "every layer"}},
        Mistake{"unknown_letter",
                "nemotron_h",
                Json{{"hybrid_override_pattern", "M-?*"}},
                {"hybrid_override_pattern", "'?'"}},
        Mistake{"unknown_word",
                "nemotron_h",
                Json{{"layers_block_type", {"mamba", "rnn"}}},
                {"layers_block_type", "called rnn"}},
        Mistake{"no_layers", "nemotron_h", Json{{"hybrid_override_pattern", ""}}, {"layers"}},
        Mistake{"dense_behind_experts",
                "nemotron_h_moe",
                Json{{"hybrid_override_pattern", "ME-*"}},
                {"hybrid_override_pattern", "before those with experts"}},
        Mistake{"experts_of_another_width",
                "nemotron_h_moe",
                Json{{"moe_shared_expert_intermediate_size", 41}},
                {"moe_shared_expert_intermediate_size", "multiple"}},
        Mistake{"latent_rows_of_no_size", "nemotron_h_latent", Json{{"moe_latent_size", -1}}, {"moe_latent_size"}},
        Mistake{"more_layers_than_memory", "llama", Json{{"num_hidden_layers", 1000000}}, {"layers", "at most"}},
        Mistake{"more_experts_than_memory", "qwen3_moe", Json{{"num_experts", 1000000}}, {"experts", "at most"}},
        Mistake{"no_multiple", "lfm2", Json{{"block_multiple_of", 0}}, {"block_multiple_of"}},
        Mistake{"an_endless_width", "lfm2", Json{{"block_ffn_dim_multiplier", 1e300}}, {"block_ffn_dim_multiplier"}},
        Mistake{"layer_beyond_the_last", "lfm2", Json{{"full_attn_idxs", {7}}}, {"full_attn_idxs"}},
        Mistake{"a_layer_of_two_kinds",
                "kimi_linear",
                Json{{"linear_attn_config", {{"full_attn_layers", {2, 5}}, {"kda_layers", {1, 2, 3, 4}}}}},
                {"linear_attn_config", "in one of"}},
        Mistake{"a_layer_of_no_kind",
                "kimi_linear",
                Json{{"linear_attn_config", {{"full_attn_layers", {2, 5}}, {"kda_layers", {1, 3}}}}},
                {"linear_attn_config", "in one of"}},
        Mistake{"a_layer_before_the_first",
                "kimi_linear",
                Json{{"linear_attn_config", {{"full_attn_layers", {2, 5}}, {"kda_layers", {0, 3, 4}}}}},
                {"kda_layers"}},
        Mistake{"rates_with_a_bound",
                "kimi_linear",
                Json{{"linear_attn_config", {{"num_heads", 4}, {"head_dim", 6}, {"gate_lower_bound", -5.0}}}},
                {"gate_lower_bound"}},
        Mistake{
            "gated_latent_attention", "kimi_linear", Json{{"mla_use_output_gate", true}}, {"mla_use_output_gate"}},
        Mistake{"two_vocabularies",
                "gemma4_small",
                Json{{"vocab_size_per_layer_input", 12}},
                {"vocab_size_per_layer_input", "vocab_size"}},
        Mistake{
            "no_layer_with_keys", "gemma4_small", Json{{"num_kv_shared_layers", 6}}, {"num_kv_shared_layers = 6"}},
        Mistake{"texts_in_both_directions",
                "gemma4",
                Json{{"use_bidirectional_attention", "all"}},
                {"use_bidirectional_attention"}},
        Mistake{"angles_of_one_kind",
                "gemma4",
                Json{{"rope_parameters", {{"rope_type", "default"}}}},
                {"rope_parameters", "both kinds"}},
        Mistake{"unknown_class",
                "llama",
                Json{{"model_type", nullptr}, {"architectures", {"LamaForCausalLM"}}},
                {"LamaForCausalLM", "nearest is LlamaForCausalLM"}},
        Mistake{"no_model", "llama", Json{{"model_type", nullptr}}, {"model_type"}},
        Mistake{"no_width", "llama", Json{{"hidden_size", nullptr}}, {"hidden_size is missing"}},
        Mistake{"width_is_text", "llama", Json{{"hidden_size", "8"}}, {"hidden_size", "integer"}},
        Mistake{"negative_width", "llama", Json{{"hidden_size", -8}}, {"hidden_size", "integer from 0"}},
        Mistake{"huge_width", "llama", Json{{"hidden_size", int64_t(1) << 40}}, {"hidden_size"}},
        Mistake{"no_heads", "llama", Json{{"num_attention_heads", 0}}, {"num_attention_heads = 0", "at least 1"}},
        Mistake{"uneven_heads",
                "llama",
                Json{{"num_attention_heads", 3}, {"num_key_value_heads", 3}, {"head_dim", nullptr}},
                {"hidden_size = 8 is not divisible by num_attention_heads = 3", "write head_dim"}},
        Mistake{"zero_layers", "llama", Json{{"num_hidden_layers", 0}}, {"layers", "at least 1"}},
        Mistake{"odd_groups",
                "llama",
                Json{{"num_key_value_heads", 3}},
                {"num_attention_heads = 4 is not divisible by num_key_value_heads = 3"}},
        Mistake{"unknown_activation", "llama", Json{{"hidden_act", "tanhh"}}, {"hidden_act", "tanhh", "silu"}},
        Mistake{"eps_is_huge", "llama", Json{{"rms_norm_eps", 1e300}}, {"rms_norm_eps"}},
        Mistake{"tie_is_a_number", "llama", Json{{"tie_word_embeddings", 1}}, {"tie_word_embeddings"}},
        Mistake{"scaled_by_layer",
                "gpt2",
                Json{{"scale_attn_by_inverse_layer_idx", true}},
                {"scale_attn_by_inverse_layer_idx", "only false"}},
        Mistake{"too_many_chosen", "mixtral", Json{{"num_experts_per_tok", 9}}, {"num_experts_per_tok = 9"}},
        Mistake{"other_scores", "deepseek_v3", Json{{"scoring_func", "softmax"}}, {"scoring_func", "only sigmoid"}},
        Mistake{"other_limit", "gpt_oss", Json{{"swiglu_limit", 5.0}}, {"swiglu_limit", "only 7"}},
        Mistake{"codes_of_others",
                "llama",
                Json{{"quantization_config", {{"quant_method", "mxfp4"}}}},
                {"mxfp4", "llama"}},
        Mistake{"scaled_queries_alone",
                "ministral3",
                Json{{"rope_parameters", {{"rope_type", "default"}, {"llama_4_scaling_beta", 0.1}}}},
                {"rope_parameters.llama_4_scaling_beta = 0.1", "without rope_parameters.rope_type"}},
        Mistake{"shrunk_texts",
                "llama",
                Json{{"rope_parameters", {{"rope_type", "linear"}, {"factor", 0.5}}}},
                {"rope_parameters.factor = 0.5"}},
        Mistake{"shrunk_texts_of_older_files",
                "llama",
                Json{{"rope_scaling", {{"type", "linear"}, {"factor", 0.5}}}},
                {"rope_scaling.factor = 0.5"}},
        Mistake{"shrunk_texts_of_global_layers",
                "olmo3",
                Json{{"rope_parameters",
                      {{"full_attention", {{"rope_type", "linear"}, {"factor", 0.5}}},
                       {"sliding_attention", {{"rope_type", "default"}}}}}},
                {"rope_parameters.full_attention.factor = 0.5"}},
        Mistake{"endless_texts",
                "llama",
                Json{{"rope_parameters", {{"rope_type", "linear"}, {"factor", 1e300}}}},
                {"rope_parameters.factor = 1e+300 is out of range"}},
        Mistake{"unknown_angles",
                "llama",
                Json{{"rope_parameters", {{"rope_type", "round"}}}},
                {"rope_parameters.rope_type = \"round\"", "llama3"}},
        Mistake{"frequencies_the_wrong_way_round",
                "llama",
                Json{{"rope_parameters",
                      {{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 4}, {"high_freq_factor", 1}}}},
                {"rope_parameters.high_freq_factor = 1 must be at least rope_parameters.low_freq_factor = 4"}},
        Mistake{"too_many_factors",
                "llama",
                Json{{"rope_scaling",
                      {{"rope_type", "longrope"}, {"short_factor", {1, 1, 1, 1, 1}}, {"long_factor", {1}}}}},
                {"rope_scaling.short_factor and rope_scaling.long_factor must have"}},
        Mistake{"groups_of_experts", "mistral4", Json{{"n_group", 2}, {"topk_group", 2}}, {"n_group"}},
        Mistake{"shared_expert_of_another_width",
                "qwen2_moe",
                Json{{"shared_expert_intermediate_size", 15}},
                {"shared_expert_intermediate_size", "multiple"}},
        Mistake{
            "other_types_of_layers",
            "llama4",
            Json{{"layer_types", {"chunked_attention", "sliding_attention", "chunked_attention", "full_attention"}}},
            {"layer_types", "not sliding_attention"}},
        Mistake{"experts_in_no_layer", "llama4", Json{{"moe_layers", {1, 4}}}, {"moe_layers[1]", "from 0 to 3"}},
        Mistake{
            "no_step", "llama4", Json{{"interleave_moe_layer_step", 0}}, {"interleave_moe_layer_step", "at least 1"}},
        Mistake{
            "no_step_of_qwen", "qwen3_moe", Json{{"decoder_sparse_step", 0}}, {"decoder_sparse_step", "at least 1"}},
        Mistake{"layers_unnamed", "smollm3", Json{{"no_rope_layers", {1, 1}}}, {"no_rope_layers", "every layer"}},
        Mistake{"no_bits", "smollm3", Json{{"no_rope_layers", {1, 1, 1, 2}}}, {"integer from 0 to 1"}},
        Mistake{"local_layers_stretched",
                "olmo3",
                Json{{"rope_parameters",
                      {{"full_attention", {{"rope_type", "default"}}},
                       {"sliding_attention", {{"rope_type", "linear"}, {"factor", 2.0}}}}}},
                {"rope_parameters", "local layers"}}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace weft
