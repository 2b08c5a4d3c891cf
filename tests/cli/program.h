// Program: runs the built `weft` as a user would and keeps what it says.
#pragma once
#include <sys/wait.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "base/temporary_folder.h"

namespace weft {

struct Outcome {
  int status = -1;
  std::string out, err;
};

class Program {
 public:
  // Runs through the shell, in a folder of its own.
  Outcome shell(const std::string& command) const {
    const std::string out = folder_ / "stdout", err = folder_ / "stderr";
    const std::string line = fmt::format("cd {} && ( {} ) >{} 2>{} </dev/null", folder_.path(), command, out, err);
    const int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read(out), read(err)};
  }
  Outcome run(const std::string& arguments) const { return shell(std::string(WEFT_PROGRAM) + " " + arguments); }
  // Interrupts it as soon as `file` holds `text`, at the latest after some twenty seconds.
  Outcome interrupt(const std::string& arguments, const std::string& file, const std::string& text) const {
    return shell(
        fmt::format("{} {} & job=$!; for i in $(seq 1000); do grep -qs '{}' {} && break; sleep 0.02; done; "
                    "kill -INT $job; wait $job",
                    WEFT_PROGRAM, arguments, text, file));
  }

  void write(const std::string& name, const std::string& content) const {
    std::ofstream(folder_ / name, std::ios::binary) << content;
  }
  std::string read_file(const std::string& name) const { return read(folder_ / name); }
  std::string path(const std::string& name) const { return folder_ / name; }

 private:
  static std::string read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }
  TemporaryFolder folder_;
};

// A text with some structure, so that a small model learns something.
inline std::string sample_text() {
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += fmt::format("for (int i{} = {}; i{} < {}; ++i{}) sum += values[i{}];\n", i % 7, i % 3, i % 7, i, i % 7,
                        i % 7);
  return text;
}

inline std::string sample_recipe() {
  return R"([model]
family = "llama"
layers = 2
hidden = 32
heads = 4
kv_heads = 2
ffn = 64
[data]
train = "text.txt"
tokenizer = "byte"
[train]
steps = 6
seq_len = 32
global_batch = 8
eval_every = 3
[optimizer]
lr = 3e-3
warmup = 2
[checkpoint]
every = 3
[log]
dir = "run"
)";
}

// The lines of metrics.jsonl without what is measured, which depends on chance as a whole for checkpoints.
inline std::vector<std::string> losses_of(const Program& weft, const std::string& run) {
  std::vector<std::string> lines;
  std::istringstream text(weft.read_file(run + "/metrics.jsonl"));
  for (std::string line; std::getline(text, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json.contains("checkpoint_s")) continue;
    lines.push_back(json.contains("eval_loss")
                        ? fmt::format("{} eval {}", json["step"].dump(), json["eval_loss"].dump())
                        : fmt::format("{} {} {} {}", json["step"].dump(), json["loss"].dump(),
                                      json["grad_norm"].dump(), json["lr"].dump()));
  }
  return lines;
}

}  // namespace weft
