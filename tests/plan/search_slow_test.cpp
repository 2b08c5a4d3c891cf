// The planner's choices on larger clusters, beside what common guides say.
#include "weft/plan/search.h"

#include <gtest/gtest.h>

namespace weft::plan {
namespace {

ModelConfig llama8b(int64_t context = 8192) {
  ModelConfig m = family_defaults("llama");
  m.layers = 32, m.hidden = 4096, m.heads = 32, m.kv_heads = 8, m.ffn = 14336, m.vocab = 128256;
  m.context = context;
  complete(m);
  return m;
}

SearchResult search_for(const ModelConfig& model, const std::string& cluster, int64_t seq_len, int64_t batch) {
  return search(
      {.model = model, .seq_len = seq_len, .global_batch = batch, .cluster = parse_cluster(cluster), .num_full = 6});
}

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

}  // namespace
}  // namespace weft::plan
