// weft eval: the mean loss of a model on a text.
#include <cmath>
#include <filesystem>
#include <numbers>

#include "command.h"
#include "rank_resources.h"
#include "weft/data/dataset.h"
#include "weft/serve/model_folder.h"
#include "weft/train/evaluate.h"

namespace weft::app {
namespace {

struct Options {
  std::string model, data, cache_dir, dtype = "fp32";
  int64_t seq_len = 0, rows = 0;
  int threads = 0;
  bool documents = false;
  Output output;
};

void eval(const Options& o) {
  RankResources rank(o.threads);
  const LoadedModel loaded = load_model(rank.context, o.model, parse_dtype(o.dtype));
  const int64_t context_length = loaded.model->config().context;
  const int64_t seq_len = o.seq_len > 0 ? o.seq_len : context_length;
  if (seq_len > context_length) throw UsageError("--seq-len {}: the model's context is {}", seq_len, context_length);
  const std::string cache =
      o.cache_dir.empty() ? (std::filesystem::temp_directory_path() / "weft-tokens").string() : o.cache_dir;
  make_folders(FileSystem::real(), cache);
  const auto tokens =
      open_tokens(FileSystem::real(), o.data, *loaded.tokenizer, cache, "--data", [](int64_t, int64_t) {});
  const TokenPart part{tokens, 0, tokens->num_tokens()};
  constexpr int64_t kTokensPerPass = 4096;
  const int64_t rows = o.rows > 0 ? o.rows : std::max<int64_t>(1, kTokensPerPass / seq_len);
  const EvalResult r =
      evaluate(rank.context, *loaded.model, part, {.seq_len = seq_len, .rows = rows, .documents = o.documents});
  const double bits_per_byte =
      r.loss * double(r.num_targets) / std::numbers::ln2 / double(std::max<int64_t>(tokens->source_bytes(), 1));
  o.output.json({{"loss", r.loss},
                 {"perplexity", std::exp(r.loss)},
                 {"bits_per_byte", bits_per_byte},
                 {"tokens", r.num_targets},
                 {"bytes", tokens->source_bytes()},
                 {"model", loaded.path}});
  if (!o.output.is_json())
    o.output.text(fmt::format("loss {:.4f} nats/token, perplexity {:.3f}, {:.4f} bits/byte over {} tokens", r.loss,
                              std::exp(r.loss), bits_per_byte, r.num_targets));
}

}  // namespace

void add_eval(CLI::App& program) {
  const auto o = std::make_shared<Options>();
  CLI::App* c = program.add_subcommand("eval", "Mean loss, perplexity and bits per byte of a model on a text");
  c->add_option("MODEL", o->model, "A weft checkpoint or run folder")->required();
  c->add_option("--data", o->data, "A file, folder or pattern of text, or a token file")->required();
  c->add_option("--seq-len", o->seq_len, "Tokens a window; 0: the model's context");
  c->add_option("--rows", o->rows, "Windows a forward pass; 0: as fits");
  c->add_flag("--documents", o->documents, "Attention stops at the ends of documents");
  c->add_option("--cache-dir", o->cache_dir, "Where token files are kept; default: the temporary folder");
  c->add_option("--dtype", o->dtype, "fp32, bf16 or fp16")->capture_default_str();
  c->add_option("--threads", o->threads, "Cores to use; 0: all");
  o->output.add_option(*c);
  c->footer("Example: weft eval runs/cpp --data /usr/include/c++/12/bits");
  c->callback([o] { eval(*o); });
}

}  // namespace weft::app
