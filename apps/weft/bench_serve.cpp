// weft bench serve: how fast a server of OpenAI's API answers, weft's own or another.
#include "bench.h"
#include "weft/base/error.h"
#include "weft/serve/bench/load.h"

namespace weft::app {
namespace {

struct BenchServeCommand {
  weft::bench::LoadOptions load;
  std::string url = "http://127.0.0.1:8000/v1";
  double good_first_ms = 0, good_token_ms = 0, good_total_ms = 0;
  Output output;
};

constexpr double kMs = 1000;

nlohmann::json json_of(const weft::bench::Percentiles& p) {
  return {{"mean", p.mean * kMs}, {"p50", p.p50 * kMs}, {"p90", p.p90 * kMs},
          {"p95", p.p95 * kMs},   {"p99", p.p99 * kMs}, {"max", p.most * kMs}};
}

void print(const BenchServeCommand& o, const weft::bench::LoadResult& r) {
  const double requests_per_s = double(r.complete) / r.seconds, good_per_s = double(r.good) / r.seconds;
  const double tokens_per_s = double(r.completion_tokens) / r.seconds;
  const double all_tokens_per_s = double(r.completion_tokens + r.prompt_tokens) / r.seconds;
  o.output.json({{"url", o.url},
                 {"model", r.model},
                 {"requests", o.load.requests},
                 {"concurrency", o.load.concurrency},
                 {"rate", o.load.rate},
                 {"seconds", r.seconds},
                 {"complete", r.complete},
                 {"failed", r.failed},
                 {"failures", r.failures},
                 {"prompt_tokens", r.prompt_tokens},
                 {"completion_tokens", r.completion_tokens},
                 {"requests_per_s", requests_per_s},
                 {"goodput_per_s", good_per_s},
                 {"tokens_per_s", tokens_per_s},
                 {"total_tokens_per_s", all_tokens_per_s},
                 {"ttft_ms", json_of(r.first_token_s)},
                 {"tpot_ms", json_of(r.per_token_s)},
                 {"itl_ms", json_of(r.between_tokens_s)},
                 {"e2e_ms", json_of(r.total_s)}});
  o.output.text(fmt::format("{} at {}: {} of {} requests answered in {:.2f} s", r.model, o.url, r.complete,
                            o.load.requests, r.seconds));
  for (const auto& [why, count] : r.failures) o.output.text(fmt::format("  failed: {} x {}", count, why));
  o.output.text(fmt::format("{:.1f} tokens/s made, {:.1f} with prompts; {:.2f} requests/s, {:.2f} of them good",
                            tokens_per_s, all_tokens_per_s, requests_per_s, good_per_s));
  o.output.text(fmt::format("{:22} {:>9} {:>9} {:>9} {:>9} {:>9}", "ms", "mean", "p50", "p90", "p95", "p99"));
  const auto line = [&](const char* name, const weft::bench::Percentiles& p) {
    o.output.text(fmt::format("{:22} {:9.2f} {:9.2f} {:9.2f} {:9.2f} {:9.2f}", name, p.mean * kMs, p.p50 * kMs,
                              p.p90 * kMs, p.p95 * kMs, p.p99 * kMs));
  };
  line("to the first token", r.first_token_s);
  line("for each token after", r.per_token_s);
  line("between two tokens", r.between_tokens_s);
  line("to the end", r.total_s);
}

void bench_serve(BenchServeCommand& o) {
  o.load.url = weft::bench::parse_url(o.url);
  o.load.good_first_token_s = o.good_first_ms / kMs;
  o.load.good_token_s = o.good_token_ms / kMs;
  o.load.good_total_s = o.good_total_ms / kMs;
  const weft::bench::LoadResult result = weft::bench::run_load(o.load);
  print(o, result);
  if (result.complete == 0) throw Error("no request was answered; is {} the API of a server?", o.url);
}

}  // namespace

void add_bench_serve(CLI::App& bench) {
  const auto o = std::make_shared<BenchServeCommand>();
  CLI::App* c = bench.add_subcommand("serve", "Latency and throughput of any server of OpenAI's API");
  auto& load = o->load;
  const auto positive = CLI::Range(int64_t(1), int64_t(1) << 24);
  c->add_option("--url", o->url, "Where the API is")->capture_default_str();
  c->add_option("--model", load.model, "Else the first one that the server names");
  c->add_option("--api-key", load.api_key, "Sent with every request");
  c->add_flag("--chat", load.is_chat, "Use /chat/completions; else /completions");
  c->add_option("--requests", load.requests, "How many in all")->capture_default_str()->check(positive);
  c->add_option("--concurrency", load.concurrency, "How many at once, at most")
      ->capture_default_str()
      ->check(positive);
  c->add_option("--rate", load.rate, "A second, arriving at random (Poisson); 0: as connections are free")
      ->capture_default_str();
  c->add_option("--input-tokens", load.input_tokens, "Of a prompt")->capture_default_str()->check(positive);
  c->add_option("--output-tokens", load.output_tokens, "Of an answer")->capture_default_str()->check(positive);
  c->add_option("--vocab", load.vocab, "Prompts are random tokens below it; 0: words, about a token each")
      ->check(CLI::Range(0, 1 << 24));
  c->add_flag("!--stop-at-end", load.ignore_eos, "Let answers end where the model ends them");
  c->add_option("--seed", load.seed, "Of prompts and arrivals")->capture_default_str()->check(not_negative());
  c->add_option("--timeout", load.timeout_s, "Seconds without a byte from the server")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 86400.0));
  c->add_option("--good-ttft-ms", o->good_first_ms, "A good answer's first token comes within this; 0: any time");
  c->add_option("--good-tpot-ms", o->good_token_ms, "And each token after it, on average");
  c->add_option("--good-e2e-ms", o->good_total_ms, "And its end");
  o->output.add_option(*c);
  c->footer("Example: weft bench serve --url http://127.0.0.1:8000/v1 --concurrency 16 --requests 200");
  c->callback([o] { bench_serve(*o); });
}

}  // namespace weft::app
