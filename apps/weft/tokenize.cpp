// weft tokenize: text on standard input to tokens on standard output, and back.
#include <unistd.h>

#include <chrono>

#include "command.h"
#include "forward_ranks.h"
#include "weft/base/file.h"
#include "weft/data/text_pieces.h"
#include "weft/pretrained/model_source.h"
#include "weft/text/bpe_trainer.h"
#include "weft/train/progress.h"

namespace weft::app {
namespace {

struct TokenizeCommand {
  std::string model;
  bool wants_ids = false, decodes = false, is_plain = false, adds_special = false;
  BpeTraining training;  // vocab_size 0: none is wanted
  std::string pattern = "gpt2", from;
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

void print_decoded(const TokenizeCommand& o, const Tokenizer& tokenizer) {
  const std::vector<int32_t> ids = parse_ids(read_standard_input(), "--decode", tokenizer.vocab_size());
  const std::string text = tokenizer.decode(ids, !o.is_plain);
  if (o.output.is_json())
    return o.output.json({{"text", text}, {"num_tokens", ids.size()}, {"tokenizer", tokenizer.name()}});
  fmt::print("{}", text);
}

void print_encoded(const TokenizeCommand& o, const Tokenizer& tokenizer) {
  const std::vector<int32_t> ids =
      tokenizer.encode(read_standard_input(), {.add_special = o.adds_special, .parse_special = !o.is_plain});
  o.output.json({{"ids", ids}, {"num_tokens", ids.size()}, {"tokenizer", tokenizer.name()}});
  if (o.output.is_json()) return;
  if (o.wants_ids) return o.output.text(fmt::format("{}", fmt::join(ids, " ")));
  for (const int32_t id : ids) {
    const std::string text =
        nlohmann::json(tokenizer.spelling(id)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    o.output.text(fmt::format("{:>8}  {}", id, text));
  }
}

std::string pattern_named(const std::string& name) {
  const std::pair<std::string_view, std::string_view> patterns[] = {
      {"gpt2", kGpt2Pattern}, {"cl100k", kCl100kPattern}, {"o200k", kO200kPattern}};
  for (const auto& [known, pattern] : patterns) {
    if (name == known) return std::string(pattern);
  }
  throw UsageError("--pattern {}: write gpt2, cl100k or o200k", name);
}

// Writes the new tokenizer to the file that the command names.
void train_bpe(const TokenizeCommand& o) {
  FileSystem& fs = FileSystem::real();
  if (exists(fs, o.model)) throw UsageError("{} exists already: name a new file for the tokenizer", o.model);
  BpeTraining training = o.training;
  training.pattern = pattern_named(o.pattern);
  BpeTrainer trainer(training);
  ProgressLine line(STDERR_FILENO);
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  if (o.from.empty()) {
    trainer.add(read_standard_input());
  } else {
    const TextFiles sources = find_text_files(o.from, "--from");
    const auto show = [&](int64_t done, int64_t total) { line.show_bytes("reading", done, total, now()); };
    TextMeter meter{show, sources.total_bytes};
    for (const TextFile& source : sources.files)
      read_text_pieces(
          fs, source, meter, [&](std::string_view text) { return trainer.cut(text); },
          [&](std::string_view text) { trainer.add(text); });
  }
  const std::string json = trainer.train([](int64_t, int64_t) {});
  write_file_atomically(fs, o.model, json);
  const int32_t size = parse_tokenizer(json, o.model)->vocab_size();
  o.output.json({{"tokenizer", o.model}, {"vocab_size", size}});
  o.output.text(fmt::format("{}: {} tokens{}", o.model, size,
                            size < training.vocab_size ? "; the text gave no more merges" : ""));
}

void tokenize(const TokenizeCommand& o) {
  if (o.training.vocab_size != 0) return train_bpe(o);
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(o.model);
  if (o.decodes)
    print_decoded(o, *tokenizer);
  else
    print_encoded(o, *tokenizer);
}

}  // namespace

void add_tokenize(CLI::App& program) {
  const auto o = std::make_shared<TokenizeCommand>();
  CLI::App* c = program.add_subcommand("tokenize", "Text on standard input to token ids, and back");
  c->add_option("MODEL_OR_TOKENIZER", o->model,
                "A model or checkpoint folder, a tokenizer (tokenizer.json, SentencePiece .model, NAME.tiktoken, "
                "encoder.json with vocab.bpe), or byte")
      ->required();
  CLI::Option* ids = c->add_flag("--ids", o->wants_ids, "Only the ids, on one line");
  CLI::Option* special = c->add_flag("--add-special", o->adds_special,
                                     "Also the tokens that the model expects around a text: its beginning, its end");
  c->add_flag(
      "--plain", o->is_plain,
      "Control tokens written in the text, such as <|endoftext|>, are text like any other; with --decode, they "
      "are left out");
  CLI::Option* decode = c->add_flag("--decode", o->decodes, "Ids on standard input to text");
  decode->excludes(ids)->excludes(special);
  CLI::Option* train =
      c->add_option("--train-bpe", o->training.vocab_size,
                    "Learn a byte-level BPE vocabulary of so many tokens from the text, and write it "
                    "to MODEL_OR_TOKENIZER, a tokenizer.json that is new");
  train->excludes(ids)->excludes(special)->excludes(decode);
  c->add_option("--from", o->from, "Learn from this FILE, DIR or pattern instead of standard input")->needs(train);
  c->add_option("--pattern", o->pattern, "How words are cut that merges stay inside: gpt2, cl100k or o200k")
      ->needs(train)
      ->capture_default_str();
  c->add_option("--control", o->training.control, "The control tokens of the new vocabulary")
      ->needs(train)
      ->capture_default_str();
  o->output.add_option(*c);
  c->footer("Example: echo 'int main() {}' | weft tokenize runs/cpp --ids | weft tokenize runs/cpp --decode");
  c->callback([o] { tokenize(*o); });
}

}  // namespace weft::app
