// A draft model changes how many steps an answer takes, and nothing else: greedy, sampled, constrained, on meshes,
// and where its cache is too small.
#include "weft/serve/draft.h"

#include "pretrained/model_on_ranks.h"
#include "serve/company.h"
#include "weft/comm/single/single.h"

namespace weft {
namespace {

ModelConfig config_of(int64_t hidden, int64_t vocab = kCompanyVocab) {
  ModelConfig m = small_config();
  m.hidden = hidden, m.head_dim = 0, m.vocab = vocab;
  complete(m);
  return m;
}
Fill initial(uint64_t seed) {
  return [seed](ForwardModel& m) { m.part().initialize(m.context(), seed); };
}

ModelConfig delta_config_of(int64_t hidden, int64_t head_dim = 0) {
  ModelConfig m = state_config();
  m.hidden = hidden, m.head_dim = head_dim;
  complete(m);
  return m;
}

struct DraftCase {
  const char* name;
  ModelConfig draft;  // with the seed 11 and the same shape, the model itself
  uint64_t seed = 11;
  MeshShape mesh = {};
  ContinuousOptions options = {.kv_blocks = 256};
  double least_accepted = 0;  // of the draft tokens
  ModelConfig model = config_of(32);
};
void PrintTo(const DraftCase& c, std::ostream* out) { *out << c.name; }
class DraftTest : public testing::TestWithParam<DraftCase> {};

EngineStats serve(const DraftCase& c, bool has_draft, const std::function<void(ContinuousEngine&)>& clients) {
  EngineStats stats;
  on_ranks(c.model, c.mesh, cpu_kernels(), DType::f32, initial(11), [&](ForwardModel& model) {
    const std::unique_ptr<Communicator> alone = make_single_communicator();
    const Mesh mesh(*alone, {});
    std::unique_ptr<ForwardModel> draft;
    ContinuousOptions options = c.options;
    if (has_draft && model.is_driver()) {
      draft = std::make_unique<ForwardModel>(model.context(), mesh, c.draft, DType::f32);
      initial(c.seed)(*draft);
      options.draft = draft.get();
    }
    if (has_draft) options.max_draft_tokens = 4;
    with_engine(model, options, [&](ContinuousEngine& engine) {
      clients(engine);
      stats = engine.stats();
    });
  });
  return stats;
}

TEST_P(DraftTest, AnswersAreTheSame) {
  const DraftCase& c = GetParam();
  std::vector<ServedAnswer> want, got;
  const EngineStats alone = serve(c, false, [&](Engine& engine) { want = answers_of(engine, company(24)); });
  const EngineStats helped = serve(c, true, [&](Engine& engine) { got = answers_of(engine, company(24)); });
  EXPECT_EQ(got, want);
  EXPECT_EQ(helped.kv_blocks_used, 0);
  EXPECT_GT(helped.drafted_tokens_total, 0);
  EXPECT_LE(helped.accepted_tokens_total, helped.drafted_tokens_total);
  EXPECT_GE(double(helped.accepted_tokens_total), c.least_accepted * double(helped.drafted_tokens_total));
  if (c.least_accepted > 0) EXPECT_LT(helped.steps_total, alone.steps_total);
}

INSTANTIATE_TEST_SUITE_P(
    Drafts, DraftTest,
    testing::Values(
        DraftCase{.name = "itself", .draft = config_of(32), .least_accepted = 1},
        DraftCase{.name = "itself_on_tp2",
                  .draft = config_of(32),
                  .mesh = {.tp = 2},
                  .least_accepted = 0.95},  // sums over ranks have other bits
        DraftCase{.name = "itself_on_pp2", .draft = config_of(32), .mesh = {.pp = 2}, .least_accepted = 1},
        DraftCase{.name = "another", .draft = config_of(16), .seed = 5},
        DraftCase{.name = "another_on_tp2", .draft = config_of(16), .seed = 5, .mesh = {.tp = 2}},
        DraftCase{.name = "of_fewer_tokens", .draft = config_of(16, 30), .seed = 5},
        DraftCase{.name = "of_more_tokens", .draft = config_of(16, 50), .seed = 5},
        DraftCase{
            .name = "itself_with_states", .draft = state_config(), .least_accepted = 1, .model = state_config()},
        DraftCase{
            .name = "itself_with_rates_by_row", .draft = kimi_config(), .least_accepted = 1, .model = kimi_config()},
        DraftCase{.name = "another_with_states", .draft = delta_config_of(16, 8), .seed = 5, .model = state_config()},
        DraftCase{.name = "with_states_of_one_without", .draft = delta_config_of(16, 8), .seed = 5},
        DraftCase{.name = "tight_with_states",
                  .draft = state_config(),
                  .options = {.kv_blocks = 18, .block_tokens = 4, .tokens_per_step = 20},
                  .least_accepted = 0.9,
                  .model = state_config()},
        DraftCase{.name = "tight",
                  .draft = config_of(32),
                  .options = {.kv_blocks = 18, .block_tokens = 4, .tokens_per_step = 20},
                  .least_accepted = 0.9}),
    [](const auto& test) { return test.param.name; });

// Allows only tokens that are one more than the one before, modulo `n`, and counts what it is told.
class NextOnly : public TokenConstraint {
 public:
  explicit NextOnly(int32_t n) : n_(n) {}
  void fill(std::span<uint32_t> allowed) override {
    std::ranges::fill(allowed, 0u);
    const int32_t next = past_.empty() ? 0 : (past_.back() + 1) % n_;
    allowed[size_t(next / 32)] = 1u << (next % 32);
  }
  void accept(int32_t token) override { past_.push_back(token); }
  void rewind(int64_t num_tokens) override { past_.resize(past_.size() - size_t(num_tokens)); }

 private:
  int32_t n_;
  std::vector<int32_t> past_;
};

TEST(ConstrainedDraftTest, DraftsWhatTheConstraintAllows) {
  const DraftCase c{.name = "another", .draft = config_of(16), .seed = 5};
  const EngineStats stats = serve(c, true, [](Engine& engine) {
    for (const uint64_t seed : {1, 2, 3}) {
      Request request = sampled({4, 5}, 20, seed);
      request.constraint = std::make_unique<NextOnly>(7);
      std::vector<int32_t> want;
      for (int32_t i = 0; i < 20; ++i) want.push_back(i % 7);
      EXPECT_EQ(ask(engine, std::move(request)).get().tokens, want);
    }
  });
  EXPECT_EQ(stats.accepted_tokens_total, stats.drafted_tokens_total);
  EXPECT_LT(stats.steps_total, 3 * 10);
}

}  // namespace
}  // namespace weft
