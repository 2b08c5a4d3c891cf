// Trains a small language model on a text from C++, on two ranks, and lets it write: what `weft train` does, in a
// page.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "weft/comm/single/single.h"
#include "weft/serve/generator.h"
#include "weft/train/launch.h"

namespace {

constexpr const char* kRecipe = R"(
[model]
family = "llama"
layers = 2
hidden = 64
heads = 4
ffn = 128
[data]
train = "{0}/text.txt"
tokenizer = "char"
[train]
steps = 60
seq_len = 32
global_batch = 16
[optimizer]
lr = 5e-3
[mesh]
dp = 2
[log]
dir = "{0}/run"
tensorboard = false
)";

void run(const std::string& folder) {
  std::ofstream text(folder + "/text.txt");
  for (int i = 0; i < 2000; ++i) text << "the shuttle carries the weft through the warp. ";
  text.close();

  weft::Toml toml = weft::Toml::parse(fmt::format(fmt::runtime(kRecipe), folder), "example");
  const weft::RunReport report = weft::train(weft::read_recipe(toml), {});
  fmt::print("loss {:.3f} -> {:.3f}, saved {}\n", report.first_loss, report.loss, report.checkpoint);
  weft::check(report.loss < 0.5 * report.first_loss, "the loss did not fall");

  weft::ThreadTeam team(1);
  weft::Allocator memory;
  weft::Stream stream(team, memory);
  weft::Context context{weft::cpu_kernels(), stream};
  const std::unique_ptr<weft::ModelSource> source = weft::open_model(folder + "/run");
  const std::unique_ptr<weft::Communicator> alone = weft::make_single_communicator();
  const weft::Mesh mesh(*alone, {});
  weft::ForwardModel model(context, mesh, source->config(), weft::DType::f32);
  model.load(*source);
  const std::unique_ptr<weft::Tokenizer> tokenizer = source->tokenizer();
  weft::Generator generator(model);
  std::string written;
  weft::StreamDecoder decoder(*tokenizer);
  generator.generate(tokenizer->encode("the "), {.max_tokens = 60, .sampling = {}, .stop_tokens = {}},
                     [&](int32_t token) { written += decoder.push(token); });
  fmt::print("the {}\n", written);
}

}  // namespace

int main() {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "weft-example-train";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  try {
    run(folder.string());
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
  std::filesystem::remove_all(folder);
}
