// weft eval: the mean loss of a model on a text, or what its answers to questions are worth.
#include <cmath>
#include <filesystem>
#include <numbers>

#include "command.h"
#include "eval_questions.h"
#include "forward_ranks.h"
#include "weft/data/dataset.h"
#include "weft/data/predicted_bytes.h"
#include "weft/text/tokenizer_files.h"
#include "weft/train/evaluate.h"
#include "weft/train/evaluate_text_to_text.h"

namespace weft::app {
namespace {

struct EvalCommand {
  ForwardOptions forward;
  std::string data, cache_dir;
  int64_t seq_len = 0, rows = 0;
  bool documents = false;
  QuestionOptions questions;
  Output output;
};

// bytes: those that what was predicted stands for.
void print(const EvalCommand& o, const EvalResult& r, int64_t bytes, const std::string& model) {
  const double bits_per_byte =
      r.loss * double(r.num_targets) / std::numbers::ln2 / double(std::max<int64_t>(bytes, 1));
  o.output.json({{"loss", r.loss},
                 {"perplexity", std::exp(r.loss)},
                 {"bits_per_byte", bits_per_byte},
                 {"tokens", r.num_targets},
                 {"bytes", bytes},
                 {"model", model}});
  if (!o.output.is_json())
    o.output.text(fmt::format("loss {:.4f} nats/token, perplexity {:.3f}, {:.4f} bits/byte over {} tokens", r.loss,
                              std::exp(r.loss), bits_per_byte, r.num_targets));
}

void eval_decoder(const EvalCommand& o) {
  const std::string cache =
      o.cache_dir.empty() ? (std::filesystem::temp_directory_path() / "weft-tokens").string() : o.cache_dir;
  make_folders(FileSystem::real(), cache);
  run_forward(o.forward, [&](ForwardModel& model, const ModelSource& source, Communicator&) {
    const int64_t context_length = model.config().context;
    const int64_t seq_len = o.seq_len > 0 ? o.seq_len : context_length;
    if (seq_len > context_length)
      throw UsageError("--seq-len {}: the model's context is {}", seq_len, context_length);
    const std::unique_ptr<Tokenizer> tokenizer = source.tokenizer();
    // The first rank makes the token file, the others open it.
    std::shared_ptr<const TokenFile> tokens;
    const auto open = [&] {
      tokens = open_tokens(FileSystem::real(), o.data, *tokenizer, cache, "--data", [](int64_t, int64_t) {});
    };
    Communicator& world = model.mesh().world();
    if (world.rank() == 0) open();
    world.barrier();
    if (world.rank() != 0) open();
    constexpr int64_t kTokensPerPass = 4096;
    const int64_t rows = o.rows > 0 ? o.rows : std::max<int64_t>(1, kTokensPerPass / seq_len);
    const EvalResult result = evaluate(model, {tokens, 0, tokens->num_tokens()},
                                       {.seq_len = seq_len, .rows = rows, .documents = o.documents});
    const BatchOptions windows{.seq_len = int32_t(seq_len), .global_batch = int32_t(rows), .documents = o.documents};
    if (model.is_driver()) print(o, result, predicted_bytes(tokens, *tokenizer, windows), source.path());
  });
}

void eval_text_to_text(const EvalCommand& o) {
  if (o.seq_len > 0 || o.rows > 0 || o.documents)
    throw UsageError(
        "--seq-len, --rows and --documents cut a text into windows, and the model reads examples whole: "
        "leave them out");
  const TextFiles files = find_text_files(o.data, "--data");
  for (const TextFile& file : files.files)
    if (!file.path.ends_with(".jsonl") && !file.path.ends_with(".json"))
      throw UsageError(
          "--data {}: the model reads one text and writes another: name a .jsonl file whose lines are "
          "{{\"prompt\": \"...\", \"completion\": \"...\"}}",
          file.path);
  run_encoder(o.forward, [&](Context& context, const EncoderUse& use, Communicator&) {
    const auto t5 = open_t5(context, o.forward.model, use);
    const auto tokenizer = open_tokenizer(FileSystem::real(), o.forward.model);
    TextToTextEvaluation evaluation(context, *use.mesh, *t5);
    int64_t target_bytes = 0;
    const auto add = [&](const InstructExample& example, const std::string& place) {
      const TextToText text = text_to_text_of(example, place);
      target_bytes += int64_t(text.target.size());
      evaluation.add(encode_for_t5(*tokenizer, t5->config(), text.source),
                     encode_for_t5(*tokenizer, t5->config(), text.target));
    };
    for (const TextFile& file : files.files)
      for_each_example(FileSystem::real(), file.path, InstructFormat::automatic, add, [](int64_t) {});
    const EvalResult result = evaluation.finish();
    if (result.num_targets == 0) throw UsageError("--data {}: there are no examples", o.data);
    if (use.mesh->is_driver()) print(o, result, target_bytes, o.forward.model);
  });
}

void eval(const EvalCommand& o) {
  if (o.data.empty() && !o.questions.are_asked())
    throw UsageError("write what the model is measured by: --data, a text, or --questions");
  if (o.questions.are_asked()) return eval_questions(o.forward, o.questions, o.output);
  const std::optional<EncoderKind> kind = encoder_kind(o.forward.model);
  if (kind == EncoderKind::t5) return eval_text_to_text(o);
  if (kind)
    throw UsageError("{} is a model that writes no texts, so none has a loss: weft logits shows what it computes",
                     o.forward.model);
  eval_decoder(o);
}

}  // namespace

void add_eval(CLI::App& program) {
  const auto o = std::make_shared<EvalCommand>();
  CLI::App* c = program.add_subcommand(
      "eval",
      "Mean loss, perplexity and bits per byte of a model on a text, or what its answers to questions are worth");
  o->forward.add_to(*c);
  c->add_option(
      "--data", o->data,
      "A file, folder or pattern of text, or a token file; of a model that reads one text and writes another, "
      "of JSON lines {\"prompt\": ..., \"completion\": ...}");
  c->add_option("--seq-len", o->seq_len, "Tokens a window; 0: the model's context")->check(CLI::Range(0, 1 << 24));
  c->add_option("--rows", o->rows, "Windows a forward pass; 0: as fits")->check(CLI::Range(0, 1 << 20));
  c->add_flag("--documents", o->documents, "Attention stops at the ends of documents");
  c->add_option("--cache-dir", o->cache_dir, "Where token files are kept; default: the temporary folder");
  o->questions.add_to(*c);
  c->get_option("--questions")->excludes("--data");
  o->output.add_option(*c);
  c->footer(
      "Example: weft eval runs/cpp --data /usr/include/c++/12/bits\n"
      "         weft eval Qwen3-0.6B --questions gsm8k.jsonl --reward number --mesh tp=2");
  c->callback([o] { eval(*o); });
}

}  // namespace weft::app
