// The program on devices, as a user meets it: over the emulator, beside the program, where there is no CUDA.
#include <map>
#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "pretrained/golden_models.h"

namespace weft {
namespace {

using Json = nlohmann::json;

const std::string kEmulated = std::string(WEFT_PROGRAM) + "_emulated";

struct Bench {
  const char* name;
  const char* arguments;
  std::vector<const char*> times, shares;  // keys of the first row, or of the whole where there are no rows
};

class DeviceBenchTest : public testing::TestWithParam<Bench> {
 protected:
  Json run(const std::string& more) const {
    if (!std::filesystem::exists(kEmulated)) return {};
    const Program weft;
    const Outcome o = weft.shell(fmt::format("{} bench {}{} --json", kEmulated, GetParam().arguments, more));
    EXPECT_EQ(o.status, 0) << o.err;
    return o.status == 0 ? Json::parse(o.out) : Json();
  }
  static Json row_of(const Json& all) { return all.contains("rows") ? all["rows"][0] : all; }
};
std::string bench_name(const testing::TestParamInfo<Bench>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(
    Benches, DeviceBenchTest,
    testing::Values(
        Bench{"matmul", "matmul --shape 5,48,24 --repeats 2", {"seconds"}, {"share", "peak_flops_per_s"}},
        Bench{"groups",
              "matmul --shape 50,48,24 --groups 3 --dtype bf16 --repeats 2",
              {"seconds", "alone_seconds"},
              {"share", "peak_flops_per_s"}},
        Bench{"blocks", "matmul --shape 1,64,24 --blocks q8_0 --repeats 2", {"seconds"}, {"read_bytes_per_s"}},
        Bench{"attention",
              "attention --shape 2,20,4,2,16 --repeats 2 --kv-dtype int8",
              {"forward_s", "backward_s"},
              {"forward_share", "backward_share"}},
        Bench{"train", "train --shape tiny --steps 2", {"step_ms"}, {"mfu", "peak_flops_per_s"}},
        Bench{"train_dp2", "train --shape tiny --steps 2 --mesh dp=2,zero=1", {"step_ms"}, {"mfu"}}),
    bench_name);

TEST_P(DeviceBenchTest, MeasuresTheDevice) {
  const Json all = run(" --device cuda");
  if (all.is_null()) GTEST_SKIP() << "there is no " << kEmulated;
  EXPECT_EQ(all["device"], "cuda");
  for (const char* time : GetParam().times) EXPECT_GT(row_of(all)[time], 0) << time;
  // Limits are measured, on any device.
  for (const char* share : GetParam().shares) EXPECT_GT(row_of(all)[share], 0) << share;
}

// A trace of a device counts each op once, by what the device did, and can be drawn.
TEST(DeviceProgramTest, TracesTrainingOnADevice) {
  if (!std::filesystem::exists(kEmulated)) GTEST_SKIP() << "there is no " << kEmulated;
  const Program weft;
  weft.write("r.toml", sample_recipe());
  weft.write("text.txt", sample_text());
  const Outcome train = weft.shell(kEmulated +
                                   " train r.toml --device cuda --train.steps=2 --train.eval_every=0 "
                                   "--train.micro_batch=4 --log.trace_steps=[2,2]");
  ASSERT_EQ(train.status, 0) << train.err;
  std::map<std::string, int> on_device, on_host;
  const Json trace = Json::parse(weft.read_file("run/trace.json"));
  for (const Json& event : trace["traceEvents"])
    if (event["ph"] == "X") ++(event["cat"] == "host" ? on_host : on_device)[event["name"]];
  EXPECT_EQ(on_device["attention"], 2 * 2 * 2) << "layers, passes and micro-batches";
  EXPECT_EQ(on_host["attention"], on_device["attention"]);

  const Outcome inspect = weft.run("inspect run/trace.json --json");
  ASSERT_EQ(inspect.status, 0) << inspect.err;
  for (const Json& span : Json::parse(inspect.out)["spans"])
    if (const std::string name = span["name"]; name != "wait") EXPECT_EQ(span["count"], on_device[name]) << name;
  const Outcome view = weft.run("plan --view run/trace.json --report run.html");
  EXPECT_EQ(view.status, 0) << view.err;
  EXPECT_NE(view.out.find("forward"), std::string::npos) << view.out;
}

TEST(DeviceProgramTest, BenchStepsOfServing) {
  if (!std::filesystem::exists(kEmulated)) GTEST_SKIP() << "there is no " << kEmulated;
  const GoldenModel golden("llama");
  const Program weft;
  const auto row = [&](const std::string& arguments) {
    const Outcome o = weft.shell(fmt::format("{} bench {} --repeats 2 --device cuda --json", kEmulated, arguments));
    EXPECT_EQ(o.status, 0) << o.err;
    return o.status == 0 ? Json::parse(o.out)["rows"][0] : Json();
  };
  const Json decode = row(fmt::format("decode {} --sequences 2 --context 5", golden.path()));
  EXPECT_GT(decode["read_bytes_per_s"], 0);
  EXPECT_GT(decode["read_bandwidth"], 0);
  const Json prefill = row(fmt::format("prefill {} --tokens 9 --chunk 4", golden.path()));
  EXPECT_GT(prefill["peak_flops"], 0);
}

// Through the host where ranks share a device, by NCCL where they do not.
TEST(DeviceProgramTest, BenchMovesTensorsOfDevices) {
  if (!std::filesystem::exists(kEmulated)) GTEST_SKIP() << "there is no " << kEmulated;
  const Program weft;
  for (const char* devices : {"1", "2"}) {
    const Outcome o =
        weft.shell(fmt::format("WEFT_EMULATED_DEVICES={} {} bench comm --sizes 64,5000 --repeats 2 "
                               "--device cuda --json",
                               devices, kEmulated));
    ASSERT_EQ(o.status, 0) << o.err;
    const Json all = Json::parse(o.out);
    EXPECT_EQ(all["device"], "cuda");
    ASSERT_EQ(all["rows"].size(), 12u);  // six operations
    for (const Json& row : all["rows"]) EXPECT_GT(row["bus_bytes_per_s"], 0) << row;
  }
}

TEST(DeviceProgramTest, BenchTellsOpsApart) {
  if (!std::filesystem::exists(kEmulated)) GTEST_SKIP() << "there is no " << kEmulated;
  const Program weft;
  const Outcome o = weft.shell(kEmulated + " bench train --shape tiny --steps 2 --by-op --device cuda --json");
  ASSERT_EQ(o.status, 0) << o.err;
  const Json all = Json::parse(o.out);
  double seconds = 0;
  for (const Json& op : all["ops"]) {
    EXPECT_GE(op["seconds"], 0) << op;
    seconds += op["seconds"].get<double>();
  }
  EXPECT_GT(all["ops"].size(), 10u);
  EXPECT_GT(seconds, 0.3e-3 * all["min_ms"].get<double>()) << "emulated ops are what a step is made of";
}

}  // namespace
}  // namespace weft
