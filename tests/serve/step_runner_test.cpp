// StepRunner: long messages, followers that wait, the memory of the cache; and steps of serving that allocate
// nothing.
#include "weft/serve/step_runner.h"

#include <mutex>

#include "pretrained/model_on_ranks.h"
#include "support/count_allocations.h"
#include "weft/comm/single/single.h"
#include "weft/serve/scheduler.h"

namespace weft {
namespace {

ModelConfig config_with(int64_t kv_heads) {
  ModelConfig m = family_defaults("llama");
  m.layers = 2, m.hidden = 32, m.heads = 4, m.kv_heads = kv_heads, m.ffn = 48, m.vocab = 40, m.context = 64;
  m.init_std = 0.2f;
  complete(m);
  return m;
}
ModelConfig latent_config() {
  ModelConfig m = config_with(4);
  m.kv_rank = 20, m.query_rank = 28, m.head_dim = 12, m.rotary_dim = 8, m.value_dim = 16;
  complete(m);
  return m;
}
ModelConfig sparse_config() {
  ModelConfig m = latent_config();
  m.index_heads = 4, m.index_head_dim = 8, m.index_topk = 6;
  complete(m);
  return m;
}
ModelConfig streams_config() {
  ModelConfig m = sparse_config();
  m.attention_gate = m.attention_sinks = true, m.residual_streams = 3, m.stream_mix_steps = 4;
  complete(m);
  return m;
}
ModelConfig shared_index_config() {
  ModelConfig m = sparse_config();
  m.index_layers = {0};
  complete(m);
  return m;
}
// Many sequences in blocks of one token, so that a step takes more than one message.
std::vector<float> logits_of_a_long_step(const MeshShape& mesh) {
  std::vector<float> result;
  on_ranks(config_with(2), mesh, cpu_kernels(), DType::f32, initial_values(11), [&](ForwardModel& model) {
    constexpr int32_t kSequences = 40, kTokens = 50;
    StepRunner runner(model, kSequences * kTokens, 1);
    if (!runner.is_driver()) return runner.follow();
    for (int step = 0; step < 2; ++step) {
      runner.clear();
      for (int32_t s = 0; s < kSequences; ++s) {
        std::vector<int32_t> tokens, blocks;
        for (int32_t t = 0; t < kTokens; ++t)
          tokens.push_back((s + 3 * t) % 40), blocks.push_back(t * kSequences + s);
        runner.add(tokens, {}, 0, blocks, 1);
      }
      const Tensor logits = runner.run();
      result.assign(logits.data<float>(), logits.data<float>() + logits.numel());
    }
    runner.stop();
  });
  return result;
}

TEST(StepRunnerTest, TellsLongSteps) {
  const std::vector<float> want = logits_of_a_long_step({});
  EXPECT_EQ(want.size(), 40u * 40u);
  EXPECT_EQ(logits_of_a_long_step({.pp = 2}), want);
}

TEST(StepRunnerTest, FollowersSleepLongerThanTheTimeout) {
  const auto cpu_seconds = [] {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
  };
  run_ranks(2,
            [&](Communicator& world) {
              TestRank rank(cpu_kernels());
              const Mesh mesh(world, {.tp = 2});
              ForwardModel model(rank.context, mesh, config_with(2), DType::f32);
              initial_values(11)(model);
              StepRunner runner(model, 4, 16);
              if (!runner.is_driver()) {
                const double before = cpu_seconds();
                runner.follow();
                EXPECT_LT(cpu_seconds() - before, 0.15);
                return;
              }
              std::this_thread::sleep_for(std::chrono::milliseconds(400));
              const std::vector<int32_t> tokens{1, 2}, blocks{0};
              runner.clear();
              runner.add(tokens, {}, 0, blocks, 1);
              EXPECT_EQ(runner.run().numel(), 40);
              std::this_thread::sleep_for(std::chrono::milliseconds(400));
              runner.stop();
            },
            {.timeout = std::chrono::milliseconds(150)});
}

struct Cached {
  const char* name;
  ModelConfig config;
  MeshShape mesh;
  RowFormat format = {};
};
void PrintTo(const Cached& c, std::ostream* out) { *out << c.name; }
class CacheBytesTest : public testing::TestWithParam<Cached> {};

TEST_P(CacheBytesTest, AreWhatTheRanksTake) {
  const auto& [name, config, mesh, format] = GetParam();
  constexpr int64_t kBlocks = 16384, kBlockTokens = 16;
  std::atomic<int64_t> taken{0}, most_taken{0};
  on_ranks(config, mesh, cpu_kernels(), DType::f32, initial_values(11), [&](ForwardModel& model) {
    const Allocator& allocator = model.context().stream.allocator();
    StepRunner runner(model, kBlocks, kBlockTokens, format);
    const int64_t before = allocator.stats().live_bytes;
    if (runner.is_driver()) {
      const std::vector<int32_t> tokens{1}, blocks{0};
      runner.clear();
      runner.add(tokens, {}, 0, blocks, 1);
      runner.run();
      runner.stop();
    } else {
      runner.follow();
    }
    const int64_t here = allocator.stats().live_bytes - before;
    taken += here;
    for (int64_t most = most_taken; here > most && !most_taken.compare_exchange_weak(most, here);) continue;
  });
  const double want = double(kBlocks * kBlockTokens * cache_bytes_of_token(config, mesh, format));
  EXPECT_NEAR(double(taken) / want, 1, 0.01);
  EXPECT_NEAR(double(most_taken) * mesh.size() / want, 1, 0.01);  // each has an even share
}

INSTANTIATE_TEST_SUITE_P(
    Models, CacheBytesTest,
    testing::Values(Cached{"one", config_with(2), {}}, Cached{"tp2", config_with(2), {.tp = 2}},
                    Cached{"one_head_tp2", config_with(1), {.tp = 2}}, Cached{"pp2", config_with(4), {.pp = 2}},
                    Cached{"cp4", config_with(2), {.cp = 4}}, Cached{"cp2tp2", config_with(2), {.cp = 2, .tp = 2}},
                    Cached{"latent", latent_config(), {}}, Cached{"latent_tp2", latent_config(), {.tp = 2}},
                    Cached{"sparse_tp2", sparse_config(), {.tp = 2}},
                    Cached{"shared_index", shared_index_config(), {}},
                    Cached{"sparse_int8", sparse_config(), {}, RowFormat::of(RowCodes::int8)},
                    Cached{"bf16", config_with(2), {}, {DType::bf16}},
                    Cached{"int8", config_with(2), {}, RowFormat::of(RowCodes::int8)},
                    Cached{"latent_fp8_pp2", latent_config(), {.pp = 2}, RowFormat::of(RowCodes::fp8)}),
    [](const auto& test) { return test.param.name; });

class SteadyStepsTest : public testing::TestWithParam<Cached> {};
INSTANTIATE_TEST_SUITE_P(Models, SteadyStepsTest,
                         testing::Values(Cached{"plain", config_with(2), {}}, Cached{"latent", latent_config(), {}},
                                         Cached{"sparse", sparse_config(), {}},
                                         Cached{"streams", streams_config(), {}}),
                         [](const auto& test) { return test.param.name; });

TEST_P(SteadyStepsTest, OfAnswersAllocateNothing) {
  TestRank rank(cpu_kernels());
  const auto alone = make_single_communicator();
  const Mesh mesh(*alone, {});
  ForwardModel model(rank.context, mesh, GetParam().config, DType::f32);
  initial_values(11)(model);
  const BlockPoolOptions pool{.num_blocks = 64, .block_tokens = 4};
  StepRunner runner(model, pool.num_blocks, pool.block_tokens);
  Scheduler scheduler({.pool = pool});
  for (RequestId id = 1; id <= 3; ++id) {
    Request request;
    request.prompt = {1, 2, int32_t(id)};
    auto sequence = std::make_unique<Sequence>(id, std::move(request), nullptr);
    sequence->tokens.reserve(64), sequence->blocks.reserve(16);
    scheduler.add(std::move(sequence));
  }
  std::vector<StepPart> parts;
  parts.reserve(3);
  int64_t before = 0;
  for (int step = 0; step < 40; ++step) {
    if (step == 20) before = num_allocations;
    const std::span<const StepPart> plan = scheduler.plan();
    parts.assign(plan.begin(), plan.end());
    ASSERT_EQ(parts.size(), 3u);
    runner.clear();
    for (const StepPart& p : parts)
      runner.add(std::span(p.sequence->tokens).subspan(size_t(p.first), size_t(p.count)), p.sequence->draft_tokens,
                 p.first, p.sequence->blocks, p.num_wanted());
    runner.run();
    scheduler.commit();
    for (const StepPart& p : parts) p.sequence->tokens.push_back(step);
  }
  EXPECT_EQ(num_allocations - before, 0);
}

}  // namespace
}  // namespace weft
