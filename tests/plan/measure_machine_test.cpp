// Hardware whose devices are ranks of one machine: what each has, and the file that says so.
#include "weft/plan/measure_machine.h"

#include <gtest/gtest.h>

#include "weft/plan/simulate.h"

namespace weft::plan {
namespace {

Hardware two_cores() {
  Hardware h;
  h.name = "two-cores", h.description = "two cores";
  h.memory_bytes = double(int64_t(8) << 30), h.reserved_bytes = double(1 << 30), h.memory_bytes_per_s = 20e9;
  h.peak_flops = {200e9, 400e9, 200e9, 0}, h.reached = {0.8, 0.7, 0.8, 0};
  h.half_depth = 16, h.launch_s = 2e-6, h.devices_per_node = 4;
  h.node = {.bytes_per_s = 4e9, .latency_s = 5e-6}, h.network = {.bytes_per_s = 1e9, .latency_s = 50e-6};
  h.kernel_bytes_per_s = {{"norm", 8e9}, {"rope", 12e9}};
  h.sharing = {
      {1, 1, 1, 1, 2e-6, 20e9, 0}, {2, 0.5, 0.6, 0.75, 1e-6, 4e9, 5e-6}, {4, 0.25, 0.25, 0.75, 4e-6, 2e9, 40e-6}};
  return h;
}

TEST(SharedHardwareTest, RanksShareOneMachine) {
  const Hardware h = two_cores();
  const Hardware one = h.of_ranks(1), two = h.of_ranks(2), three = h.of_ranks(3), eight = h.of_ranks(8);
  EXPECT_DOUBLE_EQ(one.sustained, 1);
  EXPECT_DOUBLE_EQ(two.sustained, 0.5);
  EXPECT_DOUBLE_EQ(two.memory_bytes, h.memory_bytes / 2);
  EXPECT_DOUBLE_EQ(two.memory_bytes_per_s, 12e9);
  EXPECT_DOUBLE_EQ(two.launch_s, 1e-6);
  EXPECT_DOUBLE_EQ(two.kernel_bytes_per_s.at("norm"), 4e9);
  EXPECT_GT(three.sustained, 0.25);
  EXPECT_LT(three.sustained, 0.5);
  EXPECT_DOUBLE_EQ(eight.sustained, 0.125);  // twice as many as were measured: they take turns
  EXPECT_FALSE(two.is_shared());
  EXPECT_DOUBLE_EQ(parse_cluster("2xh100-sxm").hardware.of_ranks(2).sustained, find_hardware("h100-sxm").sustained);
}

TEST(SharedHardwareTest, RanksThatWaitLeaveTheirCores) {
  const Hardware h = two_cores();
  EXPECT_DOUBLE_EQ(h.relief(2, 2), 1);
  EXPECT_DOUBLE_EQ(h.relief(2, 1), 1.5);  // alone a rank of one core runs at 0.75
  EXPECT_DOUBLE_EQ(h.relief(4, 3), 4.0 / 3);
  EXPECT_DOUBLE_EQ(h.relief(4, 2), 2);
  EXPECT_DOUBLE_EQ(h.relief(4, 1), 3);  // not 4: of one core
  EXPECT_DOUBLE_EQ(find_hardware("h100-sxm").relief(8, 1), 1);
  // A stage that waits: 3 s at the speed of one that is alone, then the other one's second.
  Hardware slow = h;
  slow.memory_bytes_per_s = slow.memory_reached = 1, slow.kernel_bytes_per_s = {{"norm", 1}};
  for (Sharing& s : slow.sharing) s.launch_s = s.link_latency_s = 0, s.link_bytes_per_s = 1e18;
  const CostModel costs(slow, {.pp = 2});
  const auto norm = [](double bytes) { return Event{.kind = Event::Kind::memory, .bytes = bytes, .name = "norm"}; };
  const Event sent{.kind = Event::Kind::send, .axis = Axis::pp, .peer = 1, .tag = 7};
  const Event taken{.kind = Event::Kind::recv, .axis = Axis::pp, .peer = 0, .tag = 7};
  const std::vector<StepTrace> traces = {{.events = {norm(3), sent}, .peak = {}},
                                         {.events = {taken, norm(1.5)}, .peak = {}}};
  EXPECT_DOUBLE_EQ(simulate(traces, costs).step_s, (3 + 1.5) / 0.75);
  const std::vector<StepTrace> beside = {{.events = {norm(3)}, .peak = {}}, {.events = {norm(3)}, .peak = {}}};
  EXPECT_DOUBLE_EQ(simulate(beside, costs).step_s, 3 / 0.5);
}

TEST(SharedHardwareTest, ProductsAndNamedKernelsTakeWhatWasMeasured) {
  const CostModel alone(two_cores(), {}), pair(two_cores(), {.shard = 2});
  const Event product{.kind = Event::Kind::matmul, .m = 256, .n = 512, .k = 1024};
  EXPECT_NEAR(alone.kernel_s(product), 2.0 * 256 * 512 * (1024 + 16) / (200e9 * 0.8), 1e-9);
  EXPECT_NEAR(pair.kernel_s(product) / alone.kernel_s(product), 2, 1e-9);
  const Event norm{.kind = Event::Kind::memory, .bytes = 8e6, .name = "norm"};
  const Event other{.kind = Event::Kind::memory, .bytes = 8e6, .name = "add"};
  EXPECT_DOUBLE_EQ(alone.kernel_s(norm), 1e-3);
  EXPECT_DOUBLE_EQ(alone.kernel_s(other), 0.4e-3);
  EXPECT_DOUBLE_EQ(pair.slowdown(Axis::shard), 1);
}

TEST(SharedHardwareTest, IsReadBackAsWritten) {
  Hardware h = two_cores();
  h.host_bytes = h.memory_bytes;
  Toml toml = Toml::parse(hardware_toml(h), "mine.toml");
  const Hardware read = read_hardware(toml);
  EXPECT_EQ(hardware_toml(read), hardware_toml(h));
  EXPECT_EQ(read.sharing.size(), 3u);
  EXPECT_EQ(read.host_bytes, h.host_bytes);
  EXPECT_DOUBLE_EQ(read.of_ranks(4).launch_s, 4e-6);
}

struct BadSharing {
  const char* name;
  const char* from;
  const char* to;
};
class BadSharingTest : public testing::TestWithParam<BadSharing> {};
TEST_P(BadSharingTest, IsRefused) {
  std::string text = hardware_toml(two_cores());
  const size_t at = text.find(GetParam().from);
  ASSERT_NE(at, std::string::npos) << text;
  text.replace(at, std::string(GetParam().from).size(), GetParam().to);
  Toml toml = Toml::parse(text, "mine.toml");
  EXPECT_THROW(read_hardware(toml), UsageError);
}
INSTANTIATE_TEST_SUITE_P(Texts, BadSharingTest,
                         testing::Values(BadSharing{"NotOne", "ranks = [1, 2, 4]", "ranks = [2, 3, 4]"},
                                         BadSharing{"Falls", "ranks = [1, 2, 4]", "ranks = [1, 4, 2]"},
                                         BadSharing{"Short", "speed = [1, 0.5, 0.25]", "speed = [1, 0.5]"},
                                         BadSharing{"Zero", "speed = [1, 0.5, 0.25]", "speed = [1, 0, 0.25]"},
                                         BadSharing{"Kernels", "gb_s = [8, 12]", "gb_s = [8]"}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace weft::plan
