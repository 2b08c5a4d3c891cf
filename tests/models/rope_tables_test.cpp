// Tables of angles: those of models that read millions of tokens grow with what is read.
#include "weft/models/rope_tables.h"

#include <cmath>

#include "support/rank.h"

namespace weft {
namespace {

ModelConfig long_config() {
  ModelConfig m = family_defaults("llama4");
  m.layers = 4, m.hidden = 8, m.heads = 2, m.head_dim = 4, m.ffn = 8, m.vocab = 11, m.context = 10 << 20;
  complete(m);
  return m;
}

Pass pass_at(const std::vector<int32_t>& positions) {
  return {.num_tokens = int64_t(positions.size()), .attention = {.positions = positions.data()}};
}

TEST(RopeTablesTest, GrowWithTheTextsThatAreRead) {
  constexpr int64_t kFirst = RopeTables::kFirstPositions;
  TestRank rank(cpu_kernels());
  const ModelConfig config = long_config();
  RopeTables tables(config);
  tables.prepare(rank.context, DType::f32);
  const RopeTable &turned = tables.of(0), &scaled = *tables.unrotated();
  EXPECT_EQ(turned.cos.dim(0), kFirst);
  const void* const before = turned.cos.raw();
  tables.reserve(rank.context, kFirst);
  EXPECT_EQ(turned.cos.raw(), before);
  tables.reserve(rank.context, kFirst + 5);
  EXPECT_EQ(turned.cos.dim(0), kFirst + 5);
  const std::vector<int32_t> near{7, int32_t(kFirst) - 1}, far{int32_t(3 * kFirst), 2};
  tables.prepare(rank.context, pass_at(near));
  EXPECT_EQ(turned.cos.dim(0), kFirst + 5);
  tables.prepare(rank.context, pass_at(far));
  EXPECT_EQ(turned.sin.dim(0), 4 * kFirst);
  ASSERT_EQ(scaled.query_factors.dim(0), 4 * kFirst);
  for (const int32_t p : {0, 5, near[1], far[0]}) {
    for (int64_t i = 0; i < 2; ++i) {
      const double angle = p * std::pow(config.rope_theta, -double(i) / 2);
      EXPECT_FLOAT_EQ(turned.cos.data<float>()[p * 2 + i], float(std::cos(angle))) << p;
    }
    EXPECT_FLOAT_EQ(scaled.query_factors.data<float>()[p], float(1 + 0.1 * std::log1p((p + 1) / 8192))) << p;
    EXPECT_EQ(scaled.cos.data<float>()[p], 1.0f);
  }
}

TEST(RopeTablesTest, AreWholeOfOtherModels) {
  TestRank rank(cpu_kernels());
  ModelConfig config = long_config();
  config.context = 40;
  RopeTables tables(config);
  tables.prepare(rank.context, DType::f32);
  EXPECT_EQ(tables.of(0).cos.dim(0), 40);
}

}  // namespace
}  // namespace weft
