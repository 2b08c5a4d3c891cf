// Metrics: counters, gauges and histograms in Prometheus' text form.
#include "weft/serve/api/metrics.h"

#include <algorithm>

namespace weft::api {
namespace {

// Bounds as in vLLM, so that panels drawn for one show the other.
constexpr double kFirstToken[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                  1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
constexpr double kNextToken[] = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                                 0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
constexpr double kRequest[] = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                               30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
constexpr double kTokens[] = {1,    2,    5,     10,    20,    50,     100,    200,    500,    1000,
                              2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000};
constexpr double kAnswers[] = {1, 2, 5, 10, 20};

enum HistogramIndex : size_t {
  kTimeToFirst,
  kBetweenTokens,
  kEndToEnd,
  kQueueTime,
  kInferenceTime,
  kPrefillTime,
  kDecodeTime,
  kTimePerToken,
  kPromptTokens,
  kGenerationTokens,
  kParamsN,
  kParamsMaxTokens,
  kNumHistograms
};
struct HistogramInfo {
  std::string_view name, help;
  std::span<const double> bounds;
};
constexpr HistogramInfo kHistograms[kNumHistograms] = {
    {"vllm:time_to_first_token_seconds", "From a request to its first token", kFirstToken},
    {"vllm:inter_token_latency_seconds", "Between two tokens of an answer", kNextToken},
    {"vllm:e2e_request_latency_seconds", "From a request to the end of its answer", kRequest},
    {"vllm:request_queue_time_seconds", "In the queue", kRequest},
    {"vllm:request_inference_time_seconds", "From the queue to the end", kRequest},
    {"vllm:request_prefill_time_seconds", "Of the prompt", kRequest},
    {"vllm:request_decode_time_seconds", "Of the answer", kRequest},
    {"vllm:request_time_per_output_token_seconds", "Of an answer, for each of its tokens", kNextToken},
    {"vllm:request_prompt_tokens", "Tokens of a prompt", kTokens},
    {"vllm:request_generation_tokens", "Tokens of an answer", kTokens},
    {"vllm:request_params_n", "Answers that a request asked for", kAnswers},
    {"vllm:request_params_max_tokens", "Tokens that an answer may have", kTokens},
};

void describe(std::string_view name, std::string_view kind, std::string_view help, std::string& text) {
  text += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, kind);
}

// As Prometheus wants label values.
std::string label_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

struct EngineMetric {
  std::string_view name, kind, help;
  double (*value)(const EngineStats&);
};
constexpr EngineMetric kEngineMetrics[] = {
    {"vllm:num_requests_running", "gauge", "Requests in the step",
     [](const EngineStats& s) { return double(s.running); }},
    {"vllm:num_requests_waiting", "gauge", "Requests in the queue",
     [](const EngineStats& s) { return double(s.waiting); }},
    {"vllm:kv_cache_usage_perc", "gauge", "Share of the cache's blocks that requests hold, 1 is all",
     [](const EngineStats& s) { return s.kv_blocks > 0 ? double(s.kv_blocks_used) / double(s.kv_blocks) : 0; }},
    {"vllm:prefix_cache_queries_total", "counter", "Tokens looked for in the cache of prefixes",
     [](const EngineStats& s) { return double(s.prompt_tokens_total); }},
    {"vllm:prefix_cache_hits_total", "counter", "Tokens found there",
     [](const EngineStats& s) { return double(s.cached_tokens_total); }},
    {"vllm:num_preemptions_total", "counter", "Requests that gave way to others",
     [](const EngineStats& s) { return double(s.preemptions_total); }},
    {"vllm:prompt_tokens_total", "counter", "Tokens of prompts",
     [](const EngineStats& s) { return double(s.prompt_tokens_total); }},
    {"vllm:generation_tokens_total", "counter", "Tokens made",
     [](const EngineStats& s) { return double(s.generated_tokens_total); }},
    {"vllm:spec_decode_num_draft_tokens_total", "counter", "Draft tokens",
     [](const EngineStats& s) { return double(s.drafted_tokens_total); }},
    {"vllm:spec_decode_num_accepted_tokens_total", "counter", "Draft tokens that were accepted",
     [](const EngineStats& s) { return double(s.accepted_tokens_total); }},
    {"weft:kv_waste_ratio", "gauge", "Share of the used blocks' places that hold nothing",
     [](const EngineStats& s) {
       const double places = double(s.kv_blocks_used) * double(s.kv_block_tokens);
       return places > 0 ? 1 - double(s.kv_tokens_used) / places : 0;
     }},
    {"weft:steps_total", "counter", "Steps of the engine",
     [](const EngineStats& s) { return double(s.steps_total); }},
    {"weft:steps_ahead_total", "counter", "Steps answered while a device computed the next one",
     [](const EngineStats& s) { return double(s.steps_ahead_total); }},
};

constexpr std::string_view kReasons[] = {"stop", "length", "abort", "error"};

}  // namespace

void Histogram::add(double value) {
  ++counts_[size_t(std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin())];
  sum_ += value;
}

void Histogram::render(std::string_view name, std::string_view model, std::string& text) const {
  uint64_t reached = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    reached += counts_[i];
    const std::string bound = i < bounds_.size() ? fmt::format("{}", bounds_[i]) : "+Inf";
    text += fmt::format("{}_bucket{{model_name=\"{}\",le=\"{}\"}} {}\n", name, model, bound, reached);
  }
  text += fmt::format("{}_sum{{model_name=\"{}\"}} {}\n", name, model, sum_);
  text += fmt::format("{}_count{{model_name=\"{}\"}} {}\n", name, model, reached);
}

Metrics::OfModel::OfModel() {
  for (const HistogramInfo& info : kHistograms) histograms.emplace_back(info.bounds);
}

Metrics::OfModel& Metrics::of(const std::string& model) { return models_[model]; }

void Metrics::first_token(const std::string& model, double seconds) {
  const std::lock_guard lock(mutex_);
  of(model).histograms[kTimeToFirst].add(seconds);
}

void Metrics::next_token(const std::string& model, double seconds) {
  const std::lock_guard lock(mutex_);
  of(model).histograms[kBetweenTokens].add(seconds);
}

void Metrics::finished(const FinishedRequest& r) {
  const std::lock_guard lock(mutex_);
  OfModel& model = of(r.model);
  ++model.finished[size_t(r.reason)];
  if (r.reason != FinishReason::stop && r.reason != FinishReason::length) return;
  const auto add = [&](HistogramIndex index, double value) { model.histograms[index].add(value); };
  add(kEndToEnd, r.total_s);
  add(kQueueTime, r.times.queued_s);
  add(kInferenceTime, r.times.prefill_s + r.times.decode_s);
  add(kPrefillTime, r.times.prefill_s);
  add(kDecodeTime, r.times.decode_s);
  if (r.usage.completion_tokens > 1) add(kTimePerToken, r.times.decode_s / double(r.usage.completion_tokens - 1));
  add(kPromptTokens, double(r.usage.prompt_tokens));
  add(kGenerationTokens, double(r.usage.completion_tokens));
  add(kParamsN, double(r.n));
  add(kParamsMaxTokens, double(r.max_tokens));
}

std::string Metrics::render(std::span<const std::pair<std::string, const Engine*>> engines) const {
  std::string text;
  std::vector<std::pair<std::string, EngineStats>> stats;
  for (const auto& [name, engine] : engines) stats.emplace_back(label_text(name), engine->stats());
  for (const EngineMetric& metric : kEngineMetrics) {
    describe(metric.name, metric.kind, metric.help, text);
    for (const auto& [name, values] : stats)
      text += fmt::format("{}{{model_name=\"{}\"}} {}\n", metric.name, name, metric.value(values));
  }
  const std::lock_guard lock(mutex_);
  describe("vllm:request_success_total", "counter", "Requests that ended, by reason", text);
  for (const auto& [name, model] : models_) {
    for (size_t i = 0; i < model.finished.size(); ++i)
      text += fmt::format("vllm:request_success_total{{model_name=\"{}\",finished_reason=\"{}\"}} {}\n",
                          label_text(name), kReasons[i], model.finished[i]);
  }
  for (size_t i = 0; i < kNumHistograms; ++i) {
    describe(kHistograms[i].name, "histogram", kHistograms[i].help, text);
    for (const auto& [name, model] : models_) model.histograms[i].render(kHistograms[i].name, label_text(name), text);
  }
  return text;
}

}  // namespace weft::api
