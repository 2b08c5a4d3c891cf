// weft: plans, trains, checks and serves large language models over any mesh of ranks.
#include <fmt/format.h>

#include <csignal>

#include "command.h"
#include "weft/base/error.h"
#include "weft/base/nearest.h"
#include "weft/base/version.h"

namespace weft::app {

void Output::add_option(CLI::App& command) {
  command.add_flag("--json", is_json_, "One JSON object on standard output; text goes to standard error");
}

namespace {

// What cannot be written is found at the end, by has_written_all: a run goes on without anybody who listens.
void write_line(std::FILE* out, std::string line) {
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), out);
  std::fflush(out);
}

}  // namespace

void Output::json(const nlohmann::json& object) const {
  if (is_json_) write_line(stdout, object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

void Output::text(const std::string& line) const { write_line(is_json_ ? stderr : stdout, line); }

namespace {

constexpr int kFailed = 1, kUsage = 2;

void refuse_unknown_command(CLI::App& program, const std::string& word) {
  if (word.empty() || word[0] == '-') return;
  std::vector<std::string> known;
  for (const CLI::App* command : program.get_subcommands({})) known.push_back(command->get_name());
  if (std::find(known.begin(), known.end(), word) != known.end()) return;
  throw UsageError("{} is not a command: there are {}{}", word, fmt::join(known, ", "), did_you_mean(word, known));
}

// `weft help COMMAND` is `weft COMMAND --help`.
std::vector<std::string> words_of(int argc, char** argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (words.empty() || words.front() != "help") return words;
  words.erase(words.begin());
  words.emplace_back("--help");
  return words;
}

int run(std::vector<std::string> words) {
  CLI::App program{"weft plans, trains, checks and serves large language models over any mesh of ranks."};
  program.name("weft");
  program.require_subcommand(1);
  program.set_version_flag("--version", fmt::format("weft {}", version()));
  program.footer(
      "Every command has --help with an example. Exit status: 0 done, 2 usage or recipe, 1 anything else.");
  for (const auto add : {add_doctor, add_train, add_adapter, add_eval, add_generate, add_chat, add_serve, add_logits,
                         add_convert, add_inspect, add_tokenize, add_plan, add_verify, add_bench})
    add(program);
  program.failure_message(
      [](const CLI::App* app, const CLI::Error& e) { return "weft: " + CLI::FailureMessage::simple(app, e); });
  refuse_unknown_command(program, words.empty() ? "" : words.front());
  std::ranges::reverse(words);  // as CLI11 takes them
  try {
    program.parse(std::move(words));
  } catch (const CLI::ParseError& e) {
    const bool is_help = e.get_exit_code() == 0;
    program.exit(e);
    return is_help ? 0 : kUsage;
  }
  return 0;
}

// All that was printed; a full disk refuses it when it is flushed.
bool has_written_all() { return std::fflush(stdout) == 0 && std::ferror(stdout) == 0; }

int run_or_say_why(int argc, char** argv) {
  try {
    return run(words_of(argc, argv));
  } catch (const AbortedError&) {
    return kFailed;  // the rank that failed first has said why
  } catch (const UsageError& e) {
    fmt::print(stderr, "weft: {}\n", e.what());
    return kUsage;
  } catch (const std::exception& e) {
    fmt::print(stderr, "weft: {}\n", e.what());
    return kFailed;
  }
}

}  // namespace
}  // namespace weft::app

int main(int argc, char** argv) {
  // Beyond a limit on the size of files, writing fails and says why, as on a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  const int status = weft::app::run_or_say_why(argc, argv);
  if (status != 0 || weft::app::has_written_all()) return status;
  fmt::print(stderr,
             "weft: standard output was not written to its end: free some space where it goes, or let it go "
             "elsewhere\n");
  return weft::app::kFailed;
}
