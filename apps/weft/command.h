// What the commands of the program share: how each is added, and where its output goes.
#pragma once
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>

namespace weft::app {

// --json: one JSON object on standard output and nothing else there; people's text goes to standard error.
class Output {
 public:
  void add_option(CLI::App& command);
  bool is_json() const { return is_json_; }
  void json(const nlohmann::json& object) const;  // printed only with --json
  void text(const std::string& line) const;       // a line on standard output, or standard error with --json

 private:
  bool is_json_ = false;
};

// Of options of unsigned numbers, into which CLI11 turns negative ones.
inline CLI::Validator not_negative() {
  const auto refuse = [](const std::string& text) {
    return text.starts_with('-') ? text + " is below 0: write 0 or more" : std::string();
  };
  return {refuse, ""};
}

// Each adds its command, with options, help and an example, to the program.
void add_doctor(CLI::App& program);
void add_train(CLI::App& program);
void add_adapter(CLI::App& program);
void add_eval(CLI::App& program);
void add_generate(CLI::App& program);
void add_chat(CLI::App& program);
void add_serve(CLI::App& program);
void add_logits(CLI::App& program);
void add_convert(CLI::App& program);
void add_inspect(CLI::App& program);
void add_tokenize(CLI::App& program);
void add_plan(CLI::App& program);
void add_verify(CLI::App& program);
void add_bench(CLI::App& program);

}  // namespace weft::app
