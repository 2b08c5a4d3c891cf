// Prefill and decode give what the training forward gives; sampling keeps its promises.
#include "weft/serve/generator.h"
#include "support/rank.h"
#include "weft/comm/single/single.h"

namespace weft {
namespace {

ModelConfig config_of(const std::string& family) {
  ModelConfig m = family_defaults(family);
  m.layers = 2, m.hidden = 32, m.heads = 4, m.ffn = 48, m.vocab = 40, m.context = 24;
  m.kv_heads = m.norm == NormKind::rms ? 2 : 4;
  if (family == "deepseek_v3")
    m.experts = 0, m.kv_rank = 20, m.query_rank = 28, m.head_dim = 12, m.rotary_dim = 8, m.value_dim = 16,
    m.kv_heads = 4;
  if (family == "deepseek_v32" || family == "hy_v4")
    m.kv_rank = 20, m.query_rank = 28, m.head_dim = 12, m.rotary_dim = 8, m.value_dim = 16, m.kv_heads = 4,
    m.index_heads = 6, m.index_head_dim = 8, m.index_topk = 7;
  m.init_std = 0.2f;
  complete(m);
  return m;
}

// The most likely next token by one forward pass over all tokens, without a cache.
int32_t greedy_by_forward(Context& context, Decoder& model, const std::vector<int32_t>& tokens) {
  std::vector<int32_t> positions(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) positions[i] = int32_t(i);
  const int32_t size = int32_t(tokens.size());
  const AttentionSpan whole{.q_end = size, .k_end = size};
  const TokenRun run{.end = size};
  const Pass pass{.ids = tokens.data(),
                  .num_tokens = int64_t(tokens.size()),
                  .attention = {.positions = positions.data(), .spans = &whole, .num_spans = 1},
                  .runs = {&run, 1}};
  Brackets none;
  const Tensor logits = model.logits(model.hidden(context, pass, none)).value;
  const float* last = logits.data<float>() + (logits.rows() - 1) * logits.cols();
  return int32_t(std::max_element(last, last + logits.cols()) - last);
}

class GeneratorTest : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, GeneratorTest,
                         testing::Values("gpt2", "llama", "deepseek_v3", "deepseek_v32", "hy_v4"));

TEST_P(GeneratorTest, DecodeEqualsTheFullForward) {
  TestRank rank(cpu_kernels(), 2);
  const auto alone = make_single_communicator();
  const Mesh mesh(*alone, {});
  ForwardModel model(rank.context, mesh, config_of(GetParam()), DType::f32);
  model.part().initialize(rank.context, 11);
  std::vector<int32_t> tokens{5, 7, 11, 2, 30};
  std::vector<int32_t> got;
  Generator generator(model);
  generator.generate(tokens, {.max_tokens = 15, .sampling = {.temperature = 0}, .stop_tokens = {}},
                     [&](int32_t token) { got.push_back(token); });
  std::vector<int32_t> want;
  for (int i = 0; i < 15; ++i) {
    want.push_back(greedy_by_forward(rank.context, model.part(), tokens));
    tokens.push_back(want.back());
  }
  EXPECT_EQ(got, want);
}

TEST_P(GeneratorTest, GoesOnPastTheContext) {
  TestRank rank(cpu_kernels());
  const auto alone = make_single_communicator();
  const Mesh mesh(*alone, {});
  ForwardModel model(rank.context, mesh, config_of(GetParam()), DType::f32);
  model.part().initialize(rank.context, 11);
  Generator generator(model);
  int64_t made = 0;
  const std::vector<int32_t> prompt{1, 2, 3};
  EXPECT_EQ(generator.generate(prompt, {.max_tokens = 100, .sampling = {.temperature = 1}, .stop_tokens = {}},
                               [&](int32_t) { ++made; }),
            100);
  EXPECT_EQ(made, 100);
  const std::vector<int32_t> too_long(24, 1);
  EXPECT_THROW(generator.generate(too_long, {}, [](int32_t) {}), UsageError);
  EXPECT_THROW(generator.generate({}, {}, [](int32_t) {}), UsageError);
}

// Of a penalty that nothing outweighs no token comes twice, while there are others.
TEST_P(GeneratorTest, PenaltiesReadWhatCameBefore) {
  TestRank rank(cpu_kernels());
  const auto alone = make_single_communicator();
  const Mesh mesh(*alone, {});
  ForwardModel model(rank.context, mesh, config_of(GetParam()), DType::f32);
  model.part().initialize(rank.context, 11);
  std::vector<int32_t> tokens{5, 7, 11};
  Generator(model).generate(tokens, {.max_tokens = 20, .sampling = {.temperature = 0, .repetition_penalty = 100}},
                            [&](int32_t token) { tokens.push_back(token); });
  std::ranges::sort(tokens);
  const auto twice = std::ranges::adjacent_find(tokens);
  EXPECT_EQ(tokens.size(), 23u);
  EXPECT_TRUE(twice == tokens.end()) << *twice;
}

TEST(SamplerTest, FiltersLeaveOnlyWhatTheyPromise) {
  const std::vector<float> logits{0, 3, 1, 2.9f, -5};
  const auto seen = [&](SamplingOptions options) {
    std::vector<bool> tokens(logits.size(), false);
    for (uint64_t i = 0; i < 2000; ++i) tokens[size_t(Sampler(options).choose(logits, i))] = true;
    return tokens;
  };
  EXPECT_EQ(seen({.temperature = 0}), (std::vector<bool>{false, true, false, false, false}));
  EXPECT_EQ(seen({.temperature = 1, .top_k = 2}), (std::vector<bool>{false, true, false, true, false}));
  EXPECT_EQ(seen({.temperature = 1, .top_p = 0.6}), (std::vector<bool>{false, true, false, true, false}));
  EXPECT_EQ(seen({.temperature = 1, .min_p = 0.1}), (std::vector<bool>{false, true, true, true, false}));
  EXPECT_EQ(seen({.temperature = 3}), (std::vector<bool>{true, true, true, true, true}));
}

TEST(SamplerTest, IsAFunctionOfSeedAndPosition) {
  const std::vector<float> logits(50, 0.0f);
  Sampler a({.temperature = 1, .seed = 4}), b({.temperature = 1, .seed = 4});
  for (uint64_t i = 0; i < 20; ++i) EXPECT_EQ(a.choose(logits, i), b.choose(logits, i));
}

TEST(SamplerTest, RefusesImpossibleOptions) {
  EXPECT_THROW(check_sampling({.temperature = -1}), UsageError);
  EXPECT_THROW(check_sampling({.top_k = -1}), UsageError);
  EXPECT_THROW(check_sampling({.top_p = 0}), UsageError);
  EXPECT_THROW(check_sampling({.min_p = 2}), UsageError);
}

}  // namespace
}  // namespace weft
