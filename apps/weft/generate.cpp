// weft generate: continues a prompt.
#include <chrono>

#include "command.h"
#include "rank_resources.h"
#include "weft/base/file.h"
#include "weft/serve/generator.h"
#include "weft/serve/model_folder.h"

namespace weft::app {
namespace {

struct Options {
  std::string model, prompt, prompt_file, dtype = "fp32";
  GenerateOptions generate;
  int threads = 0;
  Output output;
};

std::string read_prompt(const Options& o) {
  constexpr uint64_t kMostBytes = uint64_t(64) << 20;
  return o.prompt_file.empty() ? o.prompt : read_file(o.prompt_file, kMostBytes);
}

void generate(Options& o) {
  check_sampling(o.generate.sampling);
  if (o.generate.max_tokens < 0) throw UsageError("--max-tokens {}: write 0 or more", o.generate.max_tokens);
  RankResources rank(o.threads);
  const LoadedModel loaded = load_model(rank.context, o.model, parse_dtype(o.dtype));
  const std::string prompt = read_prompt(o);
  const std::vector<int32_t> ids = loaded.tokenizer->encode(prompt);
  o.generate.stop_token = loaded.tokenizer->end_of_document();

  StreamDecoder decoder(*loaded.tokenizer);
  std::string text;
  const auto emit = [&](const std::string& piece) {
    text += piece;
    if (o.output.is_json()) return;
    fmt::print("{}", piece);
    std::fflush(stdout);
  };
  if (!o.output.is_json()) fmt::print("{}", prompt);
  const auto begin = std::chrono::steady_clock::now();
  Generator generator(rank.context, *loaded.model);
  const int64_t made = generator.generate(ids, o.generate, [&](int32_t token) { emit(decoder.push(token)); });
  emit(decoder.finish());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!o.output.is_json()) fmt::print("\n");
  o.output.json({{"prompt", prompt},
                 {"text", text},
                 {"prompt_tokens", ids.size()},
                 {"generated_tokens", made},
                 {"tokens_per_s", seconds > 0 ? double(made) / seconds : 0}});
}

}  // namespace

void add_generate(CLI::App& program) {
  const auto o = std::make_shared<Options>();
  CLI::App* c = program.add_subcommand("generate", "Continue a prompt");
  c->add_option("MODEL", o->model, "A weft checkpoint or run folder")->required();
  auto* prompt = c->add_option("--prompt", o->prompt, "The text to continue");
  c->add_option("--prompt-file", o->prompt_file, "A file with the text to continue")->excludes(prompt);
  c->add_option("--max-tokens", o->generate.max_tokens, "How many tokens to make at most")->capture_default_str();
  c->add_option("--temperature", o->generate.sampling.temperature, "0 always takes the most likely token")
      ->capture_default_str();
  c->add_option("--top-k", o->generate.sampling.top_k, "Choose among the k most likely tokens; 0: all");
  c->add_option("--top-p", o->generate.sampling.top_p, "Choose among the tokens that together reach p; 1: all");
  c->add_option("--min-p", o->generate.sampling.min_p, "Leave out tokens less likely than this share of the best");
  c->add_option("--seed", o->generate.sampling.seed, "The same seed makes the same text")->capture_default_str();
  c->add_option("--dtype", o->dtype, "fp32, bf16 or fp16")->capture_default_str();
  c->add_option("--threads", o->threads, "Cores to use; 0: all");
  o->output.add_option(*c);
  c->footer("Example: weft generate runs/cpp --prompt 'template <class T>' --max-tokens 200 --temperature 0.7");
  c->callback([o] { generate(*o); });
}

}  // namespace weft::app
