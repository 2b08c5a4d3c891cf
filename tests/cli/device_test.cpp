// The program on devices, as a user meets it: over the emulator, beside the program, where there is no CUDA.
#include <nlohmann/json.hpp>

#include "cli/program.h"

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
  Json run(const std::string& more, const std::string& environment = "") const {
    if (!std::filesystem::exists(kEmulated)) return {};
    const Program weft;
    const Outcome o =
        weft.shell(fmt::format("{} {} bench {}{} --json", environment, kEmulated, GetParam().arguments, more));
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
  // What limits a device that the catalogue does not know, nobody says.
  for (const char* share : GetParam().shares) EXPECT_TRUE(row_of(all)[share].is_null()) << share;
}

TEST_P(DeviceBenchTest, TakesLimitsFromTheCatalogue) {
  const Json all = run(" --device cuda", "WEFT_EMULATED_NAME='NVIDIA H100 80GB HBM3'");
  if (all.is_null()) GTEST_SKIP() << "there is no " << kEmulated;
  for (const char* share : GetParam().shares) EXPECT_GT(row_of(all)[share], 0) << share;
  if (row_of(all).contains("peak_flops_per_s")) EXPECT_DOUBLE_EQ(row_of(all)["peak_flops_per_s"], 67e12);
  if (row_of(all).contains("read_bytes_per_s")) EXPECT_DOUBLE_EQ(row_of(all)["read_bytes_per_s"], 3352e9);
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
