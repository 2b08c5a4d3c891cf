// weft generate: continues a prompt.
#include <chrono>
#include <optional>

#include "command.h"
#include "forward_ranks.h"
#include "sampling_flags.h"
#include "weft/autograd/floats_on_host.h"
#include "weft/base/file.h"
#include "weft/serve/generator.h"
#include "weft/text/tokenizer_files.h"

namespace weft::app {
namespace {

struct GenerateCommand {
  ForwardOptions forward;
  std::string prompt, prompt_file, ids;
  GenerateOptions generate;
  SamplingFlags sampling;
  Output output;
};

// Once in a process, since a pipe gives it once.
std::string read_prompt(const GenerateCommand& o) {
  constexpr uint64_t kMostBytes = uint64_t(64) << 20;
  return o.prompt_file.empty() ? o.prompt : read_to_end(o.prompt_file, kMostBytes);
}

// What was asked and what came of it, as tokens and, where the model has a tokenizer, as text.
class Transcript {
 public:
  // tokenizer: null when tokens are all there is.
  Transcript(const Output& output, const Tokenizer* tokenizer, bool is_driver)
      : output_(output), tokenizer_(tokenizer), is_shown_(is_driver && !output.is_json()) {
    if (tokenizer_) decoder_.emplace(*tokenizer_);
  }

  void begin(const std::string& prompt, bool is_continued) {
    prompt_ = prompt;
    if (is_continued) show(prompt);
  }
  void add(int32_t token) {
    ids_.push_back(token);
    add_text(decoder_ ? decoder_->push(token) : fmt::format("{} ", token));
  }
  void end(size_t prompt_tokens, double seconds) {
    if (decoder_) add_text(decoder_->finish());
    show("\n");
    nlohmann::json json{{"ids", ids_},
                        {"prompt_tokens", prompt_tokens},
                        {"generated_tokens", ids_.size()},
                        {"tokens_per_s", seconds > 0 ? double(ids_.size()) / seconds : 0}};
    if (tokenizer_) json["prompt"] = prompt_, json["text"] = text_;
    output_.json(json);
  }

 private:
  void add_text(const std::string& piece) {
    text_ += piece;
    show(piece);
  }
  void show(const std::string& piece) const {
    if (!is_shown_) return;
    fmt::print("{}", piece);
    std::fflush(stdout);
  }

  const Output& output_;
  const Tokenizer* tokenizer_;
  bool is_shown_;
  std::optional<StreamDecoder> decoder_;
  std::string prompt_, text_;
  std::vector<int32_t> ids_;
};

void generate_on_rank(const GenerateCommand& o, const std::string& prompt, ForwardModel& model,
                      const ModelSource& source) {
  const bool has_ids = !o.ids.empty();
  const std::unique_ptr<Tokenizer> tokenizer = has_ids ? nullptr : source.tokenizer();
  const std::vector<int32_t> ids =
      has_ids ? parse_ids(o.ids, "--ids", model.config().vocab) : encode_prompt(source, *tokenizer, prompt);
  GenerateOptions options = o.generate;
  options.sampling = o.sampling.over(source.sampling_defaults());
  if (tokenizer) options.stop_tokens = stop_tokens(source, *tokenizer);
  Transcript transcript(o.output, tokenizer.get(), model.is_driver());
  transcript.begin(prompt, true);
  const auto begin = std::chrono::steady_clock::now();
  Generator generator(model);
  generator.generate(ids, options, [&](int32_t token) { transcript.add(token); });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (model.is_driver()) transcript.end(ids.size(), seconds);
}

// T5 reads the prompt and writes another text.
void generate_by_t5(const GenerateCommand& o, const std::string& prompt, Context& context, const EncoderUse& use) {
  const auto t5 = open_t5(context, o.forward.model, use);
  const T5Config& c = t5->config();
  const bool has_ids = !o.ids.empty();
  const auto tokenizer = has_ids ? nullptr : open_tokenizer(FileSystem::real(), o.forward.model);
  const std::vector<int32_t> ids =
      has_ids ? parse_ids(o.ids, "--ids", c.vocab) : encode_for_t5(*tokenizer, c, prompt);
  if (ids.empty()) throw UsageError("the prompt is empty: give at least one token with --prompt or --prompt-file");
  Transcript transcript(o.output, tokenizer.get(), use.mesh->is_driver());
  transcript.begin(prompt, false);
  const auto begin = std::chrono::steady_clock::now();
  T5::Writing writing(*t5, context, t5->encode(context, ids), o.generate.max_tokens + 1);
  Sampler sampler(o.sampling.over({}));  // every rank of the last stage has the same logits, and chooses the same
  int32_t token = c.first_token;
  std::vector<int32_t> written;
  for (int64_t made = 0; made < o.generate.max_tokens; ++made) {
    if (const Tensor logits = writing.logits({&token, 1})) {
      const Tensor here = floats_on_host(context, logits);
      token = sampler.choose({here.data<float>(), size_t(c.vocab)}, uint64_t(writing.length()), {.answer = written});
    }
    token = t5->stages().share(context, token);
    if (token == c.end_token) break;
    written.push_back(token);
    transcript.add(token);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (use.mesh->is_driver()) transcript.end(ids.size(), seconds);
}

void generate(const GenerateCommand& o) {
  o.sampling.over({});  // refused before a model is read
  const std::string prompt = read_prompt(o);
  const std::optional<EncoderKind> kind = encoder_kind(o.forward.model);
  if (kind == EncoderKind::t5)
    return run_encoder(o.forward, [&](Context& context, const EncoderUse& use, Communicator&) {
      generate_by_t5(o, prompt, context, use);
    });
  if (kind)
    throw UsageError("{} is a model that writes no texts: weft logits shows what it computes", o.forward.model);
  run_forward(o.forward, [&](ForwardModel& model, const ModelSource& source, Communicator&) {
    generate_on_rank(o, prompt, model, source);
  });
}

}  // namespace

void add_generate(CLI::App& program) {
  const auto o = std::make_shared<GenerateCommand>();
  CLI::App* c = program.add_subcommand("generate", "Continue a prompt");
  o->forward.add_to(*c);
  auto* prompt = c->add_option("--prompt", o->prompt, "The text to continue");
  auto* file = c->add_option("--prompt-file", o->prompt_file, "A file with the text to continue")->excludes(prompt);
  c->add_option("--ids", o->ids, "The tokens to continue, as in 1,2,3; tokens are printed")
      ->excludes(prompt)
      ->excludes(file);
  c->add_option("--max-tokens", o->generate.max_tokens, "How many tokens to make at most")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 24));
  o->sampling.add_to(*c, "The same seed makes the same text");
  o->output.add_option(*c);
  c->footer("Example: weft generate runs/cpp --prompt 'template <class T>' --max-tokens 200 --temperature 0.7");
  c->callback([o] { generate(*o); });
}

}  // namespace weft::app
