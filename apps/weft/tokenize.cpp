// weft tokenize: text on standard input to tokens on standard output.
#include <unistd.h>

#include "command.h"
#include "weft/base/file.h"
#include "weft/pretrained/model_source.h"

namespace weft::app {
namespace {

struct Options {
  std::string model;
  bool wants_ids = false;
  Output output;
};

std::string read_standard_input() {
  std::string text;
  char buffer[1 << 16];
  for (ssize_t n; (n = ::read(STDIN_FILENO, buffer, sizeof buffer)) > 0;) {
    text.append(buffer, size_t(n));
    constexpr size_t kMost = size_t(1) << 30;
    if (text.size() > kMost) throw UsageError("standard input is longer than {}: split it", human_bytes(kMost));
  }
  return text;
}

void tokenize(const Options& o) {
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(o.model);
  const std::vector<int32_t> ids = tokenizer->encode(read_standard_input());
  o.output.json({{"ids", ids}, {"num_tokens", ids.size()}, {"tokenizer", tokenizer->name()}});
  if (o.output.is_json()) return;
  if (o.wants_ids) return o.output.text(fmt::format("{}", fmt::join(ids, " ")));
  for (const int32_t id : ids) {
    const std::string text = nlohmann::json(tokenizer->decode(std::vector<int32_t>{id}))
                                 .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    o.output.text(fmt::format("{:>8}  {}", id, text));
  }
}

}  // namespace

void add_tokenize(CLI::App& program) {
  const auto o = std::make_shared<Options>();
  CLI::App* c = program.add_subcommand("tokenize", "Text on standard input to token ids");
  c->add_option("MODEL_OR_TOKENIZER", o->model, "A model or checkpoint folder, tokenizer.json, or byte")->required();
  c->add_flag("--ids", o->wants_ids, "Only the ids, on one line");
  o->output.add_option(*c);
  c->footer("Example: echo 'int main() {}' | weft tokenize runs/cpp --ids");
  c->callback([o] { tokenize(*o); });
}

}  // namespace weft::app
