// FarWeights: layers whose weights are read anew for each step give the bits that near ones give, in less memory.
#include "weft/pretrained/far_weights.h"

#include <unistd.h>

#include "base/temporary_folder.h"
#include "serve/company.h"
#include "support/rank.h"
#include "weft/comm/single/single.h"
#include "weft/comm/threads/run_ranks.h"
#include "weft/pretrained/random_model.h"

namespace weft {
namespace {

struct FarCase {
  const char* name;
  const char* family = "llama";
  int64_t far = 1;
  MeshShape mesh = {};
  const char* quantize = "none";
  DType dtype = DType::f32;
  int64_t experts = 0;
};
void PrintTo(const FarCase& c, std::ostream* out) { *out << c.name; }
class FarWeightsTest : public testing::TestWithParam<FarCase> {};

TEST_P(FarWeightsTest, GivesTheBitsOfNearOnes) {
  const FarCase& c = GetParam();
  const TemporaryFolder folder;
  ModelConfig config = small_config(c.family);
  config.layers = 6;
  if (c.experts > 0) config.experts = int(c.experts), config.experts_per_token = 2, config.expert_ffn = 32;
  complete(config);
  const auto source = random_model("random:small", config);
  struct Result {
    std::vector<ServedAnswer> answers;
    int64_t live = 0, loaded = 0;  // bytes, of all ranks
  };
  const auto serve = [&](int64_t far) {
    Result result;
    std::mutex mutex;
    run_ranks(c.mesh.size(), [&](Communicator& world) {
      TestRank rank(cpu_kernels());
      const Mesh mesh(world, c.mesh);
      ForwardModel model(rank.context, mesh, *source, c.dtype, parse_block_choice(c.quantize),
                         {.count = far, .folder = folder.path()});
      const int64_t live = rank.allocator.stats().live_bytes;
      with_engine(model, {.kv_blocks = 64, .block_tokens = 4},
                  [&](Engine& engine) { result.answers = answers_of(engine, company(12)); });
      const std::lock_guard lock(mutex);
      result.live += live;
      result.loaded += model.far_stats().loaded_bytes;
    });
    return result;
  };
  const Result near = serve(0), with_far = serve(c.far);
  EXPECT_EQ(with_far.answers, near.answers);
  EXPECT_EQ(near.loaded, 0);
  EXPECT_GT(with_far.loaded, 0);
  if (c.far > 2) EXPECT_LT(with_far.live, near.live);
  EXPECT_TRUE(list_folder(FileSystem::real(), folder.path()).empty()) << "the file has no name";
}

INSTANTIATE_TEST_SUITE_P(
    Layers, FarWeightsTest,
    testing::Values(FarCase{"one"}, FarCase{.name = "two", .far = 2}, FarCase{.name = "five", .far = 5},
                    FarCase{.name = "all", .far = 6},
                    FarCase{.name = "all_of_gpt2_tp2", .family = "gpt2", .far = 6, .mesh = {.tp = 2}},
                    FarCase{.name = "stages", .far = 3, .mesh = {.pp = 2}},
                    FarCase{.name = "int8_of_stages", .far = 3, .mesh = {.pp = 2}, .quantize = "int8"},
                    FarCase{.name = "bf16", .far = 4, .dtype = DType::bf16},
                    FarCase{.name = "nf4_tp2", .far = 6, .mesh = {.tp = 2}, .quantize = "nf4"},
                    FarCase{.name = "experts", .far = 6, .experts = 4},
                    FarCase{.name = "experts_ep2", .far = 6, .mesh = {.shard = 2, .ep = 2}, .experts = 4},
                    FarCase{.name = "experts_in_q8_0", .far = 6, .quantize = "q8_0", .experts = 4},
                    FarCase{
                        .name = "experts_in_nf4_tp2", .far = 4, .mesh = {.tp = 2}, .quantize = "nf4", .experts = 4}),
    [](const auto& test) { return test.param.name; });

// The file has no name, but an open file can be cut by its number.
int cut_files_of(const std::string& folder) {
  int count = 0;
  for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(file.path(), error);
    if (!error && target.starts_with(folder)) count += ::truncate(file.path().c_str(), 0) == 0;
  }
  return count;
}

TEST(FarLayersTest, AnEngineEndsWhenTheyComeNoMore) {
  const TemporaryFolder folder;
  ModelConfig config = small_config();
  config.layers = 4;
  complete(config);
  const auto source = random_model("random:small", config);
  TestRank rank(cpu_kernels());
  const auto alone = make_single_communicator();
  const Mesh mesh(*alone, {});
  ForwardModel model(rank.context, mesh, *source, DType::f32, parse_block_choice("none"),
                     {.count = 4, .folder = folder.path()});
  Heard failed;
  EXPECT_THROW(with_engine(model, {.kv_blocks = 64},
                           [&](Engine& engine) {
                             EXPECT_EQ(ask(engine, greedy({1, 2}, 3)).get().finish.reason, FinishReason::length);
                             ASSERT_EQ(cut_files_of(folder.path()), 1);
                             failed = ask(engine, greedy({1, 2}, 20)).get();
                             try {
                               ask(engine, greedy({1, 2}, 3));
                               ADD_FAILURE() << "it takes more";
                             } catch (const Busy& e) {
                               EXPECT_NE(std::string_view(e.what()).find("cannot read"), std::string_view::npos);
                             }
                           }),
               Error);
  EXPECT_EQ(failed.finish.reason, FinishReason::error);
  EXPECT_TRUE(model.has_failed());
}

TEST(FarStepTest, AStepThatFailedIsFollowedByAWholeOne) {
  const TemporaryFolder folder;
  TestRank rank(cpu_kernels());
  std::vector<std::unique_ptr<Param>> params;
  FarWeights far(rank.context, {.count = 5, .folder = folder.path()}, 0);
  for (size_t g = 0; g < 5; ++g) {
    params.push_back(std::make_unique<Param>("p", Placement({3}), Init::zeros()));
    params.back()->value = rank.context.empty(DType::f32, {3});
    std::fill_n(params.back()->value.data<float>(), 3, float(g));
    far.add(2 * g + 1, {params.back().get()});
  }
  far.start();
  const auto pass = [&](size_t stops_at) {
    for (size_t g = 0; g < 5; ++g) {
      far.enter(2 * g + 1, {});
      EXPECT_EQ(params[g]->value.data<float>()[2], float(g)) << g;
      if (g + 1 == stops_at) return;
      far.leave(2 * g + 1, {});
      far.leave(2 * g + 2, far.enter(2 * g + 2, {}));  // a near one
    }
  };
  for (const size_t stops_at : {0u, 1u, 2u, 3u, 5u, 4u, 0u}) pass(stops_at), pass(0);
  EXPECT_THROW(far.add(9, {}), std::exception);
}

}  // namespace
}  // namespace weft
