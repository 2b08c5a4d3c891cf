// weft bench decode and prefill: steps of serving a model, over a paged cache, beside what bounds them: reading the
// weights and the cache where an answer grows by a token, products where a prompt is read.
#include <random>

#include "bench.h"
#include "forward_ranks.h"
#include "kv_dtype.h"
#include "limits.h"
#include "weft/serve/step_runner.h"

namespace weft::app {
namespace {

struct BenchStepsCommand {
  ForwardOptions forward;
  std::optional<RowFormat> kv;  // none: the model's own dtype
  RowFormat kv_format(const ForwardModel& model) const { return kv.value_or(RowFormat{model.dtype()}); }
  std::vector<int64_t> sizes;  // sequences of a step, or tokens of a prompt
  int64_t context = 512;       // tokens before the ones that are timed
  int64_t chunk = 256;
  int repeats = 5;
  Output output;
};

// Sequences of random tokens in a cache of their own.
class Sequences {
 public:
  Sequences(ForwardModel& model, const RowFormat& format, int64_t count, int64_t tokens)
      : vocab_(model.config().vocab),
        count_(count),
        blocks_of_each_((tokens + kBlockTokens - 1) / kBlockTokens),
        stream_(model.context().stream),
        runner_(model, count * blocks_of_each_, kBlockTokens, format, count) {
    for (int64_t i = 0; i < count * blocks_of_each_; ++i) blocks_.push_back(int32_t(i));
  }
  StepRunner& runner() { return runner_; }

  // A step that takes `tokens` of each sequence from `first` on.
  void step(int64_t first, int64_t tokens) {
    runner_.clear();
    for (int64_t s = 0; s < count_; ++s) {
      ids_.clear();
      for (int64_t i = 0; i < tokens; ++i) ids_.push_back(int32_t(random_() % uint64_t(vocab_)));
      const auto blocks = std::span(blocks_).subspan(size_t(s * blocks_of_each_), size_t(blocks_of_each_));
      const int32_t state = int32_t(s);
      const TokenRun run{.begin = 0, .end = int32_t(tokens), .from = first > 0 ? state : -1, .to = state};
      runner_.add(ids_, {}, first, blocks, 1, 0, {&run, 1});
    }
    runner_.run();
    stream_.wait();  // as who samples does
  }
  void fill(int64_t tokens, int64_t chunk) {
    for (int64_t at = 0; at < tokens; at += chunk) step(at, std::min(chunk, tokens - at));
  }

 private:
  int64_t vocab_, count_, blocks_of_each_;
  Stream& stream_;
  StepRunner runner_;
  std::mt19937 random_;
  std::vector<int32_t> blocks_, ids_;
};

// Bytes of this rank's weights that products read.
int64_t weight_bytes(ForwardModel& model) {
  size_t bytes = 0;
  for (Param* p : model.part().params())
    if (p->is_multiplied()) bytes += p->product_bytes(model.context());
  return int64_t(bytes);
}

// Runs body(sequences) on the driver; the others follow it.
void with_sequences(const BenchStepsCommand& o, ForwardModel& model, int64_t count, int64_t tokens,
                    FunctionRef<void(Sequences&)> body) {
  Sequences sequences(model, o.kv_format(model), count, tokens);
  if (!sequences.runner().is_driver()) return sequences.runner().follow();
  body(sequences);
  sequences.runner().stop();
}

void check_context(const ForwardModel& model, int64_t tokens) {
  if (tokens > model.config().context)
    throw UsageError("{} tokens are more than the model's context of {}: lower the sizes or --context", tokens,
                     model.config().context);
}

void decode(const BenchStepsCommand& o, ForwardModel& model) {
  const int64_t last = o.context + o.repeats + 1;
  check_context(model, last);
  // Of a mesh, this rank knows its own weights alone; of experts a step reads some.
  const bool knows_bytes = model.mesh().world().size() == 1 && model.config().experts == 0;
  std::optional<ReadLimit> limit;
  if (knows_bytes) limit.emplace(model.context().stream);
  const int64_t weights = weight_bytes(model);
  if (model.is_driver())
    o.output.text(fmt::format("{:>9} {:>10} {:>10} {:>12} {:>9}", "sequences", "ms a step", "tokens/s", "GB/s read",
                              "of memory"));
  nlohmann::json rows = nlohmann::json::array();
  for (const int64_t count : o.sizes)
    with_sequences(o, model, count, last, [&](Sequences& sequences) {
      sequences.fill(o.context, std::max<int64_t>(o.chunk / count, 1));
      const int64_t cache =
          count * o.context * cache_bytes_of_token(model.config(), model.mesh().shape(), o.kv_format(model));
      std::vector<double> steps, limits, shares;  // a share is of the memory just before its step
      int64_t at = o.context;
      sequences.step(at++, 1);
      for (int i = 0; i < o.repeats; ++i) {
        limits.push_back(limit ? limit->measure() : 0);
        steps.push_back(seconds_of_call([&] { sequences.step(at++, 1); }));
        shares.push_back(limits.back() > 0 ? double(weights + cache) / steps.back() / limits.back() : 0);
      }
      const double seconds = median(steps), bandwidth = median(limits), share = median(shares);
      const double read = double(weights + cache) / seconds;
      rows.push_back({{"sequences", count}, {"step_s", seconds}, {"tokens_per_s", double(count) / seconds}});
      if (knows_bytes)
        rows.back().update(
            {{"read_bytes_per_s", read}, {"read_bandwidth", known(bandwidth)}, {"share_of_bandwidth", known(share)}});
      o.output.text(fmt::format(
          "{:>9} {:>10.3f} {:>10.1f} {}", count, seconds * 1e3, double(count) / seconds,
          knows_bytes ? fmt::format("{:>12.1f} {:>9}", read * 1e-9, percent_of(share * bandwidth, bandwidth)) : ""));
    });
  if (model.is_driver())
    o.output.json({{"bench", "decode"},
                   {"context", o.context},
                   {"kv_dtype", kv_dtype_name(o.kv_format(model))},
                   {"rows", rows}});
}

void prefill(const BenchStepsCommand& o, ForwardModel& model) {
  const bool is_alone = model.mesh().world().size() == 1;
  const double peak = is_alone ? peak_flops(model.context().stream, model.dtype()) : 0;
  if (model.is_driver())
    o.output.text(fmt::format("{:>7} {:>10} {:>10} {:>9} {:>8}", "tokens", "ms", "tokens/s", "GFLOP/s", "of peak"));
  nlohmann::json rows = nlohmann::json::array();
  for (const int64_t tokens : o.sizes) {
    check_context(model, tokens);
    with_sequences(o, model, 1, tokens, [&](Sequences& sequences) {
      const double seconds = median(time_calls(o.repeats, [&] { sequences.fill(tokens, o.chunk); }));
      const double flops = model.config().prompt_flops(tokens, ceil_div(tokens, o.chunk));
      rows.push_back({{"tokens", tokens}, {"s", seconds}, {"tokens_per_s", double(tokens) / seconds}});
      if (is_alone) rows.back().update({{"flops_per_s", flops / seconds}, {"peak_flops", known(peak)}});
      o.output.text(fmt::format(
          "{:>7} {:>10.2f} {:>10.1f} {}", tokens, seconds * 1e3, double(tokens) / seconds,
          is_alone ? fmt::format("{:>9.1f} {:>8}", flops / seconds * 1e-9, percent_of(flops / seconds, peak)) : ""));
    });
  }
  if (model.is_driver()) o.output.json({{"bench", "prefill"}, {"chunk", o.chunk}, {"rows", rows}});
}

CLI::App& add_command(CLI::App& bench, const std::shared_ptr<BenchStepsCommand>& o, const char* name,
                      const char* what, const char* sizes, std::vector<int64_t> usual,
                      void (*run)(const BenchStepsCommand&, ForwardModel& model)) {
  CLI::App* c = bench.add_subcommand(name, what);
  o->sizes = std::move(usual);
  o->forward.dtype = "auto";  // as weft serve has it
  o->forward.add_to(*c);
  add_kv_dtype(*c, o->kv);
  c->add_option(sizes, o->sizes, "Sizes, with commas between them")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(int64_t(1), int64_t(1) << 20));
  c->add_option("--repeats", o->repeats, "Timed calls; the median is shown")
      ->capture_default_str()
      ->check(CLI::Range(1, 10000));
  c->add_option("--chunk", o->chunk, "Tokens of a step that reads prompts")
      ->capture_default_str()
      ->check(CLI::Range(int64_t(1), int64_t(1) << 20));
  o->output.add_option(*c);
  c->callback([o, run] {
    run_forward(o->forward, [&](ForwardModel& model, const ModelSource&, Communicator&) { run(*o, model); });
  });
  return *c;
}

}  // namespace

void add_bench_steps(CLI::App& bench) {
  const auto d = std::make_shared<BenchStepsCommand>(), p = std::make_shared<BenchStepsCommand>();
  CLI::App& c =
      add_command(bench, d, "decode", "A token more for each of some sequences", "--sequences", {1, 4, 16}, decode);
  c.add_option("--context", d->context, "Tokens that each sequence has before")
      ->capture_default_str()
      ->check(CLI::Range(int64_t(1), int64_t(1) << 20));
  c.footer("Example: weft bench decode models/qwen.Q4_K_M.gguf --sequences 1,8 --context 1024");
  add_command(bench, p, "prefill", "Prompts of some lengths, one at a time", "--tokens", {128, 512}, prefill)
      .footer("Example: weft bench prefill models/qwen --dtype bf16 --tokens 512,2048");
}

}  // namespace weft::app
