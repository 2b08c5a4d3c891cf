// weft bench choose: the next tokens of some sequences from a step's logits, by what requests ask for; of logits on a
// device beside copying whole rows, which is what it takes where less does not tell.
#include "bench.h"
#include "limits.h"
#include "threads_option.h"
#include "weft/base/philox.h"
#include "weft/serve/logit_rows.h"
#include "weft/tensor/host_access.h"

namespace weft::app {
namespace {

struct BenchChooseCommand {
  std::string device = "cpu";
  int64_t vocab = 128256;
  std::vector<int64_t> sequences{1, 64};
  int threads = 0, repeats = 20;
  Output output;
};

struct Asked {
  const char* name;
  SamplingOptions options;
  bool wants_log_prob = false;
};
const Asked kAsked[] = {{"greedy", {.temperature = 0}},
                        {"temperature 1", {.temperature = 1}},
                        {"and log-probabilities", {.temperature = 1}, true},
                        {"0.7, top-p 0.9", {.temperature = 0.7, .top_p = 0.9}},
                        {"0.7, top-k 20, top-p 0.8", {.temperature = 0.7, .top_k = 20, .top_p = 0.8}},
                        {"0.7, min-p 0.05", {.temperature = 0.7, .min_p = 0.05}},
                        {"and repetition 1.1", {.temperature = 0.7, .min_p = 0.05, .repetition_penalty = 1.1}}};

// As models leave them: a few tokens are likely. Rows differ.
void fill_with_logits(Context& c, const Tensor& logits) {
  constexpr float kSpread = 3;
  fill_on_host(c.stream, logits, [&](const Tensor& host) {
    for (int64_t i = 0; i < host.numel(); ++i) host.data<float>()[i] = kSpread * philox_normal(1, 0, uint64_t(i));
  });
}

struct ChoiceTime {
  double seconds;
  double copied;  // rows of a step that came whole
};

ChoiceTime choose(RankResources& rank, const Tensor& logits, const Asked& asked, int repeats) {
  const int64_t rows = logits.dim(0), vocab = logits.dim(1);
  std::vector<Sampler> samplers(size_t(rows), Sampler(asked.options));
  std::vector<int32_t> prompt;  // that penalties count
  for (int32_t i = 0; i < 1000; ++i) prompt.push_back(int32_t(i * 131 % vocab));
  LogitRows chosen;
  uint64_t position = 0;
  const auto each_row = [&](FunctionRef<void(int64_t row)> work) {
    rank.team.parallel_for(rows, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) work(i);
    });
  };
  const auto seconds = time_calls(repeats, [&] {
    const SamplingPast past{.prompt = prompt};
    ++position;
    chosen.begin(logits, vocab);
    each_row([&](int64_t i) { chosen.wish_choice(i, samplers[size_t(i)], position, past, asked.wants_log_prob); });
    chosen.find(rank.context);
    chosen.read(rank.context);
    each_row([&](int64_t i) {
      chosen.choose(i, samplers[size_t(i)], position, past);
      if (asked.wants_log_prob) chosen.log_sum(i);
    });
  });
  return {median(seconds), double(chosen.num_copied()) / double(repeats + 1)};
}

void bench_choose(const BenchChooseCommand& o) {
  RankResources rank(o.threads, parse_device(o.device));
  const bool is_device = rank.allocator.device() == Device::cuda;
  nlohmann::json rows = nlohmann::json::array();
  o.output.text(fmt::format("{} tokens, {} threads; ms of a step", o.vocab, rank.team.size()));
  o.output.text(fmt::format("{:>9}  {:<26} {:>9}  {:>10}", "sequences", "", "ms", is_device ? "whole rows" : ""));
  const auto tell = [&](int64_t sequences, const std::string& name, const ChoiceTime& m) {
    o.output.text(fmt::format("{:>9}  {:<26} {:>9.3f}  {:>10}", sequences, name, m.seconds * 1e3,
                              is_device ? fmt::format("{:.1f}", m.copied) : ""));
    rows.push_back({{"sequences", sequences}, {"asked", name}, {"seconds", m.seconds}, {"whole_rows", m.copied}});
  };
  for (const int64_t sequences : o.sequences) {
    const Tensor logits = rank.context.empty(DType::f32, {sequences, o.vocab});
    fill_with_logits(rank.context, logits);
    if (is_device)
      tell(sequences, "copying whole rows",
           {median(time_calls(o.repeats, [&] { on_host(rank.stream, logits); })), double(sequences)});
    for (const Asked& asked : kAsked) {
      // Penalties change rows in place.
      const Tensor own = rank.context.empty_like(logits);
      rank.stream.copy(own, logits);
      tell(sequences, asked.name, choose(rank, own, asked, o.repeats));
    }
  }
  o.output.json(
      {{"bench", "choose"}, {"device", o.device}, {"threads", rank.team.size()}, {"vocab", o.vocab}, {"rows", rows}});
}

}  // namespace

void add_bench_choose(CLI::App& bench) {
  const auto o = std::make_shared<BenchChooseCommand>();
  CLI::App* c = bench.add_subcommand("choose", "The next tokens from the logits of a step of serving");
  c->add_option("--vocab", o->vocab, "Tokens")
      ->capture_default_str()
      ->check(CLI::Range(int64_t(1), int64_t(1) << 24));
  c->add_option("--sequences", o->sequences, "That get a token each")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(int64_t(1), int64_t(1) << 16));
  c->add_option("--device", o->device, "cpu or cuda")->capture_default_str();
  add_threads(*c, o->threads);
  c->add_option("--repeats", o->repeats, "Timed steps; the median is shown")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  o->output.add_option(*c);
  c->footer("Example: weft bench choose --vocab 151936 --sequences 1,256");
  c->callback([o] { bench_choose(*o); });
}

}  // namespace weft::app
