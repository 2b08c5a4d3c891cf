// Metrics: what dashboards read, as Prometheus text; the names are those that vLLM's dashboards know.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "weft/serve/engine.h"

namespace weft::api {

// Counts of values up to each bound.
class Histogram {
 public:
  explicit Histogram(std::span<const double> bounds) : bounds_(bounds), counts_(bounds.size() + 1, 0) {}
  void add(double value);
  // Lines of `name`, all labelled with the model.
  void render(std::string_view name, std::string_view model, std::string& text) const;

 private:
  std::span<const double> bounds_;  // of static lifetime
  std::vector<uint64_t> counts_;    // of those above the bound before and up to this one; last: above all
  double sum_ = 0;
};

struct FinishedRequest {
  std::string model;
  FinishReason reason = FinishReason::stop;
  Usage usage;
  RequestTimes times;
  double total_s = 0;  // from the request's arrival
  int64_t n = 1, max_tokens = 0;
};

// May be used by many threads.
class Metrics {
 public:
  void first_token(const std::string& model, double seconds);  // since the request
  void next_token(const std::string& model, double seconds);   // since the one before
  void finished(const FinishedRequest& request);

  // All there is to say now, with what each model's engine tells.
  std::string render(std::span<const std::pair<std::string, const Engine*>> engines) const;

 private:
  struct OfModel {
    OfModel();
    // In the order of kHistograms in metrics.cpp.
    std::vector<Histogram> histograms;
    std::array<uint64_t, 4> finished{};  // by FinishReason
  };
  OfModel& of(const std::string& model);

  mutable std::mutex mutex_;
  std::map<std::string, OfModel> models_;
};

}  // namespace weft::api
