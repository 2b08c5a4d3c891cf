// Serving on devices: the tokens of a rank on the CPU, on any mesh of ranks that share a device.
#include "cuda/emulation.h"
#include "serve/company.h"
#include "support/rank.h"
#include "weft/comm/threads/run_ranks.h"
#include "weft/pretrained/random_model.h"
#include "weft/serve/generator.h"
#include "weft/serve/step_runner.h"
#include "weft/tensor/cuda/cuda_queue.h"

namespace weft {
namespace {

struct ServingCase : OnMesh {
  std::optional<BlockType> rounded = {};  // that weights are rounded to
  int64_t draft_tokens = 0;
};

StepGraphs& graphs_of(TestRank& rank) { return static_cast<CudaQueue&>(rank.stream.queue()).steps(); }

// What requests of all lengths are answered in each other's company. launched: graphs, by rank 0; in_graphs: if any.
std::vector<ServedAnswer> answers_on(Device device, const ServingCase& on, const ContinuousOptions& options,
                                     int64_t* launched = nullptr, bool in_graphs = true) {
  std::vector<ServedAnswer> answers;
  const auto source = random_model("random:small", on.config);
  run_ranks(on.mesh.size(), [&](Communicator& world) {
    TestRank rank(kernels_of(device), 1, device);
    world.use_stream(rank.stream);
    if (!in_graphs) graphs_of(rank).stop();
    const Mesh mesh(world, on.mesh);
    ForwardModel model(rank.context, mesh, *source, on.dtype, {.others = on.rounded});
    ContinuousOptions of_case = options;
    of_case.max_draft_tokens = on.draft_tokens;
    with_engine(model, of_case, [&](ContinuousEngine& engine) { answers = answers_of(engine, company(6)); });
    if (launched && world.rank() == 0) *launched = graphs_of(rank).stats().launched;
  });
  return answers;
}

ModelConfig experts_config() {
  ModelConfig m = small_config();
  m.experts = 4, m.experts_per_token = 2, m.expert_ffn = 24;
  complete(m);
  return m;
}

ModelConfig drafting_config(ModelConfig m) {
  m.mtp_layers = 1;
  complete(m);
  return m;
}

const ServingCase kServingCases[] = {
    {{"llama", small_config(), {}}},
    {{"gpt2_tp2", small_config("gpt2"), {.tp = 2}}},
    {{"llama_pp2", small_config(), {.pp = 2}}},
    {{"experts_ep2", experts_config(), {.shard = 2, .ep = 2}}},
    {{"experts_in_bf16", experts_config(), {}, DType::bf16}},
    {{"shared_gate_tp2", shared_gate_config(), {.tp = 2}}},
    {{"shared_gate_in_bf16", shared_gate_config(), {}, DType::bf16}},
    {{"delta_tp2", state_config(), {.tp = 2}}},
    {{"kimi_tp2", kimi_config(), {.tp = 2}}},
    {{"sparse_tp2", sparse_config(), {.tp = 2}}},
    {{"shared_index", shared_index_config(), {}}},
    {{"selective_tp2", selective_config(), {.tp = 2}}},
    {{"drafts", drafting_config(small_config()), {}}, {}, 2},
    {{"drafts_of_experts_pp2", drafting_config(experts_config()), {.pp = 2}}, {}, 3},
    {{"drafts_with_states_tp2", drafting_config(state_config()), {.tp = 2}}, {}, 2},
    {{"experts_in_blocks", experts_config(), {}}, BlockType::nf4},
    {{"experts_in_blocks_ep2", experts_config(), {.shard = 2, .ep = 2}}, BlockType::nf4}};

class CudaServingTest : public testing::TestWithParam<ServingCase> {};
INSTANTIATE_TEST_SUITE_P(Meshes, CudaServingTest, testing::ValuesIn(kServingCases),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST_P(CudaServingTest, AnswersAsTheCpuDoes) {
  if (GetParam().dtype != DType::f32) GTEST_SKIP() << "rounded otherwise, a random model says other things";
  const ContinuousOptions options{.kv_blocks = 60, .block_tokens = 4, .max_running = 4, .tokens_per_step = 16};
  ServingCase one = GetParam();
  one.mesh = {};
  const auto want = answers_on(Device::cpu, one, options), got = answers_on(Device::cuda, GetParam(), options);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].tokens, want[i].tokens) << "request " << i;
  }
}

// Steps of one row to a sequence are graphs, on any mesh; the bits are those of steps without.
TEST_P(CudaServingTest, GraphsGiveTheBitsOfStepsWithoutThem) {
  const ContinuousOptions options{.kv_blocks = 60, .block_tokens = 4, .max_running = 3, .tokens_per_step = 16};
  int64_t launched = 0, without = 0;
  const auto got = answers_on(Device::cuda, GetParam(), options, &launched);
  const auto want = answers_on(Device::cuda, GetParam(), options, &without, false);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].tokens, want[i].tokens) << "request " << i;
    // Products of 16 bits or with blocks are computed otherwise where there are more than a few rows, as all are by
    // cuBLASLt, and how many prompts share a step is a matter of time.
    const bool keeps_bits = kIsEmulated && !GetParam().rounded && GetParam().dtype == DType::f32;
    if (keeps_bits) EXPECT_EQ(got[i], want[i]) << "request " << i;
  }
  // Steps with draft tokens are of more kinds, each of which is a graph from its third on.
  EXPECT_GT(launched, GetParam().draft_tokens > 0 ? 0 : 10);
  EXPECT_EQ(without, 0);
}

struct WritingCase {
  const char* name;
  SamplingOptions sampling;
  int64_t vocab = kCompanyVocab;
  std::vector<int32_t> stop_tokens = {};
};
void PrintTo(const WritingCase& c, std::ostream* out) { *out << c.name; }

class CudaGeneratorTest : public testing::TestWithParam<WritingCase> {};
INSTANTIATE_TEST_SUITE_P(
    Cases, CudaGeneratorTest,
    testing::Values(WritingCase{"greedy", {.temperature = 0}}, WritingCase{"sampled", {.temperature = 1, .seed = 3}},
                    WritingCase{"penalised", {.temperature = 0, .repetition_penalty = 1.5}},
                    WritingCase{"typical", {.temperature = 1, .typical_p = 0.8, .seed = 3}},
                    WritingCase{"stopped", {.temperature = 1, .seed = 5}, kCompanyVocab, {7, 9, 21, 30}},
                    WritingCase{"lost", {.temperature = 9, .top_p = 0.97, .seed = 5}, 1200}),
    [](const auto& tested) { return std::string(tested.param.name); });

// A token is computed while the one before is told, until a device cannot say what it is; beyond the context, too.
TEST_P(CudaGeneratorTest, WritesAsTheCpuDoes) {
  const WritingCase& c = GetParam();
  ModelConfig config = small_config();
  config.vocab = c.vocab, config.context = 30;
  std::vector<int32_t> written[2];
  int64_t launched = 0;
  for (const Device device : {Device::cpu, Device::cuda})
    run_ranks(1, [&](Communicator& world) {
      TestRank rank(kernels_of(device), 1, device);
      world.use_stream(rank.stream);
      const Mesh mesh(world, {});
      ForwardModel model(rank.context, mesh, config, DType::f32);
      model.part().initialize(rank.context, 11);
      const GenerateOptions options{.max_tokens = 60, .sampling = c.sampling, .stop_tokens = c.stop_tokens};
      Generator(model).generate(std::vector<int32_t>{5, 7, 11}, options,
                                [&](int32_t token) { written[size_t(device)].push_back(token); });
      if (device == Device::cuda) launched = graphs_of(rank).stats().launched;
    });
  EXPECT_EQ(written[1], written[0]);
  EXPECT_EQ(written[0].size() < 60, !c.stop_tokens.empty());
  if (c.stop_tokens.empty()) EXPECT_GT(launched, 10);  // graphs
}

// Pieces of work that are queued for the fourth token of each of some sequences by a model of so many layers.
int64_t pieces_of_a_token(int64_t layers, int64_t experts = 0, int32_t sequences = 1,
                          std::optional<BlockType> rounded = {}) {
  int64_t pieces = 0;
  run_ranks(1, [&](Communicator& world) {
    TestRank rank(cuda_kernels(), 1, Device::cuda);
    world.use_stream(rank.stream);
    const Mesh mesh(world, {});
    ModelConfig c = small_config();
    c.layers = layers, c.head_dim = 64, c.experts = experts;
    if (experts) c.experts_per_token = 2, c.expert_ffn = 24;
    complete(c);
    ForwardModel model(rank.context, mesh, *random_model("random:small", c), DType::bf16, {.others = rounded});
    StepRunner runner(model, 4, 16);
    std::vector<std::vector<int32_t>> blocks;
    for (int32_t i = 0; i < sequences; ++i) blocks.push_back({i});
    for (const std::vector<int32_t>& of_sequence : blocks)
      runner.add(std::vector<int32_t>{5, 7, 11}, {}, 0, of_sequence, 1);
    runner.run();
    runner.clear();
    const int64_t before = graphs_of(rank).stats().issued;
    for (const std::vector<int32_t>& of_sequence : blocks)
      runner.add(std::vector<int32_t>{13}, {}, 3, of_sequence, 1);
    runner.run();
    pieces = graphs_of(rank).stats().issued - before;
  });
  return pieces;
}

// A norm and the sum before it, queries, keys and values, their rotation, keys and values to their places, attention,
// its output; a norm and the sum before it, gate and up, down: what lies between kernels is most of the time of a
// small model. Positions, places and blocks are uploaded by the first layer, and found by the others.
TEST(CudaStepTest, ALayerOfATokenIsNineKernels) {
  constexpr int64_t kKernels = 9, kFound = 2 + 2 + 1;
  EXPECT_EQ(pieces_of_a_token(5) - pieces_of_a_token(3), 2 * (kKernels + kFound));
}

// As texts grow, attention has other lists of blocks and parts, and seldom another shape: all but a few steps are
// graphs alone, also those after hundreds of tokens.
TEST(CudaStepTest, StepsOfTextsThatGrowAreGraphs) {
  constexpr int32_t kSequences = 2, kFirst = 90, kSteps = 100, kBlock = 16, kBlocks = 20;
  int64_t not_graphs = 0, last = 0;
  run_ranks(1, [&](Communicator& world) {
    TestRank rank(cuda_kernels(), 1, Device::cuda);
    world.use_stream(rank.stream);
    const Mesh mesh(world, {});
    ModelConfig c = small_config();
    c.layers = 2, c.head_dim = 64, c.context = 512;
    complete(c);
    ForwardModel model(rank.context, mesh, *random_model("random:small", c), DType::bf16, {});
    StepRunner runner(model, kSequences * kBlocks, kBlock);
    std::vector<std::vector<int32_t>> blocks(kSequences);
    for (int32_t i = 0; i < kSequences * kBlocks; ++i) blocks[size_t(i % kSequences)].push_back(i);
    for (int32_t step = 0; step < kSteps; ++step) {
      const int64_t before = graphs_of(rank).stats().issued;
      runner.clear();
      for (int32_t i = 0; i < kSequences; ++i) {
        const int32_t length = kFirst * (i + 1) + step;
        runner.add(std::vector<int32_t>{13 + i}, {}, length,
                   std::span(blocks[size_t(i)]).first(size_t(length / kBlock + 1)), 1);
      }
      runner.run();
      constexpr int64_t kFew = 2;  // fewer than a graph is made for
      if (graphs_of(rank).stats().issued > before + kFew) ++not_graphs, last = step;
    }
  });
  EXPECT_LE(not_graphs, 4) << "the last one: " << last;  // two until all is known
}

// What is multiplied with blocks is rounded before.
TEST(CudaStepTest, ALayerOfATokenInBlocksIsThirteenKernels) {
  constexpr int64_t kKernels = 9 + 4, kFound = 2 + 2 + 1;
  const auto pieces = [](int64_t layers) { return pieces_of_a_token(layers, 0, 1, BlockType::q8_0); };
  EXPECT_EQ(pieces(5) - pieces(3), 2 * (kKernels + kFound));
}

// A router, a choice that stays on the device, rows of experts, gate and up, down and their sum in the place of two.
// Which tokens' rows they are, and where, is found too.
TEST(CudaStepTest, ALayerOfExpertsIsThirteenKernels) {
  constexpr int64_t kKernels = 13, kFound = 2 + 2 + 1 + 2;
  EXPECT_EQ(pieces_of_a_token(5, 4) - pieces_of_a_token(3, 4), 2 * (kKernels + kFound));
}

TEST(CudaStepTest, ALayerOfExpertsInBlocksIsSeventeenKernels) {
  constexpr int64_t kKernels = 13 + 4, kFound = 2 + 2 + 1 + 2;
  const auto pieces = [](int64_t layers) { return pieces_of_a_token(layers, 4, 1, BlockType::q8_0); };
  EXPECT_EQ(pieces(5) - pieces(3), 2 * (kKernels + kFound));
}

// Tokens of several sequences are ordered by expert where the choice is made: a kernel more, and two uploads less.
TEST(CudaStepTest, ALayerOfExpertsOfSeveralTokensIsFourteen) {
  constexpr int64_t kKernels = 14, kFound = 2 + 2 + 1;
  EXPECT_EQ(pieces_of_a_token(5, 4, 3) - pieces_of_a_token(3, 4, 3), 2 * (kKernels + kFound));
}

}  // namespace
}  // namespace weft
