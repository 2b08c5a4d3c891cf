// Load: requests to any server of OpenAI's API as many clients would send them, and how long they took.
#pragma once
#include <map>

#include "weft/serve/bench/http_client.h"

namespace weft::bench {

struct LoadOptions {
  Url url;               // with "/v1" where the API lies below it, as in http://127.0.0.1:8000/v1
  std::string model;     // empty: the first that the server names
  std::string api_key;   // empty: none
  bool is_chat = false;  // /chat/completions; else /completions
  int64_t requests = 100;
  int64_t concurrency = 16;  // connections; more requests at once wait for one
  double rate = 0;           // requests a second, arriving at random (Poisson); 0: as soon as a connection is free
  int64_t input_tokens = 128, output_tokens = 64;
  int64_t vocab = 0;  // above 0: prompts are random tokens below it; else words, about one token each
  bool ignore_eos = true;
  uint64_t seed = 0;
  double timeout_s = 600;
  // What a good answer keeps; 0: anything is good.
  double good_first_token_s = 0, good_token_s = 0, good_total_s = 0;
};

// One request. Times are from its arrival, also when no connection was free then.
struct Sample {
  int status = 0;     // 0: no answer
  std::string error;  // why it failed
  double first_token_s = 0, total_s = 0;
  std::vector<double> between_tokens_s;
  int64_t prompt_tokens = 0, completion_tokens = 0;
  bool is_complete = false;
  double per_token_s() const;  // after the first
};

struct Percentiles {
  double mean = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, most = 0;
};
Percentiles percentiles_of(std::vector<double> values);

struct LoadResult {
  std::string model;
  double seconds = 0;  // from the first arrival to the last answer
  int64_t complete = 0, failed = 0, good = 0;
  std::map<std::string, int64_t> failures;
  int64_t prompt_tokens = 0, completion_tokens = 0;
  Percentiles first_token_s, per_token_s, between_tokens_s, total_s;
};

LoadResult run_load(const LoadOptions& options);

// For tests: what arrivals and prompts are, as functions of the options alone.
std::vector<double> arrival_times(const LoadOptions& options);
std::string request_body(const LoadOptions& options, const std::string& model, int64_t index);
LoadResult summarize(const LoadOptions& options, const std::vector<Sample>& samples, double seconds);

}  // namespace weft::bench
