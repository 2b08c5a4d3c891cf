// A whole run on devices: data, evaluation, trace and checkpoints; its second half on the CPU gives what an
// undisturbed run on the CPU gives.
#include <nlohmann/json.hpp>

#include "base/temporary_folder.h"
#include "weft/base/file.h"
#include "weft/train/launch.h"

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

RunReport train_text(const std::string& text, const std::vector<std::string>& overrides = {}) {
  Toml toml = Toml::parse(text, "the recipe");
  toml.apply(overrides);
  return train(read_recipe(toml), {});
}

class CudaRunTest : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Optimizers, CudaRunTest, testing::Values("adamw", "adamw8bit", "adafactor", "muon"));

TEST_P(CudaRunTest, GoesOnOnTheCpuFromItsCheckpoint) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 600; ++i) text += fmt::format("line {} of a text that is {} long. ", i, i * i);
  make_folders(FileSystem::real(), folder / "text");
  write_file_atomically(FileSystem::real(), folder / "text/a.txt", text);

  const RunReport calm = train_text(recipe_text(folder, "calm", "dp = 1", GetParam()));
  const RunReport moved = train_text(recipe_text(folder, "moved", "dp = 2\nzero = 1\ndevice = \"cuda\"", GetParam()));
  EXPECT_NEAR(moved.loss, calm.loss, 1e-3 * calm.loss);
  EXPECT_NEAR(moved.eval_loss, calm.eval_loss, 1e-3 * calm.eval_loss);
  EXPECT_EQ(moved.mfu, 0) << "the peak of this device is not known";
  const auto trace = nlohmann::json::parse(read_file(folder / "moved/trace.json", 1 << 24));
  EXPECT_GT(trace["traceEvents"].size(), 20u);

  const RunReport rest = train_text(recipe_text(folder, "rest", "tp = 2", GetParam()),
                                    {"checkpoint.resume=" + (folder / "moved/checkpoints/step-000003")});
  EXPECT_EQ(rest.first_step, 3);
  EXPECT_EQ(rest.steps, 6);
  EXPECT_NEAR(rest.loss, calm.loss, 1e-3 * calm.loss);
  EXPECT_NEAR(rest.eval_loss, calm.eval_loss, 1e-3 * calm.eval_loss);
}

}  // namespace
}  // namespace weft
