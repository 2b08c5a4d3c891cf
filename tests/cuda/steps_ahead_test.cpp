// Engines that compute a step before they have read the tokens of the one before, on devices, whose emulator is as
// late as it may be: all requests get the answers of an engine that reads each step at once, and of a CPU.
#include "cuda/emulation.h"
#include "serve/company.h"
#include "support/rank.h"
#include "weft/comm/threads/run_ranks.h"
#include "weft/pretrained/random_model.h"

namespace weft {
namespace {

struct Served {
  std::vector<Heard> answers;
  EngineStats stats;
};

void expect_near(const std::vector<Heard::Scored>& got, const std::vector<Heard::Scored>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i].log_prob, want[i].log_prob, 1e-3);
    EXPECT_EQ(got[i].rank, want[i].rank);
    EXPECT_EQ(got[i].top, want[i].top);
  }
}

void expect_same(const std::vector<Heard>& got, const std::vector<Heard>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE(fmt::format("request {}", i));
    EXPECT_EQ(got[i].tokens, want[i].tokens);
    EXPECT_EQ(got[i].finish.reason, want[i].finish.reason) << got[i].finish.error;
    EXPECT_EQ(got[i].finish.stop_token, want[i].finish.stop_token);
    EXPECT_EQ(got[i].finish.usage.completion_tokens, want[i].finish.usage.completion_tokens);
    expect_near(got[i].scores, want[i].scores);
    expect_near(got[i].prompt_scores, want[i].prompt_scores);
    ASSERT_EQ(got[i].embedding.size(), want[i].embedding.size());
    for (size_t j = 0; j < want[i].embedding.size(); ++j)
      EXPECT_NEAR(got[i].embedding[j], want[i].embedding[j], 1e-3);
  }
}

// All at once.
Served serve(Device device, const OnMesh& on, const ContinuousOptions& options,
             const std::function<std::vector<Request>()>& requests) {
  Served served;
  const auto source = random_model("random:small", on.config);
  run_ranks(on.mesh.size(), [&](Communicator& world) {
    TestRank rank(kernels_of(device), 1, device);
    world.use_stream(rank.stream);
    const Mesh mesh(world, on.mesh);
    ForwardModel model(rank.context, mesh, *source, on.dtype, {});
    with_engine(model, options, [&](ContinuousEngine& engine) {
      std::vector<std::future<Heard>> open;
      for (Request& r : requests()) open.push_back(ask(engine, std::move(r)));
      for (auto& heard : open) served.answers.push_back(heard.get());
      engine.drain(std::chrono::seconds(10));
      served.stats = engine.stats();
    });
  });
  return served;
}

Request with(Request request, const std::function<void(Request&)>& change) {
  change(request);
  return request;
}

std::vector<int32_t> prompt_of(int32_t seed, int32_t length) {
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < length; ++i) prompt.push_back((seed * 7 + i * i) % kCompanyVocab);
  return prompt;
}

// What a device chooses by itself.
std::vector<Request> chosen_there() {
  std::vector<Request> all;
  for (int32_t i = 0; i < 2; ++i) {
    all.push_back(greedy(prompt_of(i, 3 + 5 * i), 14 - i));
    all.push_back(with(greedy(prompt_of(i, 4), 16), [&](Request& r) { r.stop_tokens = {5 + i, 17, 23, 31}; }));
    all.push_back(sampled(prompt_of(10 + i, 6), 12, uint64_t(i)));
    all.push_back(with(sampled(prompt_of(20 + i, 2 + i), 15, 7), [](Request& r) {
      r.sampling.top_p = 0.9, r.sampling.top_k = 12;
      r.stop_tokens = {3, 4}, r.min_tokens = 5;
    }));
    all.push_back(with(sampled(prompt_of(30 + i, 9), 11, 9), [](Request& r) {
      r.sampling.repetition_penalty = 1.3, r.sampling.frequency_penalty = 0.5;
      r.bad_words = {{1}, {2, 3}};
    }));
    all.push_back(with(greedy(prompt_of(i, 11), 9), [](Request& r) { r.logprobs = 0; }));
    all.push_back(with(greedy(prompt_of(i, 9), 9), [&](Request& r) { r.logprobs = 1, r.prompt_logprobs = i; }));
  }
  all.push_back(greedy(prompt_of(3, 4), 1));
  return all;
}

// And beside it what the host has to see.
std::vector<Request> of_all_kinds() {
  std::vector<Request> all = chosen_there();
  all.push_back(with(greedy(prompt_of(4, 6), 12), [](Request& r) { r.logprobs = 2; }));
  all.push_back(with(greedy(prompt_of(5, 13), 8), [](Request& r) { r.prompt_logprobs = 3; }));
  all.push_back(with(greedy(prompt_of(5, 7), 0), [](Request& r) { r.prompt_logprobs = 0; }));
  all.push_back(with(sampled(prompt_of(6, 5), 15, 3), [](Request& r) { r.sampling.typical_p = 0.8; }));
  all.push_back(embedding_of(prompt_of(7, 8)));
  return all;
}

const OnMesh kMeshes[] = {{"llama", small_config(), {}},
                          {"gpt2_tp2", small_config("gpt2"), {.tp = 2}},
                          {"llama_pp2", small_config(), {.pp = 2}},
                          {"llama_cp2", small_config(), {.cp = 2}},
                          {"experts_ep2", expert_config(), {.shard = 2, .ep = 2}},
                          {"delta", state_config(), {}},
                          {"selective_tp2", selective_config(), {.tp = 2}},
                          {"inputs_of_layers", gemma4_config(true), {}}};

class StepsAheadTest : public testing::TestWithParam<OnMesh> {
 protected:
  ContinuousOptions options_{.kv_blocks = 60, .block_tokens = 4, .max_running = 6, .tokens_per_step = 24};
};
INSTANTIATE_TEST_SUITE_P(Meshes, StepsAheadTest, testing::ValuesIn(kMeshes),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST_P(StepsAheadTest, AnswersAreThoseOfACpu) {
  OnMesh one = GetParam();
  one.mesh = {};
  for (const auto& requests : {chosen_there, of_all_kinds}) {
    const Served here = serve(Device::cpu, one, options_, requests);
    const Served ahead = serve(Device::cuda, GetParam(), options_, requests);
    expect_same(ahead.answers, here.answers);
    EXPECT_EQ(here.stats.steps_ahead_total, 0);
    // Of models with states, a token that may be lost is not left behind.
    if (GetParam().config.has_states()) continue;
    EXPECT_GT(ahead.stats.steps_ahead_total, requests == +chosen_there ? ahead.stats.steps_total * 3 / 4 : 3);
  }
}

TEST(StepsAtOnceTest, AreThoseOfWhoAsksForThem) {
  const ContinuousOptions options{.kv_blocks = 60, .block_tokens = 4, .goes_ahead = false};
  EXPECT_EQ(serve(Device::cuda, kMeshes[0], options, chosen_there).stats.steps_ahead_total, 0);
}

// The host waits for the tokens of the step before, and for nothing else: neither in a step nor between two.
TEST(StepsAheadWaitsTest, OnceAStepAndForNothingElse) {
  if (!kIsEmulated) GTEST_SKIP() << "a card does not count";
  const auto long_answers = [] {
    std::vector<Request> all;
    for (int32_t i = 0; i < 2; ++i) {
      all.push_back(greedy(prompt_of(i, 4), 30));
      all.push_back(with(sampled(prompt_of(20 + i, 4), 30, 7), [](Request& r) { r.sampling.top_p = 0.9; }));
    }
    return all;
  };
  for (const OnMesh& on : {kMeshes[0], OnMesh{"experts", expert_config(), {}, DType::bf16}}) {
    const int64_t before = num_waits();
    const EngineStats stats =
        serve(Device::cuda, on, {.kv_blocks = 120, .block_tokens = 4, .max_running = 8}, long_answers).stats;
    EXPECT_GT(stats.steps_ahead_total, 25);
    EXPECT_LT(num_waits() - before, stats.steps_total + 10);  // with those that load the model
  }
}

// Where blocks are few, who runs is sent away while its last token is not known.
TEST_P(StepsAheadTest, ThoseWhoAreSentAwayComeBack) {
  options_.kv_blocks = 18;
  OnMesh one = GetParam();
  one.mesh = {};
  const Served here = serve(Device::cpu, one, options_, chosen_there);
  const Served ahead = serve(Device::cuda, GetParam(), options_, chosen_there);
  expect_same(ahead.answers, here.answers);
  EXPECT_GT(ahead.stats.preemptions_total, 0);
}

// Of flat logits too many tokens could be chosen for a device to do it: those rows are computed again.
TEST(StepsAheadOfFlatLogitsTest, LostTokensAreComputedAgain) {
  OnMesh on{"flat", small_config(), {}};
  on.config.vocab = 1200, on.config.init_std = 0.05f;
  const auto requests = [] {
    std::vector<Request> all;
    for (int32_t i = 0; i < 5; ++i) {
      all.push_back(greedy(prompt_of(i, 5), 40));
      if (i % 2 == 0)
        all.push_back(
            with(sampled(prompt_of(i, 4 + i), 38, uint64_t(i)), [](Request& r) { r.sampling.top_p = 0.95; }));
    }
    return all;
  };
  const ContinuousOptions options{.kv_blocks = 90, .block_tokens = 4, .max_running = 8, .tokens_per_step = 32};
  const Served here = serve(Device::cpu, on, options, requests), ahead = serve(Device::cuda, on, options, requests);
  expect_same(ahead.answers, here.answers);
  EXPECT_GT(ahead.stats.steps_ahead_total, 3);
  EXPECT_GT(ahead.stats.steps_total, ahead.stats.steps_ahead_total + 10);  // behind a loss, many are read at once
}

// A client that goes away is told so, and the others go on as if alone.
TEST(StepsAheadAndCancellationTest, OthersGoOn) {
  const OnMesh on{"llama", small_config(), {}};
  const ContinuousOptions options{.kv_blocks = 60, .block_tokens = 4, .max_running = 6, .tokens_per_step = 24};
  const auto two = [] {
    std::vector<Request> both;
    both.push_back(greedy(prompt_of(1, 5), 30));
    both.push_back(sampled(prompt_of(2, 9), 30, 4));
    return both;
  };
  const Served alone = serve(Device::cpu, on, options, two);
  run_ranks(1, [&](Communicator& world) {
    TestRank rank(cuda_kernels(), 1, Device::cuda);
    world.use_stream(rank.stream);
    const Mesh mesh(world, {});
    ForwardModel model(rank.context, mesh, *random_model("random:small", on.config), DType::f32, {});
    with_engine(model, options, [&](ContinuousEngine& engine) {
      std::vector<std::future<Heard>> open;
      for (Request& r : two()) open.push_back(ask(engine, std::move(r)));
      for (int32_t i = 0; i < 4; ++i) {
        std::atomic<RequestId> id{0};
        std::promise<Heard> promise;
        std::future<Heard> heard = promise.get_future();
        int count = 0;
        const auto on_token = [&] {
          if (++count >= 3) engine.cancel(id);
        };
        id = engine.submit(greedy(prompt_of(i, 6), 50), std::make_unique<Recorder>(std::move(promise), on_token));
        EXPECT_EQ(heard.get().finish.reason, FinishReason::cancelled);
      }
      std::vector<Heard> others;
      for (std::future<Heard>& heard : open) others.push_back(heard.get());
      expect_same(others, alone.answers);
      EXPECT_GT(engine.stats().steps_ahead_total, 3);
    });
  });
}

// Allows all tokens, some times; then none, or is too hard to follow.
class Ending : public TokenConstraint {
 public:
  Ending(int64_t count, bool throws) : left_(count), throws_(throws) {}
  void fill(std::span<uint32_t> allowed) override {
    check(left_ > 0 || !throws_, "the form is too ambiguous");
    std::ranges::fill(allowed, left_ > 0 ? ~uint32_t(0) : 0);
  }
  void accept(int32_t) override { --left_; }
  void rewind(int64_t count) override { left_ += count; }

 private:
  int64_t left_;
  bool throws_;
};

// A form that does not go on is the error of one request, behind the tokens that it had.
TEST(StepsAheadAndFormsTest, OthersGoOn) {
  const OnMesh on{"llama", small_config(), {}};
  const ContinuousOptions options{.kv_blocks = 90, .block_tokens = 4, .max_running = 6, .tokens_per_step = 32};
  const auto requests = [] {
    std::vector<Request> all;
    for (int32_t i = 0; i < 2; ++i) {
      all.push_back(greedy(prompt_of(i, 5), 30));
      all.push_back(with(sampled(prompt_of(9 + i, 5), 30, 4),
                         [&](Request& r) { r.constraint = std::make_unique<Ending>(7, i == 0); }));
    }
    return all;
  };
  const Served here = serve(Device::cpu, on, options, requests), ahead = serve(Device::cuda, on, options, requests);
  expect_same(ahead.answers, here.answers);
  for (const Served* served : {&here, &ahead}) {
    for (const size_t i : {1, 3}) {
      EXPECT_EQ(served->answers[i].finish.reason, FinishReason::error);
      EXPECT_EQ(served->answers[i].tokens.size(), 7u);
    }
    for (const size_t i : {0, 2}) EXPECT_EQ(served->answers[i].tokens.size(), 30u);
  }
  EXPECT_GT(ahead.stats.steps_ahead_total, 10);
}

// ---- draft tokens ----

struct DraftCase {
  const char* name;
  ModelConfig config;
  bool has_draft;  // the model itself; else a part of it
  SamplingOptions sampling = {.temperature = 0};
  bool is_read_at_once = false;
};
void PrintTo(const DraftCase& c, std::ostream* out) { *out << c.name; }

ModelConfig predicting_config(ModelConfig m) {
  m.mtp_layers = 1;
  complete(m);
  return m;
}

class DraftsAheadTest : public testing::TestWithParam<DraftCase> {};
INSTANTIATE_TEST_SUITE_P(
    Drafters, DraftsAheadTest,
    testing::Values(
        DraftCase{"draft", small_config(), true},
        DraftCase{"draft_that_draws", small_config(), true, {.temperature = 1, .top_p = 0.9, .seed = 3}},
        DraftCase{"draft_with_states", state_config(), true},
        DraftCase{"draft_with_penalties", small_config(), true, {.temperature = 0, .repetition_penalty = 1.2}, true},
        DraftCase{"part", predicting_config(small_config()), false},
        DraftCase{"part_with_states", predicting_config(state_config()), false}),
    [](const auto& tested) { return std::string(tested.param.name); });

// All draft tokens of a step are made before the first is read, and they are those of a CPU.
TEST_P(DraftsAheadTest, AreReadOnceAStep) {
  const DraftCase& c = GetParam();
  constexpr int64_t kDraftTokens = 4;
  Heard heard[2];
  EngineStats stats[2];
  int64_t waits = 0;
  for (const Device device : {Device::cpu, Device::cuda})
    run_ranks(1, [&](Communicator& world) {
      TestRank rank(kernels_of(device), 1, device);
      world.use_stream(rank.stream);
      const Mesh mesh(world, {});
      const auto source = random_model("random:small", c.config);
      ForwardModel model(rank.context, mesh, *source, DType::f32, {}),
          draft(rank.context, mesh, *source, DType::f32, {});
      const ContinuousOptions options{.kv_blocks = 60,
                                      .block_tokens = 4,
                                      .max_running = 2,
                                      .tokens_per_step = 24,
                                      .max_draft_tokens = kDraftTokens,
                                      .draft = c.has_draft ? &draft : nullptr};
      with_engine(model, options, [&](ContinuousEngine& engine) {
        const int64_t before = num_waits();
        Request request = greedy(prompt_of(4, 7), 48);
        request.sampling = c.sampling;
        heard[size_t(device)] = ask(engine, std::move(request)).get();
        stats[size_t(device)] = engine.stats();
        waits = num_waits() - before;
      });
    });
  expect_same({heard[1]}, {heard[0]});
  const EngineStats &here = stats[0], &there = stats[1];
  EXPECT_EQ(there.drafted_tokens_total, here.drafted_tokens_total);
  EXPECT_EQ(there.accepted_tokens_total, here.accepted_tokens_total);
  EXPECT_GT(here.drafted_tokens_total, 30);
  if (c.has_draft) EXPECT_GT(here.accepted_tokens_total, here.drafted_tokens_total * 3 / 4);
  if (!kIsEmulated) return;
  // For the tokens of a step, for its draft tokens, and where these are many for the third before the last.
  const int64_t most = there.steps_total * (c.is_read_at_once ? 1 + kDraftTokens : 3);
  EXPECT_LT(waits, most + 10);  // with those that fill the caches
}

}  // namespace
}  // namespace weft
