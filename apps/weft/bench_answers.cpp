// weft bench answers: requests that an engine answers side by side, to the last of their tokens: steps, the choice of
// tokens and telling them. On a device, steps that are read at once beside those that go ahead.
#include <future>
#include <random>

#include "bench.h"
#include "forward_ranks.h"
#include "kv_dtype.h"
#include "limits.h"
#include "sampling_flags.h"
#include "weft/serve/continuous_engine.h"

namespace weft::app {
namespace {

using Clock = std::chrono::steady_clock;

struct BenchAnswersCommand {
  ForwardOptions forward;
  std::optional<RowFormat> kv;  // none: the model's own dtype
  std::vector<int64_t> sequences{1, 16};
  int64_t context = 512, tokens = 128;
  int repeats = 3;
  SamplingOptions sampling{.temperature = 0};
  Output output;
};

// When each token of an answer was told.
class Stopwatch : public RequestSink {
 public:
  explicit Stopwatch(std::promise<std::vector<Clock::time_point>> told) : promise_(std::move(told)) {}
  void on_tokens(std::span<const TokenEvent> tokens) override {
    told_.insert(told_.end(), tokens.size(), Clock::now());
  }
  void on_finish(const Finish& finish) override {
    if (finish.reason == FinishReason::length)
      promise_.set_value(std::move(told_));
    else
      promise_.set_exception(std::make_exception_ptr(Error("a request was not answered: {}", finish.error)));
  }

 private:
  std::promise<std::vector<Clock::time_point>> promise_;
  std::vector<Clock::time_point> told_;
};

// Random prompts, all at once; seconds of a step in which all are being answered.
double seconds_of_step(const BenchAnswersCommand& o, Engine& engine, int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::future<std::vector<Clock::time_point>>> answers;
  for (int64_t i = 0; i < count; ++i) {
    Request r;
    for (int64_t t = 0; t < o.context; ++t) r.prompt.push_back(int32_t(random() % uint64_t(engine.limits().vocab)));
    r.max_tokens = o.tokens, r.sampling = o.sampling, r.sampling.seed = uint64_t(i);
    std::promise<std::vector<Clock::time_point>> told;
    answers.push_back(told.get_future());
    engine.submit(std::move(r), std::make_unique<Stopwatch>(std::move(told)));
  }
  Clock::time_point begin{}, end = Clock::time_point::max();
  std::vector<std::vector<Clock::time_point>> told;
  for (auto& answer : answers) {
    told.push_back(answer.get());
    begin = std::max(begin, told.back().front()), end = std::min(end, told.back().back());
  }
  const auto steps = std::ranges::count_if(told.front(), [&](auto at) { return at > begin && at <= end; });
  if (steps < 2) throw UsageError("too few tokens to time {} answers together: raise --tokens", count);
  return std::chrono::duration<double>(end - begin).count() / double(steps);
}

struct AnswersTime {
  double seconds = 0;      // of a step
  double share_ahead = 0;  // of steps
};

// On the driver.
AnswersTime measure(const BenchAnswersCommand& o, ForwardModel& model, int64_t count, bool goes_ahead) {
  const int64_t blocks = count * ceil_div(o.context + o.tokens + 1, kBlockTokens);
  ContinuousEngine engine(model, {.kv_blocks = blocks,
                                  .block_tokens = kBlockTokens,
                                  .kv_format = o.kv,
                                  .max_running = count,
                                  .tokens_per_step = std::max<int64_t>(count, 2048),
                                  .max_waiting = count,
                                  .keeps_prefixes = false,
                                  .goes_ahead = goes_ahead});
  if (!engine.is_driver()) return engine.run(), AnswersTime{};
  auto measured = std::async(std::launch::async, [&] {
    struct Stop {
      ContinuousEngine& engine;
      ~Stop() { engine.stop(); }
    } const stop{engine};
    std::vector<double> steps;
    for (int i = 0; i <= o.repeats; ++i) {  // the first of them is not counted
      const double seconds = seconds_of_step(o, engine, count, uint32_t(i));
      if (i > 0) steps.push_back(seconds);
    }
    const EngineStats stats = engine.stats();
    return AnswersTime{median(steps),
                       double(stats.steps_ahead_total) / double(std::max<int64_t>(stats.steps_total, 1))};
  });
  engine.run();
  return measured.get();
}

void bench_answers(const BenchAnswersCommand& o, ForwardModel& model) {
  if (o.context + o.tokens > model.config().context)
    throw UsageError("{} tokens are more than the model's context of {}: lower --context or --tokens",
                     o.context + o.tokens, model.config().context);
  const bool is_device = model.context().stream.allocator().device() == Device::cuda;
  const bool speaks = model.is_driver();
  nlohmann::json rows = nlohmann::json::array();
  if (speaks)
    o.output.text(fmt::format("{:>9}  {:<8} {:>10} {:>10} {:>12}", "sequences", "", "ms a step", "tokens/s",
                              is_device ? "steps ahead" : ""));
  for (const int64_t count : o.sequences)
    for (const bool goes_ahead : {false, true}) {
      if (goes_ahead && !is_device) continue;
      const AnswersTime t = measure(o, model, count, goes_ahead);
      if (!speaks) continue;
      o.output.text(fmt::format("{:>9}  {:<8} {:>10.3f} {:>10.1f} {:>12}", count, goes_ahead ? "ahead" : "at once",
                                t.seconds * 1e3, double(count) / t.seconds,
                                is_device ? fmt::format("{:.0f}%", 100 * t.share_ahead) : ""));
      rows.push_back({{"sequences", count},
                      {"goes_ahead", goes_ahead},
                      {"step_s", t.seconds},
                      {"tokens_per_s", double(count) / t.seconds},
                      {"share_ahead", t.share_ahead}});
    }
  if (speaks) o.output.json({{"bench", "answers"}, {"context", o.context}, {"tokens", o.tokens}, {"rows", rows}});
}

}  // namespace

void add_bench_answers(CLI::App& bench) {
  const auto o = std::make_shared<BenchAnswersCommand>();
  CLI::App* c = bench.add_subcommand("answers", "Requests that the engine answers, with the choice of tokens");
  o->forward.dtype = "auto";  // as weft serve has it
  o->forward.add_to(*c);
  add_kv_dtype(*c, o->kv);
  const auto sizes = CLI::Range(int64_t(1), int64_t(1) << 20);
  c->add_option("--sequences", o->sequences, "Answered side by side")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(int64_t(1), int64_t(1) << 12));
  c->add_option("--context", o->context, "Tokens of each prompt")->capture_default_str()->check(sizes);
  c->add_option("--tokens", o->tokens, "Of each answer")->capture_default_str()->check(sizes);
  c->add_option("--temperature", o->sampling.temperature, "0: greedy")->capture_default_str();
  c->add_option("--top-p", o->sampling.top_p, "1: off")->capture_default_str();
  c->add_option("--top-k", o->sampling.top_k, "0: off")->capture_default_str();
  c->add_option("--repeats", o->repeats, "Timed rounds; the median is shown")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  o->output.add_option(*c);
  c->footer("Example: weft bench answers random:llama-1b --dtype bf16 --device cuda --sequences 1,16,64");
  c->callback([o] {
    check_sampling_flags(o->sampling);
    run_forward(o->forward,
                [&](ForwardModel& model, const ModelSource&, Communicator&) { bench_answers(*o, model); });
  });
}

}  // namespace weft::app
