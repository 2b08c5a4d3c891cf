// The planner's choices on larger clusters, beside what common guides say.
#include "plan/searches.h"

namespace weft::plan {
namespace {

TEST(SearchTest, TensorParallelismStaysInsideNodes) {
  ModelConfig m = llama8b(4096);
  m.layers = 80, m.hidden = 8192, m.heads = 64, m.ffn = 28672, m.head_dim = 128;
  const SearchResult found = search_for(m, "128xh100-sxm", 4096, 256);
  ASSERT_FALSE(found.ranked.empty());
  for (const Candidate& c : found.ranked) EXPECT_LE(c.recipe.mesh.shape.tp, 8);
}

TEST(SearchTest, LongTextsAreCut) {
  const SearchResult found = search_for(llama8b(131072), "32xh100-sxm", 131072, 4);
  ASSERT_FALSE(found.ranked.empty());
  const MeshShape& s = found.ranked.front().recipe.mesh.shape;
  EXPECT_GT(s.cp, 1) << describe_layout(found.ranked.front().recipe);
}

// Guides: an 8B model on 2 to 4 devices is a matter of FSDP. On two, whole layers leave no room beside what is
// sharded.
TEST(SearchTest, AnEightBillionModelOnFourDevicesIsShardedData) {
  for (const int64_t batch : {16, 64}) {
    const SearchResult found = search_for(llama8b(4096), "4xa100-80", 4096, batch);
    std::vector<Candidate> all = found.ranked;
    all.insert(all.end(), found.dominated.begin(), found.dominated.end());
    const auto is_fsdp = [](const Candidate& c) {
      return c.recipe.mesh.zero == Zero::parameters && c.recipe.mesh.shape.dp() == 4;
    };
    const auto first = std::ranges::find_if(all, is_fsdp);
    ASSERT_NE(first, all.end());
    EXPECT_LT(first->plan.step_s, 1.01 * found.ranked.front().plan.step_s);
  }
}

// Eight devices and fewer texts than that: data parallelism leaves half of them idle, and recomputes to fit.
TEST(SearchTest, FewLongTextsTakeLessThanHalfTheTimeOfShardedData) {
  ModelConfig qwen3 = family_defaults("qwen3");
  qwen3.layers = 36, qwen3.hidden = 4096, qwen3.heads = 32, qwen3.kv_heads = 8, qwen3.head_dim = 128;
  qwen3.ffn = 12288, qwen3.vocab = 151936, qwen3.context = 32768;
  complete(qwen3);
  constexpr int64_t kRows = 4;
  const SearchResult found = search_for(qwen3, "8xh100-sxm", 32768, kRows);
  ASSERT_FALSE(found.ranked.empty());
  Recipe plain;
  plain.model = qwen3;
  plain.train = {.steps = 1, .seq_len = 32768, .global_batch = kRows, .micro_batch = 1, .accumulation = 1};
  plain.train.precision = Precision::bf16, plain.train.recompute.what = RecomputePolicy::What::block;
  plain.mesh.shape.shard = kRows;
  const Cluster rows_of_them = parse_cluster("4xh100-sxm");
  EXPECT_FALSE(plan_step(plain, rows_of_them).fits());
  plain.mesh.zero = Zero::parameters;
  const StepPlan sharded = plan_step(plain, rows_of_them);
  ASSERT_TRUE(sharded.fits());
  EXPECT_LT(found.ranked.front().plan.step_s, 0.5 * sharded.step_s) << describe_layout(found.ranked.front().recipe);
}

}  // namespace
}  // namespace weft::plan
