// ServedProgram: `weft serve` as a user starts it, and the small models that tests of it serve.
#pragma once
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/program.h"
#include "weft/serve/bench/http_client.h"

namespace weft {

// `weft serve` as a process of its own, on a port of its own; or as the ranks that a launcher starts.
class ServedProgram {
 public:
  // launcher: its words, as mpirun's; each rank then leaves its number in a file.
  ServedProgram(const Program& folder, const std::vector<std::string>& arguments,
                const std::vector<std::string>& launcher = {})
      : out_(folder.path("served.out")), pid_file_(folder.path("pid.")), is_launched_(!launcher.empty()) {
    std::vector<std::string> words = launcher;
    if (is_launched_) {
      const std::string script = fmt::format("echo $$ > {}$OMPI_COMM_WORLD_RANK; exec \"$0\" \"$@\"", pid_file_);
      words.insert(words.end(), {"sh", "-c", script});
    }
    words.insert(words.end(), {WEFT_PROGRAM, "serve", "--json", "--port", "0", "--kv-cache", "1MiB"});
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    std::filesystem::remove(out_);  // what another one said
    process_ = ::fork();
    if (process_ == 0) {
      const int out = ::open(out_.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
      ::dup2(out, STDOUT_FILENO);
      ::dup2(out, STDERR_FILENO);
      ::execvp(argv.front(), argv.data());
      ::_exit(127);
    }
  }
  ~ServedProgram() {
    if (process_ > 0) ::kill(process_, SIGKILL), ::waitpid(process_, nullptr, 0);
  }
  ServedProgram(const ServedProgram&) = delete;

  // Of the server, once it is ready, or listens; 0 when it never is.
  int port(const std::string& once = "ready") const {
    for (int i = 0; i < 1500; ++i) {
      std::ifstream lines(out_);
      for (std::string line; std::getline(lines, line);) {
        const Json json = Json::parse(line, nullptr, false);
        if (json.is_object() && json.value("event", "") == once) return json["port"];
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return 0;
  }
  // Ends it as an operator does; its exit status, or the launcher's. rank: the one that listens.
  int stop(int rank = 0) {
    ::kill(process_of(rank), SIGTERM);
    int status = 0;
    ::waitpid(process_, &status, 0);
    process_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  pid_t process_of(int rank) const {
    pid_t process = process_;
    if (is_launched_) std::ifstream(pid_file_ + std::to_string(rank)) >> process;
    return process;
  }
  std::string said() const {
    std::ostringstream text;
    text << std::ifstream(out_).rdbuf();
    return text.str();
  }

 private:
  const std::string out_, pid_file_;
  const bool is_launched_;
  pid_t process_ = 0;
};

// A small model of bytes, trained a little, and one that was tuned with adapters, which are a folder of their own
// too.
class ServeTest : public testing::Test {
 protected:
  void SetUp() override {
    program_.write("text.txt", sample_text());
    program_.write("base.toml", sample_recipe());
    program_.write("tune.toml", R"([model]
path = "run"
[lora]
rank = 4
targets = ["all-linear"]
[data]
train = "text.txt"
[train]
steps = 4
seq_len = 32
global_batch = 8
[optimizer]
lr = 0.1
warmup = 1
[log]
dir = "tuned"
)");
    for (const char* command : {"train base.toml", "train tune.toml", "adapter tuned adapters/law"}) {
      const Outcome o = program_.run(command);
      ASSERT_EQ(o.status, 0) << command << ": " << o.err;
    }
  }
  static nlohmann::json get(int port, const std::string& path) {
    return nlohmann::json::parse(bench::HttpClient("127.0.0.1", port).request("GET", path, "").body);
  }
  static bench::HttpResult post(int port, const std::string& path, const nlohmann::json& body) {
    return bench::HttpClient("127.0.0.1", port).request("POST", path, body.dump());
  }
  static std::string text_of(int port, const std::string& model,
                             const std::string& prompt = "for (int i1 = 0; i1 < 8; ") {
    const nlohmann::json body = {{"model", model},     {"prompt", prompt}, {"max_tokens", 24},
                                 {"temperature", 0.7}, {"seed", 3},        {"ignore_eos", true}};
    const bench::HttpResult result = post(port, "/v1/completions", body);
    EXPECT_EQ(result.status, 200) << result.body;
    return nlohmann::json::parse(result.body)["choices"][0]["text"];
  }
  Program program_;
};

}  // namespace weft
