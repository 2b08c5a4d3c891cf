// Weights in quantised blocks: what a request gets is the same to the last bit, whatever is computed beside it.
#include "base/temporary_folder.h"
#include "pretrained/sample_gguf.h"
#include "serve/company.h"

namespace weft {
namespace {

class HeldBlocksInCompanyTest : public testing::TestWithParam<GgufCase> {};

TEST_P(HeldBlocksInCompanyTest, GivesTheSameBits) {
  const GgufCase& c = GetParam();
  const TemporaryFolder folder;
  const std::string path = folder / "model.gguf";
  write_gguf(c, path);
  const auto source = open_model(path);
  const auto serve = [&](const ContinuousOptions& options, size_t concurrency) {
    std::vector<Answer> answers;
    run_ranks(c.mesh.size(), [&](Communicator& world) {
      TestRank rank(cpu_kernels());
      const Mesh mesh(world, c.mesh);
      ForwardModel model(rank.context, mesh, *source, DType::f32, {.as_stored = true});
      with_engine(model, options, [&](Engine& engine) { answers = answers_of(engine, company(24), concurrency); });
    });
    return answers;
  };
  const std::vector<Answer> alone = serve({.kv_blocks = 8, .max_running = 1, .keeps_prefixes = false}, 1);
  EXPECT_EQ(serve({.kv_blocks = 64, .block_tokens = 4}, 0), alone);
  EXPECT_EQ(serve({.kv_blocks = 16, .block_tokens = 4, .tokens_per_step = 6}, 0), alone);
}

INSTANTIATE_TEST_SUITE_P(Files, HeldBlocksInCompanyTest,
                         testing::Values(GgufCase{"llama", GgmlType::q8_0, false, false},
                                         GgufCase{"qwen3", GgmlType::q4_0, false, true},
                                         GgufCase{"llama", GgmlType::q4_k, false, false, {}, 256, 512},
                                         GgufCase{"llama", GgmlType::q6_k, false, true, {.tp = 2}, 256, 512}),
                         [](const auto& test) {
                           return fmt::format("{}_{}", test.param.architecture, weft::name_of(test.param.type));
                         });

}  // namespace
}  // namespace weft
