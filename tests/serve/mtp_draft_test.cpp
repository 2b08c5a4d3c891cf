// A model's own part that predicts a token further on: what it gives is what Hugging Face's layers and norms give
// from the same files, on meshes too; it changes how many steps answers take and nothing else.
#include "weft/serve/mtp_draft.h"

#include <numeric>

#include "pretrained/golden_models.h"
#include "pretrained/model_on_ranks.h"
#include "serve/company.h"
#include "weft/pretrained/export.h"
#include "weft/pretrained/export_gguf.h"
#include "weft/pretrained/gguf_family.h"

namespace weft {
namespace {

struct MtpLogits {
  Logits model, next, further;
};

// Of the model over all ids; of its part behind every row but the last; of the part behind its own rows.
MtpLogits mtp_logits_on(const ModelSource& source, const MeshShape& mesh, const std::vector<int32_t>& ids,
                        const Kernels& kernels, DType dtype) {
  MtpLogits result;
  on_ranks(
      source.config(), mesh, kernels, dtype, [&](ForwardModel& m) { m.load(source); },
      [&](ForwardModel& model) {
        constexpr int64_t kBlock = 4;
        StepRunner runner(model, 16, kBlock);
        if (!runner.is_driver()) return runner.follow();
        std::vector<int32_t> blocks(ids.size()), rows(ids.size());
        std::iota(blocks.rbegin(), blocks.rend(), 0), std::iota(rows.begin(), rows.end(), 0);
        blocks.erase(blocks.begin(), blocks.end() - 16);
        const auto read = [&](const Tensor& logits, Logits& to) {
          for (int64_t t = 0; t < logits.dim(0); ++t) {
            to.emplace_back();
            for (int64_t v = 0; v < logits.dim(1); ++v)
              to.back().push_back(TestRank::get(logits, t * logits.dim(1) + v));
          }
        };
        const auto rest = [&](size_t from) { return std::span(ids).subspan(from); };
        const TokenRun run{.begin = 0, .end = int32_t(ids.size()), .from = -1, .to = 0};
        runner.clear();
        runner.add(ids, {}, 0, blocks, int64_t(ids.size()), 0, {&run, 1});
        read(runner.run(), result.model);
        for (const size_t behind : {1, 2}) {
          runner.clear();
          runner.add(rest(behind), {}, 0, blocks, int64_t(rest(behind).size()));
          read(runner.predict(std::span(rows).first(rest(behind).size())),
               behind == 1 ? result.next : result.further);
        }
        runner.stop();
      });
  return result;
}

class GoldenMtpTest : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, GoldenMtpTest,
                         testing::Values("deepseek_v3", "glm4_moe", "glm4_moe_lite", "qwen3_5", "qwen3_5_moe",
                                         "qwen3_next"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(GoldenMtpTest, GivesTheirLogits) {
  const GoldenModel golden(GetParam(), "golden_mtp");
  const auto source = open_model(golden.path(), Checkpoint::Check::all_bytes, WithMtp::yes);
  ASSERT_EQ(source->config().mtp_layers, 1);
  int64_t sum = 0;
  for (const ParamNames& names : source->names())
    if (!names.param.ends_with("router.bias")) sum += names.shape.numel();
  EXPECT_EQ(source->config().num_params(), sum);
  const auto is_near = [&](const MeshShape& mesh, const Kernels& kernels, DType dtype, double bound) {
    const MtpLogits got = mtp_logits_on(*source, mesh, golden.ids(), kernels, dtype);
    EXPECT_LT(worst_difference(got.model, golden.logits()), bound);
    EXPECT_LT(worst_difference(got.next, golden.rows("next_logits")), bound) << name_of_mesh(mesh);
    EXPECT_LT(worst_difference(got.further, golden.rows("further_logits")), 2 * bound) << name_of_mesh(mesh);
  };
  is_near({}, reference_kernels(), DType::f64, kExact);
  const double single = single_bound(source->config());
  is_near({}, cpu_kernels(), DType::f32, single);
  for (const MeshShape& mesh : {MeshShape{.tp = 2}, MeshShape{.pp = 2}, MeshShape{.pp = 2, .tp = 2}})
    is_near(mesh, cpu_kernels(), DType::f32, single);
  if (source->config().experts > 0) is_near({.shard = 2, .ep = 2}, cpu_kernels(), DType::f32, single);
}

// Who does not ask for the part does not have it.
TEST_P(GoldenMtpTest, IsLeftOut) {
  const GoldenModel golden(GetParam(), "golden_mtp");
  const auto source = open_model(golden.path());
  EXPECT_EQ(source->config().mtp_layers, 0);
  const Fill fill = [&](ForwardModel& m) { m.load(*source); };
  EXPECT_LT(worst_difference(logits_on(source->config(), {}, fill, golden.ids()), golden.logits()),
            single_bound(source->config()));
}

TEST_P(GoldenMtpTest, IsConvertedWithItsModel) {
  const GoldenModel golden(GetParam(), "golden_mtp");
  const auto source = open_model(golden.path(), Checkpoint::Check::all_bytes, WithMtp::yes);
  const TemporaryFolder folder;
  export_gguf(*source, folder / "m.gguf", {});
  const auto file = open_model(folder / "m.gguf", Checkpoint::Check::all_bytes, WithMtp::yes);
  export_hugging_face(*file, folder / "hf");
  const auto again = open_model(folder / "hf", Checkpoint::Check::all_bytes, WithMtp::yes);
  export_checkpoint(*again, folder / "checkpoints");
  const auto saved = open_model(folder / "checkpoints", Checkpoint::Check::all_bytes, WithMtp::yes);
  const double single = single_bound(source->config());
  for (const ModelSource* other : {file.get(), again.get(), saved.get()}) {
    ASSERT_EQ(other->config().mtp_layers, 1) << other->path();
    const MtpLogits got = mtp_logits_on(*other, {}, golden.ids(), cpu_kernels(), DType::f32);
    EXPECT_LT(worst_difference(got.model, golden.logits()), single) << other->path();
    EXPECT_LT(worst_difference(got.next, golden.rows("next_logits")), single) << other->path();
  }
  for (const char* name : {"m.gguf", "hf", "checkpoints"})
    EXPECT_EQ(open_model(folder / name)->config().mtp_layers, 0) << name;
}

// A family that has no names for it, or none for what it is made of: such a model is written without its part.
TEST(MtpExportTest, IsNoPartOfOtherFamilies) {
  ModelConfig c = small_config();
  EXPECT_NO_THROW(write_hf_config(c));
  EXPECT_NO_THROW(describe(c));
  c.mtp_layers = 1;
  EXPECT_THROW(write_hf_config(c), Error);
  EXPECT_THROW(describe(c), Error);
}

// Initial values, of which `change` makes others.
Fill changed_values(void (*change)(const Param& param)) {
  return [change](ForwardModel& m) {
    m.part().initialize(m.context(), 11);
    if (change)
      for (const Param* p : m.part().params()) change(*p);
  };
}

// What a layer adds to the residual stream is nothing, so that what comes next is a matter of the last token.
void forget_others(const Param& p) {
  float* const x = p.value.data<float>();
  if (p.name.ends_with("output.weight") || p.name.ends_with("down.weight")) std::fill_n(x, p.value.numel(), 0.0f);
  if (!p.name.ends_with("mtp.projection.weight")) return;
  for (int64_t i = 0; i < p.shape[0]; ++i)
    for (int64_t j = 0; j < p.shape[1]; ++j) x[i * p.shape[1] + j] = i == j ? 1.0f : 0.0f;
}
// Likewise, and the part sees only what the model left: it says the token that the model said before.
void repeat(const Param& p) {
  forget_others(p);
  if (!p.name.ends_with("mtp.projection.weight")) return;
  float* const x = p.value.data<float>();
  for (int64_t i = 0; i < p.shape[0]; ++i) std::swap(x[i * p.shape[1] + i], x[i * p.shape[1] + i + p.shape[0]]);
}

ModelConfig with_mtp_of(ModelConfig c) {
  c.mtp_layers = 1;
  complete(c);
  return c;
}

EngineStats serve_with_mtp(const ModelConfig& config, const MeshShape& mesh, ContinuousOptions options,
                           int64_t max_draft_tokens, void (*change)(const Param&),
                           const std::function<void(ContinuousEngine&)>& clients) {
  EngineStats stats;
  options.max_draft_tokens = max_draft_tokens;
  on_ranks(config, mesh, cpu_kernels(), DType::f32, changed_values(change), [&](ForwardModel& model) {
    with_engine(model, options, [&](ContinuousEngine& engine) {
      clients(engine);
      stats = engine.stats();
    });
  });
  return stats;
}

struct MtpCase {
  const char* name;
  ModelConfig model = small_config();
  MeshShape mesh = {};
  ContinuousOptions options = {.kv_blocks = 256};
  void (*change)(const Param&) = nullptr;
  double least_accepted = 0;
};
void PrintTo(const MtpCase& c, std::ostream* out) { *out << c.name; }
class MtpDraftTest : public testing::TestWithParam<MtpCase> {};

TEST_P(MtpDraftTest, AnswersAreTheSame) {
  const MtpCase& c = GetParam();
  std::vector<ServedAnswer> want, got;
  const EngineStats alone = serve_with_mtp(c.model, c.mesh, c.options, 0, c.change,
                                           [&](Engine& engine) { want = answers_of(engine, company(24)); });
  const EngineStats helped = serve_with_mtp(with_mtp_of(c.model), c.mesh, c.options, 3, c.change,
                                            [&](Engine& engine) { got = answers_of(engine, company(24)); });
  EXPECT_EQ(got, want);
  EXPECT_EQ(helped.kv_blocks_used, 0);
  EXPECT_GT(helped.drafted_tokens_total, 0);
  EXPECT_GE(double(helped.accepted_tokens_total), c.least_accepted * double(helped.drafted_tokens_total));
  if (c.least_accepted > 0) EXPECT_LT(helped.steps_total, alone.steps_total);
}

const ContinuousOptions kTight{.kv_blocks = 18, .block_tokens = 4, .tokens_per_step = 20};
INSTANTIATE_TEST_SUITE_P(
    Models, MtpDraftTest,
    testing::Values(
        MtpCase{.name = "llama"}, MtpCase{.name = "llama_on_tp2", .mesh = {.tp = 2}},
        MtpCase{.name = "llama_on_pp2", .mesh = {.pp = 2}}, MtpCase{.name = "experts", .model = expert_config()},
        MtpCase{.name = "experts_on_ep2", .model = expert_config(), .mesh = {.shard = 2, .ep = 2}},
        MtpCase{.name = "states", .model = state_config()},
        MtpCase{.name = "states_tight", .model = state_config(), .options = kTight},
        MtpCase{.name = "tight", .options = kTight},
        MtpCase{.name = "last_token", .change = forget_others, .least_accepted = 0.99},
        MtpCase{.name = "last_token_on_pp2_tp2",
                .mesh = {.pp = 2, .tp = 2},
                .change = forget_others,
                .least_accepted = 0.99},
        MtpCase{.name = "last_token_with_states",
                .model = state_config(),
                .change = forget_others,
                .least_accepted = 0.99},
        MtpCase{.name = "last_token_tight", .options = kTight, .change = forget_others, .least_accepted = 0.99}),
    [](const auto& test) { return test.param.name; });

// Each step takes a token and three draft tokens, all of which are accepted, but for the ends.
TEST(MtpDraftStepsTest, GoOnFromWhatTheModelLeft) {
  ModelConfig c = small_config();
  c.tie_embeddings = true;
  const EngineStats stats = serve_with_mtp(with_mtp_of(c), {}, {.kv_blocks = 64}, 3, repeat, [](Engine& engine) {
    for (const int32_t token : {3, 17, 29}) {
      const Heard heard = ask(engine, greedy({1, 2, token}, 33)).get();
      EXPECT_EQ(heard.tokens, std::vector<int32_t>(33, token));
    }
  });
  EXPECT_EQ(stats.accepted_tokens_total, stats.drafted_tokens_total);
  EXPECT_EQ(stats.steps_total, 3 * (1 + 32 / 4));
}

TEST(MtpDraftMeshTest, RefusesRowsOnSeveralRanks) {
  EXPECT_THROW(serve_with_mtp(with_mtp_of(small_config()), {.cp = 2}, {.kv_blocks = 64}, 3, nullptr, [](Engine&) {}),
               UsageError);
}

}  // namespace
}  // namespace weft
