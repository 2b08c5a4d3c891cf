// weft: plans, trains, checks and serves large language models over any mesh of ranks.
#include <fmt/format.h>

#include "command.h"
#include "weft/base/error.h"
#include "weft/base/nearest.h"
#include "weft/base/version.h"

namespace weft::app {

void Output::add_option(CLI::App& command) {
  command.add_flag("--json", is_json_, "One JSON object on standard output; text goes to standard error");
}

void Output::json(const nlohmann::json& object) const {
  if (!is_json_) return;
  fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  std::fflush(stdout);
}

void Output::text(const std::string& line) const {
  std::FILE* const out = is_json_ ? stderr : stdout;
  fmt::print(out, "{}\n", line);
  std::fflush(out);
}

namespace {

constexpr int kFailed = 1, kUsage = 2;

void refuse_unknown_command(CLI::App& program, const std::string& word) {
  if (word.empty() || word[0] == '-') return;
  std::vector<std::string> known;
  for (const CLI::App* command : program.get_subcommands({})) known.push_back(command->get_name());
  if (std::find(known.begin(), known.end(), word) != known.end()) return;
  throw UsageError("{} is not a command: there are {}{}", word, fmt::join(known, ", "), did_you_mean(word, known));
}

int run(int argc, char** argv) {
  CLI::App program{"weft plans, trains, checks and serves large language models over any mesh of ranks."};
  program.name("weft");
  program.require_subcommand(1);
  program.set_version_flag("--version", fmt::format("weft {}", version()));
  program.footer(
      "Every command has --help with an example. Exit status: 0 done, 2 usage or recipe, 1 anything else.");
  for (const auto add : {add_doctor, add_train, add_adapter, add_eval, add_generate, add_chat, add_serve, add_logits,
                         add_convert, add_inspect, add_tokenize, add_plan, add_verify, add_bench})
    add(program);
  refuse_unknown_command(program, argc > 1 ? argv[1] : "");
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const bool is_help = e.get_exit_code() == 0;
    program.exit(e);
    return is_help ? 0 : kUsage;
  }
  return 0;
}

}  // namespace
}  // namespace weft::app

int main(int argc, char** argv) {
  try {
    return weft::app::run(argc, argv);
  } catch (const weft::AbortedError&) {
    return weft::app::kFailed;  // the rank that failed first has said why
  } catch (const weft::UsageError& e) {
    fmt::print(stderr, "weft: {}\n", e.what());
    return weft::app::kUsage;
  } catch (const std::exception& e) {
    fmt::print(stderr, "weft: {}\n", e.what());
    return weft::app::kFailed;
  }
}
