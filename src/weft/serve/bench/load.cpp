// Load: a thread for each connection; arrivals and prompts are functions of the seed.
#include "weft/serve/bench/load.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/philox.h"
#include "weft/base/timing.h"

namespace weft::bench {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr std::string_view kWords[] = {
    "the",   "of",  "and",  "a",    "to",    "in",    "is",  "you",  "that",  "it",    "he",   "was", "for",
    "on",    "are", "as",   "with", "his",   "they",  "at",  "be",   "this",  "from",  "have", "or",  "one",
    "had",   "by",  "word", "but",  "not",   "what",  "all", "were", "we",    "when",  "your", "can", "said",
    "there", "use", "an",   "each", "which", "she",   "do",  "how",  "their", "if",    "will", "up",  "other",
    "about", "out", "many", "then", "them",  "these", "so",  "some", "her",   "would", "make", "like"};

uint32_t random_bits(const LoadOptions& o, std::string_view what, int64_t index, int64_t place) {
  return philox(o.seed + name_hash(what), uint64_t(index), uint64_t(place))[0];
}

HttpClient::Headers headers_of(const LoadOptions& o) {
  if (o.api_key.empty()) return {};
  return {{"authorization", "Bearer " + o.api_key}};
}

HttpClient connect(const LoadOptions& o) {
  return HttpClient(o.url.host, o.url.port, std::chrono::milliseconds(int64_t(o.timeout_s * 1000)));
}

// Whether an event brings text: those with a role, a reason to finish or the usage do not.
bool has_text(const json& choice) {
  const json& from = choice.contains("delta") ? choice["delta"] : choice;
  for (const char* key : {"content", "text", "reasoning_content", "reasoning"}) {
    if (from.contains(key) && from[key].is_string() && !from[key].get_ref<const std::string&>().empty()) return true;
  }
  return from.contains("tool_calls");
}

void read_stream(HttpClient& client, Clock::time_point arrival, Sample& sample) {
  double last = 0;
  while (const auto data = client.next_event()) {
    if (*data == "[DONE]") {
      sample.is_complete = true;
      continue;
    }
    const double now = seconds_since(arrival);
    const json event = parse_json(*data, "an event of the server");
    if (event.contains("error")) sample.error = "an error within the stream";
    if (event.contains("usage") && event["usage"].is_object()) {
      sample.prompt_tokens = event["usage"].value("prompt_tokens", int64_t(0));
      sample.completion_tokens = event["usage"].value("completion_tokens", int64_t(0));
    }
    const bool is_text = event.contains("choices") && !event["choices"].empty() && has_text(event["choices"][0]);
    if (!is_text) continue;
    if (last == 0)
      sample.first_token_s = now;
    else
      sample.between_tokens_s.push_back(now - last);
    last = now;
  }
  sample.total_s = seconds_since(arrival);
  if (!sample.error.empty()) sample.is_complete = false;
  if (!sample.is_complete && sample.error.empty()) sample.error = "the stream ended early";
}

Sample send_one(const LoadOptions& o, const std::string& body, Clock::time_point arrival,
                std::optional<HttpClient>& client) {
  Sample sample;
  const bool is_kept = client.has_value();
  try {
    if (!client) client.emplace(connect(o));
    client->send("POST", o.url.path + (o.is_chat ? "/chat/completions" : "/completions"), body, headers_of(o));
    const HttpResult head = client->read_head();
    sample.status = head.status;
    if (head.status == 200) {
      read_stream(*client, arrival, sample);
    } else {
      client->read_body();
      sample.total_s = seconds_since(arrival);
      sample.error = fmt::format("status {}", head.status);
    }
    if (head.header("connection") == "close") client.reset();
  } catch (const Error& e) {
    // A server may close a connection that it has answered on, at any time. Source: RFC 9112, 9.3.1.
    if (is_kept && sample.status == 0 && dynamic_cast<const HttpClient::Closed*>(&e)) {
      client.reset();
      return send_one(o, body, arrival, client);
    }
    sample.error = sample.status == 0 ? "no answer" : "the connection broke";
    sample.is_complete = false;
    client.reset();
  }
  return sample;
}

std::string first_model(const LoadOptions& o) {
  HttpClient client = connect(o);
  const HttpResult result = client.request("GET", o.url.path + "/models", {}, headers_of(o));
  if (result.status != 200)
    throw Error("{}:{}{}/models answers {}: name a server of OpenAI's API, with /v1, and its key", o.url.host,
                o.url.port, o.url.path, result.status);
  const JsonDocument models = JsonDocument::parse(result.body, "the list of models");
  return models.root().at("data").at(int64_t(0)).at("id").string();
}

}  // namespace

double Sample::per_token_s() const {
  return completion_tokens > 1 ? (total_s - first_token_s) / double(completion_tokens - 1) : 0;
}

Percentiles percentiles_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {  // the nearest rank
    return values[size_t(std::max(std::ceil(share * double(values.size())) - 1, 0.0))];
  };
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {sum / double(values.size()), at(0.5), at(0.9), at(0.95), at(0.99), values.back()};
}

std::vector<double> arrival_times(const LoadOptions& o) {
  std::vector<double> times(size_t(o.requests), 0);
  double now = 0;
  for (size_t i = 0; o.rate > 0 && i < times.size(); ++i) {
    times[i] = now;
    now -= std::log(1 - double(to_uniform(random_bits(o, "arrival", int64_t(i), 0)))) / o.rate;
  }
  return times;
}

std::string request_body(const LoadOptions& o, const std::string& model, int64_t index) {
  json body = {{"model", model},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}},
               {"temperature", 0},
               {o.is_chat ? "max_completion_tokens" : "max_tokens", o.output_tokens}};
  if (o.ignore_eos) body["ignore_eos"] = true;
  if (o.vocab > 0 && !o.is_chat) {
    json tokens = json::array();
    for (int64_t i = 0; i < o.input_tokens; ++i)
      tokens.push_back(int64_t(random_bits(o, "prompt", index, i)) % o.vocab);
    body["prompt"] = std::move(tokens);
    return to_json_text(body);
  }
  std::string text;
  for (int64_t i = 0; i < o.input_tokens; ++i) {
    if (i > 0) text += ' ';
    text += kWords[random_bits(o, "prompt", index, i) % std::size(kWords)];
  }
  if (o.is_chat)
    body["messages"] = json::array({{{"role", "user"}, {"content", text}}});
  else
    body["prompt"] = text;
  return to_json_text(body);
}

LoadResult summarize(const LoadOptions& o, const std::vector<Sample>& samples, double seconds) {
  LoadResult result{.seconds = seconds};
  std::vector<double> first, per_token, between, total;
  for (const Sample& sample : samples) {
    if (!sample.is_complete) {
      ++result.failed;
      ++result.failures[sample.error];
      continue;
    }
    ++result.complete;
    result.prompt_tokens += sample.prompt_tokens;
    result.completion_tokens += sample.completion_tokens;
    first.push_back(sample.first_token_s);
    total.push_back(sample.total_s);
    if (sample.completion_tokens > 1) per_token.push_back(sample.per_token_s());
    between.insert(between.end(), sample.between_tokens_s.begin(), sample.between_tokens_s.end());
    const auto keeps = [](double limit, double value) { return limit <= 0 || value <= limit; };
    result.good += keeps(o.good_first_token_s, sample.first_token_s) && keeps(o.good_token_s, sample.per_token_s()) &&
                   keeps(o.good_total_s, sample.total_s);
  }
  result.first_token_s = percentiles_of(std::move(first));
  result.per_token_s = percentiles_of(std::move(per_token));
  result.between_tokens_s = percentiles_of(std::move(between));
  result.total_s = percentiles_of(std::move(total));
  return result;
}

LoadResult run_load(const LoadOptions& options) {
  const std::string model = options.model.empty() ? first_model(options) : options.model;
  const std::vector<double> arrivals = arrival_times(options);
  std::vector<std::string> bodies;
  for (int64_t i = 0; i < options.requests; ++i) bodies.push_back(request_body(options, model, i));
  std::vector<Sample> samples(bodies.size());
  std::atomic<size_t> next{0};
  const auto begin = Clock::now();
  const auto work = [&] {
    std::optional<HttpClient> client;
    for (size_t i = next++; i < samples.size(); i = next++) {
      auto arrival = begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(arrivals[i]));
      std::this_thread::sleep_until(arrival);
      if (options.rate <= 0) arrival = Clock::now();
      samples[i] = send_one(options, bodies[i], arrival, client);
    }
  };
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < std::min(options.concurrency, options.requests); ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  LoadResult result = summarize(options, samples, seconds_since(begin));
  result.model = model;
  return result;
}

}  // namespace weft::bench
