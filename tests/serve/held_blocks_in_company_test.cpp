// Weights in quantised blocks: what a request gets is the same to the last bit, whatever is computed beside it, and
// whichever rank has the experts.
#include "base/temporary_folder.h"
#include "pretrained/sample_gguf.h"
#include "serve/company.h"

namespace weft {
namespace {

struct CompanyCase : GgufCase {
  std::optional<BlockType> others = {};  // that weights are rounded to
};
class HeldBlocksInCompanyTest : public testing::TestWithParam<CompanyCase> {};

TEST_P(HeldBlocksInCompanyTest, GivesTheSameBits) {
  const CompanyCase& c = GetParam();
  const TemporaryFolder folder;
  const std::string path = folder / "model.gguf";
  write_gguf(c, path);
  const auto source = open_model(path);
  const auto serve = [&](const MeshShape& shape, const ContinuousOptions& options, size_t concurrency) {
    std::vector<ServedAnswer> answers;
    run_ranks(shape.size(), [&](Communicator& world) {
      TestRank rank(cpu_kernels());
      const Mesh mesh(world, shape);
      ForwardModel model(rank.context, mesh, *source, DType::f32, {.as_stored = true, .others = c.others});
      with_engine(model, options, [&](Engine& engine) { answers = answers_of(engine, company(24), concurrency); });
    });
    return answers;
  };
  const std::vector<ServedAnswer> alone =
      serve(c.mesh, {.kv_blocks = 8, .max_running = 1, .keeps_prefixes = false}, 1);
  if (c.mesh.ep > 1 && c.mesh.tp == 1) EXPECT_EQ(serve({}, {.kv_blocks = 64, .block_tokens = 4}, 0), alone);
  EXPECT_EQ(serve(c.mesh, {.kv_blocks = 64, .block_tokens = 4}, 0), alone);
  EXPECT_EQ(serve(c.mesh, {.kv_blocks = 16, .block_tokens = 4, .tokens_per_step = 6}, 0), alone);
}

INSTANTIATE_TEST_SUITE_P(
    Files, HeldBlocksInCompanyTest,
    testing::Values(CompanyCase{{"llama", GgmlType::q8_0, false, false}},
                    CompanyCase{{"qwen3", GgmlType::q4_0, false, true}},
                    CompanyCase{{"llama", GgmlType::q4_k, false, false, {}, 256, 512}},
                    CompanyCase{{"llama", GgmlType::q6_k, false, true, {.tp = 2}, 256, 512}},
                    CompanyCase{{"llama", GgmlType::f32, false, false}, BlockType::fp8},
                    CompanyCase{{"qwen3", GgmlType::f32, false, false, {.tp = 2}}, BlockType::int8},
                    CompanyCase{{"llama", GgmlType::f32, false, true}, BlockType::nf4},
                    CompanyCase{{"qwen3moe", GgmlType::q8_0, true, false}},
                    CompanyCase{{"qwen3moe", GgmlType::q8_0, true, false, {.shard = 2, .ep = 2}}},
                    CompanyCase{{"llama", GgmlType::q8_0, true, false, {.tp = 2}}},
                    CompanyCase{{"qwen3moe", GgmlType::mxfp4, true, false}},
                    CompanyCase{{"qwen3moe", GgmlType::f32, true, false}, BlockType::nf4},
                    CompanyCase{{"llama", GgmlType::f32, true, false, {.shard = 2, .ep = 2}}, BlockType::nf4},
                    CompanyCase{{"qwen3moe", GgmlType::f32, true, false, {.tp = 2}}, BlockType::nf4}),
    [](const auto& test) {
      const CompanyCase& c = test.param;
      return fmt::format("{}{}_{}{}_{}", c.architecture, c.has_experts ? "_experts" : "", weft::name_of(c.type),
                         c.others ? fmt::format("_as_{}", int(*c.others)) : "", name_of_mesh(c.mesh));
    });

}  // namespace
}  // namespace weft
