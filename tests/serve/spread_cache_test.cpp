// Context parallelism in serving: a cache that is spread over ranks gives the bits that the mesh without cp gives,
// whatever is found, preempted or longer than any rank's share.
#include "serve/company.h"
#include "serve/engine_on_mesh.h"

namespace weft {
namespace {

ModelConfig changed(const std::string& family, const std::function<void(ModelConfig&)>& change) {
  ModelConfig m = small_config(family);
  change(m);
  complete(m);
  return m;
}

MeshShape without_cp(MeshShape mesh) {
  mesh.cp = 1;
  return mesh;
}

struct Spread {
  const char* name;
  ModelConfig config;
  MeshShape mesh;
  int64_t block_tokens = 4;
  int64_t max_draft_tokens = 0;
};
void PrintTo(const Spread& c, std::ostream* out) { *out << c.name; }
class SpreadCacheTest : public testing::TestWithParam<Spread> {};

TEST_P(SpreadCacheTest, GivesTheBitsOfTheMeshWithoutIt) {
  const Spread& c = GetParam();
  constexpr size_t kRequests = 24;
  std::vector<ServedAnswer> want;
  with_engine_on(c.config, without_cp(c.mesh), {.kv_blocks = 256},
                 [&](ContinuousEngine& engine) { want = answers_of(engine, company(kRequests)); });
  const int64_t tight = 72 / c.block_tokens;
  for (const ContinuousOptions& options :
       {ContinuousOptions{.kv_blocks = 1024, .block_tokens = c.block_tokens, .max_draft_tokens = c.max_draft_tokens},
        ContinuousOptions{.kv_blocks = tight, .block_tokens = c.block_tokens, .tokens_per_step = 9}}) {
    with_engine_on(c.config, c.mesh, options, [&](ContinuousEngine& engine) {
      EXPECT_EQ(answers_of(engine, company(kRequests)), want);
      const EngineStats stats = engine.stats();
      EXPECT_GT(stats.cached_tokens_total, 0);
      EXPECT_EQ(stats.preemptions_total > 0, options.kv_blocks == tight);
      EXPECT_EQ(stats.kv_blocks_used, 0);
      EXPECT_EQ(stats.kv_block_tokens, c.block_tokens);
    });
  }
}

// Of which one rank holds a half or a quarter.
TEST_P(SpreadCacheTest, ServesATextLongerThanOneRanksShare) {
  const Spread& c = GetParam();
  std::vector<int32_t> prompt;
  for (int32_t t = 0; t < 50; ++t) prompt.push_back(t * 7 % int32_t(kCompanyVocab));
  const auto tokens = [&](const MeshShape& mesh, int64_t tokens_per_step) {
    Heard heard;
    with_engine_on(c.config, mesh,
                   {.kv_blocks = kCompanyContext / c.block_tokens,
                    .block_tokens = c.block_tokens,
                    .max_running = 1,
                    .tokens_per_step = tokens_per_step},
                   [&](ContinuousEngine& engine) {
                     EXPECT_EQ(engine.limits().context, kCompanyContext);
                     heard = ask(engine, greedy(prompt, 14)).get();
                   });
    EXPECT_EQ(heard.finish.reason, FinishReason::length) << heard.finish.error;
    EXPECT_EQ(heard.tokens.size(), 14u);
    return heard.tokens;
  };
  const std::vector<int32_t> want = tokens(without_cp(c.mesh), 64);
  for (const int64_t tokens_per_step : {7, 64}) EXPECT_EQ(tokens(c.mesh, tokens_per_step), want);
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, SpreadCacheTest,
    testing::Values(Spread{"cp2", small_config(), {.cp = 2}}, Spread{"cp4", small_config(), {.cp = 4}},
                    Spread{"cp4_long_blocks", small_config(), {.cp = 4}, 8},
                    Spread{"cp2_drafts", small_config(), {.cp = 2}, 4, 3},
                    Spread{"cp2tp2", small_config(), {.cp = 2, .tp = 2}},
                    Spread{"pp2cp2", small_config(), {.pp = 2, .cp = 2}},
                    Spread{"gpt2_cp2", small_config("gpt2"), {.cp = 2}},
                    Spread{"window_cp2", changed("llama", [](ModelConfig& m) { m.window = 6; }), {.cp = 2}},
                    Spread{"chunks_cp2", chunked_config(), {.cp = 2}},
                    Spread{"chunks_cp4_long_blocks", chunked_config(), {.cp = 4}, 8},
                    Spread{"latent_cp2",
                           changed("llama",
                                   [](ModelConfig& m) {
                                     m.kv_heads = 4, m.kv_rank = 20, m.head_dim = 12, m.rotary_dim = 8,
                                     m.value_dim = 16;
                                   }),
                           {.cp = 2}},
                    Spread{"experts_cp2",
                           changed("llama", [](ModelConfig& m) { m.experts = 4, m.experts_per_token = 2; }),
                           {.cp = 2}}),
    [](const auto& test) { return test.param.name; });

TEST(SpreadCacheRefusalTest, SaysWhatDoesNotFit) {
  const auto refusal = [](const ModelConfig& config, const MeshShape& mesh, int64_t block_tokens) -> std::string {
    try {
      with_engine_on(config, mesh, {.kv_blocks = 8, .block_tokens = block_tokens}, [](ContinuousEngine&) {});
    } catch (const std::exception& e) {
      return e.what();
    }
    return {};
  };
  EXPECT_NE(refusal(small_config(), {.cp = 2}, 5).find("--block-tokens 5"), std::string::npos);
  EXPECT_NE(refusal(sparse_config(), {.cp = 2}, 4).find("--mesh cp=2: rows select their keys"), std::string::npos);
  EXPECT_NE(refusal(chunked_config(), {}, 3).find("--block-tokens 3: some layers attend in chunks of 16"),
            std::string::npos);
  const ModelConfig experts = changed("llama", [](ModelConfig& m) { m.experts = 4, m.experts_per_token = 2; });
  EXPECT_NE(refusal(experts, {.cp = 2, .ep = 2}, 4).find("--mesh cp=2,ep=2"), std::string::npos);
}

}  // namespace
}  // namespace weft
