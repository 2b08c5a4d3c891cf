// ContinuousEngine: the same bits in any company, on any mesh; cancellation, order, limits; a real model's known
// text.
#include "weft/serve/continuous_engine.h"

#include "serve/company.h"
#include "serve/engine_on_mesh.h"
#include "weft/comm/single/single.h"
#include "weft/tensor/device_lost.h"

namespace weft {
namespace {

// One after the other, each prompt whole, nothing shared.
std::vector<ServedAnswer> answers_alone(const ModelConfig& config, size_t count, const MeshShape& mesh = {},
                                        DType dtype = DType::f32) {
  std::vector<ServedAnswer> answers;
  with_engine_on(
      config, mesh, {.kv_blocks = kCompanyContext, .block_tokens = 16, .max_running = 1, .keeps_prefixes = false},
      [&](ContinuousEngine& engine) { answers = answers_of(engine, company(count), 1); }, dtype);
  return answers;
}

struct Company {
  const char* name;
  ContinuousOptions options;
  size_t concurrency = 0;
  bool preempts = false;
};
class CompanyTest : public testing::TestWithParam<Company> {};

TEST_P(CompanyTest, GivesTheSameBits) {
  constexpr size_t kRequests = 64;
  static const std::vector<ServedAnswer> want = answers_alone(small_config(), kRequests);
  with_engine_on(small_config(), {}, GetParam().options, [&](ContinuousEngine& engine) {
    EXPECT_EQ(answers_of(engine, company(kRequests), GetParam().concurrency), want);
    const EngineStats stats = engine.stats();
    EXPECT_EQ(stats.preemptions_total > 0, GetParam().preempts);
    EXPECT_EQ(stats.kv_blocks_used, 0);
    EXPECT_EQ(stats.kv_tokens_used, 0);
    if (GetParam().options.keeps_prefixes) EXPECT_GT(stats.cached_tokens_total, 0);
    EXPECT_EQ(stats.accepted_tokens_total > 0, GetParam().options.max_draft_tokens > 0);
    EXPECT_LE(stats.accepted_tokens_total, stats.drafted_tokens_total);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Companies, CompanyTest,
    testing::Values(
        Company{"One", {.kv_blocks = 64}, 1}, Company{"Eight", {.kv_blocks = 64}, 8},
        Company{"All", {.kv_blocks = 256}}, Company{"SmallSteps", {.kv_blocks = 256, .tokens_per_step = 7}},
        Company{"OneRowSteps", {.kv_blocks = 64, .tokens_per_step = 1}},
        Company{"BlocksOfOne", {.kv_blocks = 2000, .block_tokens = 1}},
        Company{"BlocksOfFive", {.kv_blocks = 300, .block_tokens = 5}},
        Company{"NoPrefixes", {.kv_blocks = 256, .keeps_prefixes = false}},
        Company{"Tight", {.kv_blocks = 18, .block_tokens = 4}, 0, true},
        Company{"Drafts", {.kv_blocks = 256, .max_draft_tokens = 5}},
        Company{"TightDrafts", {.kv_blocks = 18, .block_tokens = 4, .max_draft_tokens = 3}, 0, true},
        Company{"TightWithoutPrefixes", {.kv_blocks = 18, .block_tokens = 4, .keeps_prefixes = false}, 0, true}),
    [](const auto& test) { return test.param.name; });

class EngineMeshTest : public testing::TestWithParam<OnMesh> {};

TEST_P(EngineMeshTest, GivesTheSameBitsInAnyCompany) {
  const auto& [name, config, mesh, dtype] = GetParam();
  const std::vector<ServedAnswer> want = answers_alone(config, 20, mesh, dtype);
  with_engine_on(
      config, mesh, {.kv_blocks = 24, .block_tokens = 4, .tokens_per_step = 20},
      [&](ContinuousEngine& engine) { EXPECT_EQ(answers_of(engine, company(20)), want); }, dtype);
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, EngineMeshTest,
    testing::Values(
        OnMesh{"tp2", small_config(), {.tp = 2}}, OnMesh{"pp2", small_config(), {.pp = 2}},
        OnMesh{"pp2tp2", small_config(), {.pp = 2, .tp = 2}}, OnMesh{"gpt2", small_config("gpt2"), {}},
        OnMesh{"bf16", small_config(), {}, DType::bf16}, OnMesh{"fp16_tp2", small_config(), {.tp = 2}, DType::f16},
        OnMesh{"experts", expert_config(), {}}, OnMesh{"ep2", expert_config(), {.shard = 2, .ep = 2}},
        OnMesh{"latent_experts", latent_expert_config(), {}},
        OnMesh{"latent_experts_ep2_tp2", latent_expert_config(), {.shard = 2, .tp = 2, .ep = 2}},
        OnMesh{"latent_experts_pp2", latent_expert_config(), {.pp = 2}}, OnMesh{"cp2", small_config(), {.cp = 2}},
        OnMesh{"cp2_bf16", small_config(), {.cp = 2}, DType::bf16}, OnMesh{"cp2_experts", expert_config(), {.cp = 2}},
        OnMesh{"cp2tp2", small_config(), {.cp = 2, .tp = 2}}, OnMesh{"pp2cp2", small_config(), {.pp = 2, .cp = 2}},
        OnMesh{"delta", state_config(), {}}, OnMesh{"selective_tp2", selective_config(), {.tp = 2}},
        OnMesh{"kimi_pp2tp2", kimi_config(), {.pp = 2, .tp = 2}}, OnMesh{"shared_index", shared_index_config(), {}},
        OnMesh{"beside_tp2", beside_config(), {.tp = 2}}, OnMesh{"pre_norm_pp2", pre_norm_config(), {.pp = 2}},
        OnMesh{"narrow_values_tp2", narrow_values_config(), {.tp = 2}}, OnMesh{"conv_tp2", conv_config(), {.tp = 2}},
        OnMesh{"single_pp2", single_config(), {.pp = 2}}, OnMesh{"streams", streams_config(), {.pp = 2, .tp = 2}},
        OnMesh{"chunks", chunked_config(), {}}, OnMesh{"chunks_pp2tp2", chunked_config(32), {.pp = 2, .tp = 2}},
        OnMesh{"heads_that_differ", gemma4_config(false), {}}, OnMesh{"shared_keys", gemma4_config(true), {}},
        OnMesh{"heads_that_differ_pp2tp2", gemma4_config(false), {.pp = 2, .tp = 2}},
        OnMesh{"shared_tp2", gemma4_config(true), {.tp = 2}}, OnMesh{"shared_cp2", gemma4_config(true), {.cp = 2}},
        OnMesh{"delta_pp2tp2", state_config(), {.pp = 2, .tp = 2}}, OnMesh{"delta_tp4", state_config(3), {.tp = 4}}),
    [](const auto& test) { return test.param.name; });

// Sequences that are preempted and come again, few at a time, with states of others where theirs were.
class StatesCompanyTest : public testing::TestWithParam<OnMesh> {};
INSTANTIATE_TEST_SUITE_P(Rules, StatesCompanyTest,
                         testing::Values(OnMesh{"delta", state_config(), {}}, OnMesh{"kimi", kimi_config(), {}},
                                         OnMesh{"selective", selective_config(), {}},
                                         OnMesh{"beside", beside_config(), {}}, OnMesh{"conv", conv_config(), {}},
                                         OnMesh{"single", single_config(), {}}),
                         [](const auto& test) { return test.param.name; });

TEST_P(StatesCompanyTest, GivesTheSameBits) {
  const ModelConfig& config = GetParam().config;
  const std::vector<ServedAnswer> want = answers_alone(config, 24);
  const int64_t scarce = 200 * state_bytes_of_sequence(config, {}, DType::f32);  // fits fewer than run at most
  for (const ContinuousOptions& options :
       {ContinuousOptions{.kv_blocks = 256}, ContinuousOptions{.kv_blocks = 18, .block_tokens = 4},
        ContinuousOptions{.kv_blocks = 64, .max_running = 3},
        ContinuousOptions{.kv_blocks = 64, .tokens_per_step = 5}, ContinuousOptions{.kv_bytes = scarce},
        ContinuousOptions{.kv_blocks = 64, .block_tokens = 4, .max_running = 5, .kept_states = 1},
        ContinuousOptions{.kv_blocks = 64, .keeps_prefixes = false},
        ContinuousOptions{.kv_blocks = 256, .max_draft_tokens = 5},
        ContinuousOptions{.kv_blocks = 256, .keeps_prefixes = false, .max_draft_tokens = 3},
        ContinuousOptions{.kv_blocks = 64, .max_running = 4, .kept_states = 2, .max_draft_tokens = 5}})
    with_engine_on(config, {}, options, [&](ContinuousEngine& engine) {
      EXPECT_EQ(answers_of(engine, company(24)), want);
      if (!options.keeps_prefixes) EXPECT_EQ(engine.stats().cached_tokens_total, 0);
      if (options.kv_blocks == 18) EXPECT_GT(engine.stats().cached_tokens_total, 0);
      EXPECT_EQ(engine.stats().preemptions_total > 0, options.kv_blocks == 18);
      EXPECT_EQ(engine.stats().accepted_tokens_total > 0, options.max_draft_tokens > 0);
      EXPECT_EQ(engine.limits().max_running < 64,
                options.kv_blocks == 0 || options.max_running < 64 || options.tokens_per_step < 64);
    });
}

TEST(RoomForStatesTest, RefusesWhatHasNoRoomForAState) {
  const auto refused = [](const ContinuousOptions& options, const MeshShape& mesh) {
    EXPECT_THROW(with_engine_on(state_config(), mesh, options, [](ContinuousEngine&) {}), UsageError);
  };
  refused({.kv_blocks = 64}, {.cp = 2});
  refused({.kv_bytes = 100}, {});
}

// Its keys and values take no bytes, of which a cache would be any number of blocks.
TEST(RoomForStatesTest, ACacheForNoLayerThatAttendsIsRefused) {
  EXPECT_THROW(with_engine_on(state_config(3), {}, {.kv_bytes = 1 << 20}, [](ContinuousEngine&) {}), UsageError);
}

class ContinuousEngineTest : public testing::Test {
 protected:
  ContinuousEngineTest() { initial_values(11)(model_); }

  TestRank rank_{cpu_kernels(), 2};
  const std::unique_ptr<Communicator> alone_ = make_single_communicator();
  const Mesh mesh_{*alone_, {}};
  ForwardModel model_{rank_.context, mesh_, small_config(), DType::f32};
};

TEST_F(ContinuousEngineTest, MakesTheGeneratorsTokens) {
  const std::vector<int32_t> prompt{5, 7, 11, 2, 30, 8, 9};
  for (const bool is_greedy : {true, false}) {
    const Request asked = is_greedy ? greedy(prompt, 12) : sampled(prompt, 12, 77);
    std::vector<int32_t> want;
    Generator(model_).generate(prompt, {.max_tokens = 12, .sampling = asked.sampling, .stop_tokens = {}},
                               [&](int32_t token) { want.push_back(token); });
    with_engine(model_, {.kv_blocks = 8}, [&](Engine& engine) {
      const Heard heard = ask(engine, is_greedy ? greedy(prompt, 12) : sampled(prompt, 12, 77)).get();
      EXPECT_EQ(heard.tokens, want);
      EXPECT_EQ(heard.finish.reason, FinishReason::length);
      EXPECT_EQ(heard.finish.usage.completion_tokens, 12);
    });
  }
}

TEST_F(ContinuousEngineTest, StopTokensEndTheAnswerOnceItIsLongEnough) {
  with_engine(model_, {.kv_blocks = 8}, [&](Engine& engine) {
    const std::vector<int32_t> all = ask(engine, greedy({5, 7}, 8)).get().tokens;
    Request stopped = greedy({5, 7}, 8);
    stopped.stop_tokens = {all[2]};
    const Heard heard = ask(engine, std::move(stopped)).get();
    EXPECT_EQ(heard.finish.reason, FinishReason::stop);
    EXPECT_EQ(heard.finish.stop_token, all[2]);
    EXPECT_LE(heard.tokens.size(), 2u);
    EXPECT_EQ(heard.finish.usage.completion_tokens, int64_t(heard.tokens.size()) + 1);
    Request longer = greedy({5, 7}, 8);
    longer.stop_tokens = {all[0]};
    longer.min_tokens = 4;
    EXPECT_GE(ask(engine, std::move(longer)).get().tokens.size(), 4u);
  });
}

// Allows tokens in turn, then the end token.
class Turns : public TokenConstraint {
 public:
  Turns(std::vector<int32_t> tokens, int32_t end) : tokens_(std::move(tokens)), end_(end) {}
  void fill(std::span<uint32_t> allowed) override {
    std::fill(allowed.begin(), allowed.end(), 0);
    const auto token = uint32_t(at_ < tokens_.size() ? tokens_[at_] : end_);
    allowed[token / 32] |= uint32_t(1) << token % 32;
  }
  void accept(int32_t token) override {
    EXPECT_EQ(token, tokens_[at_]);
    ++at_;
  }
  void rewind(int64_t count) override { at_ -= size_t(count); }

 private:
  std::vector<int32_t> tokens_;
  int32_t end_;
  size_t at_ = 0;
};

TEST_F(ContinuousEngineTest, ObeysConstraintsAndBadWords) {
  with_engine(model_, {.kv_blocks = 8}, [&](Engine& engine) {
    Request request = greedy({5, 7}, 20);
    request.stop_tokens = {0};
    request.constraint = std::make_unique<Turns>(std::vector<int32_t>{3, 33, 3}, 0);
    const Heard heard = ask(engine, std::move(request)).get();
    EXPECT_EQ(heard.tokens, (std::vector<int32_t>{3, 33, 3}));
    EXPECT_EQ(heard.finish.reason, FinishReason::stop);
    const std::vector<int32_t> all = ask(engine, greedy({5, 7}, 4)).get().tokens;
    Request other = greedy({5, 7}, 4);
    other.bad_words = {{all[0]}};
    EXPECT_NE(ask(engine, std::move(other)).get().tokens[0], all[0]);
    Request impossible = greedy({5, 7}, 4);
    for (int32_t t = 0; t < kCompanyVocab; ++t) impossible.bad_words.push_back({all[0], t});
    impossible.sampling.logit_bias = {{all[0], 100.0f}};  // so that the second is forbidden
    const Finish finish = ask(engine, std::move(impossible)).get().finish;
    EXPECT_EQ(finish.reason, FinishReason::error);
    EXPECT_FALSE(finish.error.empty());
  });
}

TEST_F(ContinuousEngineTest, ScoresPromptsAlikeHoweverTheyAreCut) {
  const std::vector<int32_t> prompt{5, 7, 11, 2, 30, 8, 9, 1, 1, 2};
  const auto scored = [&] {
    Request request = greedy(prompt, 3);
    request.prompt_logprobs = 2, request.logprobs = 2;
    return request;
  };
  Heard want;
  with_engine(model_, {.kv_blocks = 8, .keeps_prefixes = false},
              [&](Engine& engine) { want = ask(engine, scored()).get(); });
  ASSERT_EQ(want.prompt_scores.size(), prompt.size());
  for (size_t i = 1; i < prompt.size(); ++i) EXPECT_LT(want.prompt_scores[i].log_prob, 0);
  EXPECT_EQ(want.prompt_scores[1].top.size(), 2u);
  with_engine(model_, {.kv_blocks = 40, .block_tokens = 2, .tokens_per_step = 3}, [&](Engine& engine) {
    ask(engine, greedy(prompt, 4)).get();  // leaves a prefix that must not be taken
    std::vector<std::future<Heard>> others;
    for (int i = 0; i < 3; ++i) others.push_back(ask(engine, sampled(prompt, 9, uint64_t(i))));
    const Heard heard = ask(engine, scored()).get();
    EXPECT_EQ(heard.prompt_scores, want.prompt_scores);
    EXPECT_EQ(heard.scores, want.scores);
    EXPECT_EQ(heard.finish.usage.cached_tokens, 0);
    Request only = greedy(prompt, 0);
    only.prompt_logprobs = 0;
    const Heard none = ask(engine, std::move(only)).get();
    EXPECT_EQ(none.prompt_scores.size(), prompt.size());
    EXPECT_TRUE(none.tokens.empty());
    EXPECT_EQ(none.finish.reason, FinishReason::length);
  });
}

TEST_F(ContinuousEngineTest, FindsPrefixesAndSaysSo) {
  std::vector<int32_t> prompt;
  for (int32_t t = 0; t < 20; ++t) prompt.push_back(t);
  with_engine(model_, {.kv_blocks = 16, .block_tokens = 4}, [&](Engine& engine) {
    const Heard first = ask(engine, greedy(prompt, 5)).get(), second = ask(engine, greedy(prompt, 5)).get();
    EXPECT_EQ(first.finish.usage.cached_tokens, 0);
    EXPECT_EQ(second.finish.usage.cached_tokens, 16);  // never the last token
    EXPECT_EQ(first.tokens, second.tokens);
    const EngineStats stats = engine.stats();
    EXPECT_EQ(stats.prompt_tokens_total, 40);
    EXPECT_EQ(stats.cached_tokens_total, 16);
    EXPECT_EQ(stats.generated_tokens_total, 10);
    EXPECT_GE(second.finish.times.decode_s, 0);
  });
}

TEST_F(ContinuousEngineTest, CancellationFreesBlocks) {
  with_engine(model_, {.kv_blocks = 16, .block_tokens = 4}, [&](Engine& engine) {
    std::atomic<RequestId> id{0};
    std::promise<Heard> promise;
    std::future<Heard> running = promise.get_future();
    id = engine.submit(greedy({1, 2}, 60), std::make_unique<Recorder>(std::move(promise), [&] {
                         while (id == 0) std::this_thread::yield();
                         engine.cancel(id);
                       }));
    const Heard heard = running.get();
    EXPECT_EQ(heard.finish.reason, FinishReason::cancelled);
    EXPECT_LT(heard.tokens.size(), 3u);
    EXPECT_EQ(engine.stats().kv_blocks_used, 0);
    EXPECT_EQ(engine.stats().running, 0);
    engine.cancel(id);  // has finished
    engine.cancel(999);
    EXPECT_EQ(ask(engine, greedy({1, 2}, 3)).get().finish.reason, FinishReason::length);
  });
}

TEST_F(ContinuousEngineTest, UrgentRequestsGoFirst) {
  std::vector<int> order;
  ContinuousEngine engine(model_, {.kv_blocks = 16, .max_running = 1});
  std::vector<std::future<Heard>> heard;
  for (const int priority : {2, 1, 0}) {
    Request request = greedy({1, 2}, 1);
    request.priority = priority;
    heard.push_back(ask(engine, std::move(request), [&order, priority] { order.push_back(priority); }));
  }
  auto done = std::async(std::launch::async, [&] {
    for (auto& one : heard) one.get();
    engine.stop();
  });
  engine.run();
  done.get();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
}

TEST_F(ContinuousEngineTest, RefusesWhatCannotRunAndWhatIsTooMuch) {
  const ContinuousOptions holds_two{.kv_blocks = 2, .block_tokens = 16, .max_running = 1, .max_waiting = 1};
  ContinuousEngine engine(model_, holds_two);  // nobody runs it
  EXPECT_EQ(engine.limits().context, 32);      // what the cache holds
  EXPECT_THROW(ask(engine, greedy({}, 3)), UsageError);
  EXPECT_THROW(ask(engine, greedy({kCompanyVocab}, 3)), UsageError);
  EXPECT_THROW(ask(engine, greedy(std::vector<int32_t>(32, 1), 3)), UsageError);
  Request adapted = greedy({1}, 3);
  adapted.adapter = "nobody's";
  EXPECT_THROW(ask(engine, std::move(adapted)), UsageError);
  std::future<Heard> one = ask(engine, greedy({1}, 3)), two = ask(engine, greedy({1}, 3));
  EXPECT_THROW(ask(engine, greedy({1}, 3)), Busy);
  EXPECT_EQ(engine.stats().waiting, 2);
  engine.drain(std::chrono::milliseconds(1));
  EXPECT_EQ(one.get().finish.reason, FinishReason::cancelled);
  EXPECT_EQ(two.get().finish.reason, FinishReason::cancelled);
  EXPECT_THROW(ask(engine, greedy({1}, 3)), Busy);
  EXPECT_THROW(ContinuousEngine(model_, {.kv_bytes = 100}), UsageError);
}

TEST_F(ContinuousEngineTest, FillsTheCacheToItsEnd) {
  with_engine(model_, {.kv_blocks = 3, .block_tokens = 8}, [&](Engine& engine) {
    const Heard heard = ask(engine, greedy({1, 2, 3}, 1000)).get();
    EXPECT_EQ(heard.tokens.size(), 21u);  // 24 places
    EXPECT_EQ(heard.finish.reason, FinishReason::length);
  });
}

TEST_F(ContinuousEngineTest, DrainWaitsForWhatItHasAndCancelsTheRest) {
  with_engine(model_, {.kv_blocks = 64}, [&](Engine& engine) {
    std::future<Heard> one = ask(engine, greedy({1, 2}, 20));
    engine.drain(std::chrono::seconds(60));
    EXPECT_EQ(one.get().finish.reason, FinishReason::length);
    EXPECT_THROW(ask(engine, greedy({1}, 3)), Busy);
  });
  with_engine(model_, {.kv_blocks = 64}, [&](Engine& engine) {
    std::vector<std::future<Heard>> many;
    for (int i = 0; i < 100; ++i) many.push_back(ask(engine, greedy({1, 2}, 62)));
    engine.drain(std::chrono::milliseconds(0));
    size_t cancelled = 0;
    for (auto& one : many) cancelled += one.get().finish.reason == FinishReason::cancelled;
    EXPECT_GT(cancelled, 0u);
    EXPECT_EQ(engine.stats().kv_blocks_used, 0);
  });
}

TEST_F(ContinuousEngineTest, StoppingEndsWhatIsUnderWay) {
  std::future<Heard> one;
  with_engine(model_, {.kv_blocks = 64}, [&](Engine& engine) { one = ask(engine, greedy({1, 2}, 62)); });
  one.get();
}

TEST_F(ContinuousEngineTest, AFailedStepEndsItsRequestsAndNoOthers) {
  static std::atomic<bool> fails{false};
  Kernels kernels = cpu_kernels();
  kernels.paged_attention = [](Stream& stream, const PagedAttentionArgs& args) {
    if (fails.exchange(false)) throw Error("the step failed");
    cpu_kernels().paged_attention(stream, args);
  };
  TestRank rank(kernels);
  ForwardModel model(rank.context, mesh_, small_config(), DType::f32);
  initial_values(11)(model);
  with_engine(model, {.kv_blocks = 8, .block_tokens = 4}, [&](Engine& engine) {
    const std::vector<int32_t> prompt{1, 2, 3, 4, 5, 6};
    const std::vector<int32_t> want = ask(engine, greedy(prompt, 6)).get().tokens;
    fails = true;
    const Finish failed = ask(engine, greedy(prompt, 6)).get().finish;
    EXPECT_EQ(failed.reason, FinishReason::error);
    EXPECT_EQ(failed.error, "the step failed");
    EXPECT_EQ(engine.stats().kv_blocks_used, 0);
    EXPECT_EQ(ask(engine, greedy(prompt, 6)).get().tokens, want);
  });
}

TEST_F(ContinuousEngineTest, ADeviceThatIsLostEndsEverything) {
  Kernels kernels = cpu_kernels();
  kernels.paged_attention = [](Stream&, const PagedAttentionArgs&) { throw DeviceLost("an illegal address"); };
  TestRank rank(kernels);
  ForwardModel model(rank.context, mesh_, small_config(), DType::f32);
  initial_values(11)(model);
  ContinuousEngine engine(model, {.kv_blocks = 8});
  std::future<Heard> one = ask(engine, greedy({1, 2}, 9));
  EXPECT_THROW(engine.run(), DeviceLost);
  EXPECT_EQ(one.get().finish.reason, FinishReason::error);
}

TEST(ContinuousEngineMeshTest, AFailureOnAMeshEndsEverything) {
  std::future<Heard> one;
  const auto run = [&] {
    run_ranks(2, [&](Communicator& world) {
      Kernels kernels = cpu_kernels();
      if (world.rank() == 1)
        kernels.paged_attention = [](Stream&, const PagedAttentionArgs&) { throw Error("the step failed"); };
      TestRank rank(kernels);
      const Mesh mesh(world, {.tp = 2});
      ForwardModel model(rank.context, mesh, small_config(), DType::f32);
      initial_values(11)(model);
      ContinuousEngine engine(model, {.kv_blocks = 8});
      if (engine.is_driver()) one = ask(engine, greedy({1, 2}, 9));
      engine.run();
    });
  };
  EXPECT_THROW(run(), Error);
  EXPECT_EQ(one.get().finish.reason, FinishReason::error);
}

TEST(ContinuousEngineMeshTest, AFailureIsNoticedWhileNothingIsAsked) {
  const auto run = [&] {
    run_ranks(2, [&](Communicator& world) {
      TestRank rank(cpu_kernels());
      const Mesh mesh(world, {.tp = 2});
      ForwardModel model(rank.context, mesh, small_config(), DType::f32);
      initial_values(11)(model);
      ContinuousEngine engine(model, {.kv_blocks = 8});
      if (!engine.is_driver()) throw Error("a cable came off");
      EXPECT_THROW(engine.run(), AbortedError);
    });
  };
  EXPECT_THROW(run(), Error);
}

// A model of few tokens repeats itself: what it said is a good draft token, and takes fewer steps to say again.
TEST(ContinuousEngineDraftTest, TakesFewerSteps) {
  const auto ask_one = [](int64_t max_draft_tokens) {
    std::pair<std::vector<int32_t>, int64_t> result;
    with_engine_on(small_config(), {}, {.kv_blocks = 64, .max_draft_tokens = max_draft_tokens},
                   [&](ContinuousEngine& engine) {
                     result.first = ask(engine, greedy({1, 2, 3}, 60)).get().tokens;
                     result.second = engine.stats().steps_total;
                   });
    return result;
  };
  const auto [plain, plain_steps] = ask_one(0);
  const auto [drafted, drafted_steps] = ask_one(6);
  EXPECT_EQ(drafted, plain);
  EXPECT_EQ(plain_steps, 60);
  EXPECT_LT(drafted_steps, 45);
}

TEST(ContinuousEngineContextTest, EndsWhereAnglesWouldDependOnTheLongestText) {
  using Kind = RopeScaling::Kind;
  const std::vector<double> ones(4, 1), twos(4, 2);
  const std::pair<RopeScaling, int64_t> cases[] = {
      {{.kind = Kind::dynamic, .factor = 2, .original_context = 32}, 32},
      {{.kind = Kind::longrope, .original_context = 32, .short_factors = ones, .long_factors = twos}, 32},
      {{.kind = Kind::longrope, .original_context = 32, .short_factors = twos, .long_factors = twos},
       kCompanyContext},
      {{.kind = Kind::linear, .factor = 2, .original_context = 32}, kCompanyContext}};
  for (const auto& [scaling, context] : cases) {
    ModelConfig config = small_config();
    config.rope_scaling = scaling;
    with_engine_on(config, {}, {.kv_blocks = 64},
                   [&](ContinuousEngine& engine) { EXPECT_EQ(engine.limits().context, context); });
  }
}

TEST(ContinuousEngineMeshTest, RefusesRanksThatWouldDoTheSameWork) {
  EXPECT_THROW(with_engine_on(small_config(), {.shard = 2}, {.kv_blocks = 8}, [](ContinuousEngine&) {}), UsageError);
}

}  // namespace
}  // namespace weft
