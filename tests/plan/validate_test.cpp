// Tables of published runs: how they are read, and what errors are made of.
#include "weft/plan/validate.h"

#include <gtest/gtest.h>

#include "weft/base/error.h"

namespace weft::plan {
namespace {

constexpr std::string_view kHeader =
    "id,source,model,params_b,layers,hidden,heads,kv_heads,ffn,gated_mlp,vocab,seq,experts,topk,gpu,n_gpus,"
    "gpus_per_node,dp,tp,pp,cp,ep,vpp,zero,micro_batch,global_batch,recompute,sequence_parallel,precision,"
    "measured_step_s,measured_tflops_per_gpu,measured_mfu_pct,measured_tokens_per_s_per_gpu,measured_mem_gb,notes\n";

std::vector<CsvRow> rows_of(const std::string& lines) { return read_csv(std::string(kHeader) + lines, "runs.csv"); }

TEST(CsvTest, QuotesAndCommas) {
  const std::vector<CsvRow> rows = read_csv("a,b\r\n1,\"x, \"\"y\"\"\nz\"\n\n2,\n", "t.csv");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].at("b"), "x, \"y\"\nz");
  EXPECT_EQ(rows[1].at("b"), "");
  EXPECT_THROW(read_csv("a,b\n1\n", "t.csv"), UsageError);
  EXPECT_THROW(read_csv("a,b\n1,\"2\n", "t.csv"), UsageError);
}

// A dense model with tensor and pipeline parallelism: Megatron-LM's 8-billion-parameter row, as an example.
constexpr const char* kRow =
    "made-001,s,m,8.0,32,4096,32,8,14336,1,128256,8192,,,H100-SXM,64,8,8,4,2,1,1,,1,1,128,none,1,bf16,"
    "4.0,,,,,\"a, note\"\n";

TEST(ValidateTest, RowsBecomeRecipes) {
  const ReadRun read = read_run(rows_of(kRow).at(0));
  ASSERT_TRUE(read.run) << read.why_not;
  const Recipe& r = read.run->recipe;
  EXPECT_EQ(read.run->source, "made");
  EXPECT_EQ(r.mesh.shape, (MeshShape{.pp = 2, .shard = 8, .tp = 4}));
  EXPECT_TRUE(r.mesh.sequence_parallel);
  EXPECT_EQ(r.train.accumulation, 16);
  EXPECT_EQ(r.model.kv_heads, 8);
  EXPECT_DOUBLE_EQ(read.run->measured_s, 4.0);
}

TEST(ValidateTest, RowsThatCannotBeComparedSayWhy) {
  const auto why = [](std::string from, const std::string& to) {
    std::string row = kRow;
    row.replace(row.find(from), from.size(), to);
    return read_run(rows_of(row).at(0)).why_not;
  };
  EXPECT_NE(why("H100-SXM", "TPU").find("TPU"), std::string::npos);
  EXPECT_NE(why("bf16,4.0", "bf16,").find("no time"), std::string::npos);
  EXPECT_NE(why("64,8,8,4", "63,8,8,4").find("ranks"), std::string::npos);
  EXPECT_NE(why("1,1,128", "1,1,127").find("global_batch"), std::string::npos);
}

TEST(ValidateTest, ErrorsAreSummarised) {
  std::vector<ValidatedRun> runs;
  for (const double predicted : {0.9, 1.0, 1.1, 1.5}) runs.push_back({"x", "s", 1.0, predicted});
  const ErrorSummary s = summarise(runs);
  EXPECT_EQ(s.count, 4);
  EXPECT_NEAR(s.median, 0.1, 1e-9);
  EXPECT_NEAR(s.p90, 0.38, 1e-9);
  EXPECT_EQ(summarise(runs, "other").count, 0);
}

}  // namespace
}  // namespace weft::plan
