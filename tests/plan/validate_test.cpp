// Tables of published runs: how they are read, and what errors are made of.
#include "weft/plan/validate.h"
#include "weft/plan/published_choice.h"

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

// Each of these once ended the program, ran for as long as one liked, or was taken for something else.
TEST(ValidateTest, ImpossibleFiguresAreRefusedByName) {
  struct Case {
    const char *from, *to;
    std::vector<const char*> words;
  };
  const Case cases[] = {
      {"a, note", "zero1 within 0.5", {"zero1 within", "from 1 to 65536"}},
      {"a, note", "zero1 within 2.5", {"zero1 within 2.5", "whole number"}},
      {"a, note", "zero1 within a node", {"zero1 within", "from 1 to 65536"}},
      {"a, note", "-5 Gbps node", {"-5 Gbps node", "from 1 to"}},
      {"64,8,8,4,2", "64,8,0,4,2", {"dp = \"0\"", "from 1 to 65536"}},
      {"64,8,8,4,2", "0,8,8,4,2", {"n_gpus = \"0\"", "from 1 to 65536"}},
      {"64,8,8,4,2", "4294967360,8,8,4,2", {"n_gpus = \"4294967360\"", "from 1 to 65536"}},
      {"64,8,8,4,2", "64,8,,4,2", {"the mesh has 8 ranks, the run 64"}},
      {"64,8,8,4,2", "64,8,65536,65536,65536", {"the mesh has 281474976710656 ranks"}},
      {"64,8,8,4,2", ",8,8,4,2", {"n_gpus is empty"}},
      {"64,8,8,4,2", "64,0,8,4,2", {"gpus_per_node = \"0\""}},
      {",1,1,,1,1,128", ",1,0,,1,1,128", {"ep = \"0\"", "from 1 to 65536"}},
      {",1,1,,1,1,128", ",1,16,,1,1,128", {"ep 16 does not divide dp x cp = 8"}},
      {",1,1,,1,1,128", ",1,1,100000000,1,1,128", {"vpp = \"100000000\"", "from 1 to 64"}},
      {",1,1,,1,1,128", ",1,1,32,1,1,128", {"pp 2 x vpp 32", "32 layers"}},
      {",1,1,,1,1,128", ",1,1,,9,1,128", {"zero = \"9\"", "from 0 to 3"}},
      {",1,1,,1,1,128", ",1,1,,1,-1,128", {"micro_batch = \"-1\"", "from 1 to 1024"}},
      {",1,1,,1,1,128", ",1,1,,1,1,many", {"global_batch = \"many\"", "a whole number"}},
      {"8192,,,", "8192.5,,,", {"seq = \"8192.5\"", "a whole number"}},
      {",1,1,,1,1,128", ",1,1,,1,1024,8192", {"1024 x 8192 tokens", "more than is simulated"}},
      {"8192,,,", "8192,4,9,", {"topk = \"9\"", "from 1 to 4"}},
      {"8.0,32,", "8.0,100000000,", {"layers = \"100000000\"", "from 1 to 1024"}},
      {"bf16,4.0", "bf16,nan", {"measured_step_s = \"nan\"", "from 0 to"}},
      {"bf16,4.0", "bf16,1e-300", {"a step of 1e-300 s"}},
  };
  for (const auto& [from, to, words] : cases) {
    std::string row = kRow;
    row.replace(row.find(from), std::string(from).size(), to);
    const ReadRun read = read_run(rows_of(row).at(0));
    EXPECT_FALSE(read.run) << to;
    for (const char* word : words)
      EXPECT_NE(read.why_not.find(word), std::string::npos) << to << ": " << read.why_not;
  }
}

TEST(ValidateTest, DevicesHaveTheNamesOfTheCatalogue) {
  const auto read = [](const std::string& gpu) {
    std::string row = kRow;
    row.replace(row.find("H100-SXM"), 8, gpu);
    return read_run(rows_of(row).at(0));
  };
  for (const std::string& name : hardware_names()) {
    const ReadRun run = read(name);
    ASSERT_TRUE(run.run) << run.why_not;
    EXPECT_EQ(run.run->cluster.hardware.name, name);
  }
  for (const auto& [gpu, name] : {std::pair("V100-32", "v100-sxm"),
                                  {"A100-80", "a100-80"},
                                  {"RTX4090", "rtx4090"},
                                  {"H100-96GB-HBM2e-500W", "h100-96gb-500w"}})
    EXPECT_EQ(read(gpu).run.value().cluster.hardware.name, name);
  // A table is data: what it names is not opened as a file.
  for (const char* gpu : {"H100", "mine.toml"}) {
    const std::string why = read(gpu).why_not;
    EXPECT_NE(why.find(fmt::format("gpu = \"{}\"", gpu)), std::string::npos) << why;
    EXPECT_NE(why.find("h100-sxm, h200"), std::string::npos) << why;
  }
}

// Numbers as spreadsheets write them.
TEST(ValidateTest, NumbersMayHaveSpacesAndZerosBehindThePoint) {
  std::string row = kRow;
  row.replace(row.find("64,8,8,4,2"), 10, " 64 ,8,8.0,4,2");
  const ReadRun read = read_run(rows_of(row).at(0));
  ASSERT_TRUE(read.run) << read.why_not;
  EXPECT_EQ(read.run->recipe.mesh.shape, (MeshShape{.pp = 2, .shard = 8, .tp = 4}));
}

// The example with other words in it.
MeasuredRun run_with(std::initializer_list<std::pair<std::string, std::string>> changes) {
  std::string row = kRow;
  for (const auto& [from, to] : changes) row.replace(row.find(from), from.size(), to);
  const ReadRun read = read_run(rows_of(row).at(0));
  EXPECT_TRUE(read.run) << read.why_not;
  return read.run.value_or(MeasuredRun{});
}

TEST(ValidateTest, ProgramsDoWhatTheyAreDocumentedToDo) {
  const Stack nemo = run_with({{",s,m,", ",github:NVIDIA/x,m,"}}).stack;
  const Stack mosaic = run_with({{",s,m,", ",github:mosaicml/x,m,"}}).stack;
  EXPECT_TRUE(nemo.has_tp_overlap && nemo.has_sharded_dispatch && nemo.has_fused_attention);
  EXPECT_FALSE(mosaic.has_tp_overlap || mosaic.has_sharded_dispatch);
  EXPECT_GT(nemo.attention, 2 * mosaic.attention);  // FlashAttention-3 and Triton's first, on Hopper
  EXPECT_EQ(nemo.whole_logits, 128256 / 4);
  const Stack eager = run_with({{"a, note", "compile off"}}).stack;
  EXPECT_GT(eager.small_kernels, mosaic.small_kernels);
  EXPECT_TRUE(run_with({{"bf16,4.0", "fp8,4.0"}}).stack.has_fp8);
  EXPECT_FALSE(run_with({{"bf16,4.0", "fp8,4.0"}, {"a, note", "float8 rowwise"}}).stack.has_fp8);
  EXPECT_LT(run_with({{"a, note", "full SFT"}}).stack.visible, 0.1);
}

TEST(ValidateTest, AttentionBeforeFlashAttentionKeepsScores) {
  const auto is_fused = [](const char* source, const char* gpu) {
    return run_with({{",s,m,", fmt::format(",{},m,", source)}, {"H100-SXM", gpu}}).stack.has_fused_attention;
  };
  EXPECT_FALSE(is_fused("Megatron-LM SC21 Table 1", "A100-80"));
  EXPECT_TRUE(is_fused("Megatron-LM", "H100-SXM"));
  EXPECT_FALSE(is_fused("Korthikanti arXiv:2205.05198", "A100-80"));
  EXPECT_TRUE(is_fused("Zero Bubble arXiv:2401.10241", "A100-80"));
  EXPECT_FALSE(is_fused("any", "V100-32"));
}

TEST(ValidateTest, NotesSayWhichPortsGroupsAndSchedules) {
  const auto network = [](const char* note) {
    return run_with({{"a, note", note}}).cluster.hardware.network.bytes_per_s;
  };
  EXPECT_DOUBLE_EQ(network("4x100G RoCE/node"), 6.25e9);
  EXPECT_DOUBLE_EQ(network("A100 with 1600 Gbps node-node interconnect"), 25e9);
  EXPECT_DOUBLE_EQ(network("GBS 4x, 8x8 mesh"), find_hardware("h100-sxm").network.bytes_per_s);
  const MeshShape within = run_with({{"a, note", "zero1 within 4 GPUs"}}).recipe.mesh.shape;
  EXPECT_EQ(within.replicate, 2);
  EXPECT_EQ(within.shard, 4);
  EXPECT_EQ(run_with({{"a, note", "schedule ZB-1p"}}).recipe.mesh.schedule, ScheduleKind::zb_h1);
  EXPECT_EQ(run_with({{",1,,1,1,128", ",1,,3,1,128"}}).recipe.mesh.zero, Zero::gradients);  // with a pipeline
}

TEST(ValidateTest, LinksThatSpanNodesAreOneNode) {
  const auto links = [](const char* gpu) {
    return run_with({{"H100-SXM,64,8", fmt::format("{},64,4", gpu)}}).cluster.hardware.devices_per_node;
  };
  EXPECT_EQ(links("H200"), 4);
  EXPECT_EQ(links("GB200"), 72);
  EXPECT_EQ(links("GB300"), 72);
}

// Five matrices of a layer and two more, each of its size, through a ring of the whole group or of a node.
TEST(ValidateTest, OwnersBroadcastMatricesAfterTheUpdate) {
  const auto overhead = [](const char* source, const char* note) {
    return run_with({{",s,m,", fmt::format(",{},m,", source)},
                     {"a, note", note},
                     {"64,8,8,4,2,1,1,,", "64,8,64,1,1,1,1,1,"}})
        .stack.step_overhead_s;
  };
  const double none = overhead("github:other", ""), whole = overhead("github:InternLM/InternEvo", ""),
               node = overhead("github:InternLM/InternEvo", "zero1 within 8 GPUs");
  const double bytes = 2 * 8.03e9, h100_node = 450e9 * 0.78, ports = 8 * 50e9 * 0.78;
  EXPECT_NEAR(node - none, bytes / h100_node, 0.25 * bytes / h100_node);
  EXPECT_GT(whole - none, bytes / ports);
  EXPECT_LT(whole - none, 2 * bytes / ports);
}

// The first choice of a task is the layout that is predicted fastest; a layout's fastest run counts, whatever
// was predicted for its others.
TEST(ValidateTest, ChoicesStandWhereTheyWereMeasured) {
  const auto run = [](const char* task, const char* layout, double measured, double predicted) {
    ValidatedRun r{"id", "s", measured, predicted};
    r.task = task, r.layout = layout;
    return r;
  };
  const std::vector<ValidatedRun> runs = {run("a", "x", 3.0, 1.0), run("a", "x", 2.0, 1.1), run("a", "y", 1.0, 1.2),
                                          run("a", "z", 4.0, 1.3), run("b", "x", 1.0, 1.0), run("b", "y", 1.0, 1.0)};
  const std::vector<PublishedChoice> choices = published_choices(runs);
  ASSERT_EQ(choices.size(), 1u);  // b has two layouts only
  EXPECT_EQ(choices[0].layout, "x");
  EXPECT_EQ(choices[0].layouts, 3);
  EXPECT_EQ(choices[0].place, 2);
  EXPECT_NEAR(choices[0].loss, 1.0, 1e-12);
  EXPECT_EQ(published_choices(runs, 2).size(), 2u);
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
