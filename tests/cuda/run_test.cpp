// A whole run on devices: data, evaluation, trace and checkpoints; its second half on the CPU gives what an
// undisturbed run on the CPU gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/temporary_folder.h"
#include "cuda/emulation.h"
#include "weft/base/file.h"
#include "weft/comm/nccl/nccl_transport.h"
#include "weft/plan/read_trace.h"
#include "weft/tensor/cuda/cuda_device.h"
#include "weft/train/launch.h"
#include "weft/train/trace_ops.h"

namespace weft {
namespace {

std::string recipe_text(const TemporaryFolder& folder, const std::string& run, const std::string& mesh,
                        const std::string& optimizer) {
  return fmt::format(R"([model]
family = "llama"
layers = 2
hidden = 32
heads = 4
[data]
train = "{0}/text"
cache_dir = "{0}/cache"
[train]
steps = 6
seq_len = 32
global_batch = 4
eval_every = 3
eval_batches = 2
[optimizer]
name = "{3}"
[log]
dir = "{0}/{1}"
tensorboard = false
trace_steps = [2, 3]
[checkpoint]
every = 3
[mesh]
{2}
)",
                     folder.path(), run, mesh, optimizer);
}

void write_text(const TemporaryFolder& folder) {
  std::string text;
  for (int i = 0; i < 600; ++i) text += fmt::format("line {} of a text that is {} long. ", i, i * i);
  make_folders(FileSystem::real(), folder / "text");
  write_file_atomically(FileSystem::real(), folder / "text/a.txt", text);
}

RunReport train_text(const std::string& text, const std::vector<std::string>& overrides = {}) {
  Toml toml = Toml::parse(text, "the recipe");
  toml.apply(overrides);
  return train(read_recipe(toml), {});
}

// Each op has a span when the host queued it and one when the device did it, and what draws traces takes the latter.
void expect_times_of_device(const std::string& path, bool has_nccl) {
  constexpr double kSlackUs = 0.1e6;  // of the clocks, on a machine with other work to do
  using Spans = std::vector<std::pair<double, double>>;
  std::map<std::pair<int, std::string>, std::array<Spans, kNumTraceTracks>> ops;  // of a rank, in order
  const auto trace = nlohmann::json::parse(read_file(path, 1 << 24));
  for (const auto& event : trace["traceEvents"])
    if (event["ph"] == "X" && event["name"] != TraceOps::kWaitName)
      ops[{event["pid"], event["name"]}][event["tid"]].emplace_back(event["ts"], event["dur"]);
  int num_ops = 0, num_waits[kNumTraceTracks] = {};
  for (const auto& event : trace["traceEvents"])
    if (event["name"] == TraceOps::kWaitName) ++num_waits[event["tid"].get<int>()];
  EXPECT_GT(num_waits[int(has_nccl ? TraceTrack::compute : TraceTrack::host)], 0);
  EXPECT_EQ(num_waits[int(has_nccl ? TraceTrack::host : TraceTrack::compute)], 0) << "of who does not wait";
  for (auto& [op, tracks] : ops) {
    Spans device = tracks[size_t(TraceTrack::compute)], host = tracks[size_t(TraceTrack::host)];
    const Spans& actions = tracks[size_t(TraceTrack::pipeline)];
    device.insert(device.end(), actions.begin(), actions.end());
    std::ranges::sort(device), std::ranges::sort(host);
    ASSERT_EQ(device.size(), host.size()) << op.second;
    for (size_t i = 0; i < device.size(); ++i, ++num_ops) {
      EXPECT_GE(device[i].second, 0) << op.second;
      EXPECT_NEAR(device[i].first, host[i].first, kSlackUs) << op.second;
    }
  }
  EXPECT_GT(num_ops, 200);

  const plan::Timeline timeline = plan::load_trace(path);
  ASSERT_EQ(timeline.ranks.size(), 2u);
  for (const std::vector<double>& kinds : plan::seconds_by_kind(timeline)) {
    EXPECT_GT(kinds[size_t(plan::SpanKind::forward)], 0);
    EXPECT_GT(kinds[size_t(plan::SpanKind::backward)], 0);
  }
}

class CudaRunTest : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Optimizers, CudaRunTest, testing::Values("adamw", "adamw8bit", "adafactor", "muon"));

TEST_P(CudaRunTest, GoesOnOnTheCpuFromItsCheckpoint) {
  const EmulatorSetting at_once("WEFT_EMULATED_AT_ONCE", "1");  // as times are compared
  const TemporaryFolder folder;
  write_text(folder);
  const RunReport calm = train_text(recipe_text(folder, "calm", "dp = 1", GetParam()));
  const RunReport moved = train_text(recipe_text(folder, "moved", "dp = 2\nzero = 1\ndevice = \"cuda\"", GetParam()));
  EXPECT_NEAR(moved.loss, calm.loss, 1e-3 * calm.loss);
  EXPECT_NEAR(moved.eval_loss, calm.eval_loss, 1e-3 * calm.eval_loss);
  EXPECT_EQ(moved.mfu, 0) << "the peak of this device is not known";
  expect_times_of_device(folder / "moved/trace.json", false);

  const RunReport rest = train_text(recipe_text(folder, "rest", "tp = 2", GetParam()),
                                    {"checkpoint.resume=" + (folder / "moved/checkpoints/step-000003")});
  EXPECT_EQ(rest.first_step, 3);
  EXPECT_EQ(rest.steps, 6);
  EXPECT_NEAR(rest.loss, calm.loss, 1e-3 * calm.loss);
  EXPECT_NEAR(rest.eval_loss, calm.eval_loss, 1e-3 * calm.eval_loss);
}

// Collectives of NCCL have the device's times, and so have its waits for those that were started.
TEST(CudaTraceTest, ShowsCollectivesOfTheDevice) {
  const EmulatorSetting at_once("WEFT_EMULATED_AT_ONCE", "1");
  std::optional<EmulatorSetting> devices(std::in_place, "WEFT_EMULATED_DEVICES", "2");
  if (cuda_devices().size() < 2 || !has_nccl()) GTEST_SKIP() << "this machine has no two devices with NCCL";
  const TemporaryFolder folder;
  write_text(folder);
  train_text(recipe_text(folder, "nccl", "dp = 2\nzero = 2\ndevice = \"cuda\"", "adamw"), {"train.steps=3"});
  devices.reset();
  expect_times_of_device(folder / "nccl/trace.json", true);
  int num_started = 0;
  const auto trace = nlohmann::json::parse(read_file(folder / "nccl/trace.json", 1 << 24));
  for (const auto& event : trace["traceEvents"])
    if (event["name"] == "reduce_scatter") {
      EXPECT_EQ(event["tid"], int(TraceTrack::communication));
      num_started += event["args"]["started"] == 1 && event["dur"] > 0;
    }
  EXPECT_GT(num_started, 0);
}

}  // namespace
}  // namespace weft
