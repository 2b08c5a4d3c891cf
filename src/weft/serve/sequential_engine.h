// SequentialEngine: an Engine that runs one request after the other on one rank: simple, and slow under load.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "weft/pretrained/forward_model.h"
#include "weft/serve/engine.h"

namespace weft {

struct SequentialOptions {
  int64_t max_waiting = 256;
  int64_t prefill_tokens = 256;  // of a prompt at once; between them a cancellation is seen
};

class SequentialEngine : public Engine {
 public:
  // The model outlives the engine. Throws UsageError for one that is spread over several ranks.
  SequentialEngine(ForwardModel& model, const SequentialOptions& options);
  ~SequentialEngine() override;

  // Serves until stop(), on the thread that the model belongs to.
  void run();
  void stop();

  const EngineLimits& limits() const override { return limits_; }
  RequestId submit(Request request, std::unique_ptr<RequestSink> sink) override;
  void cancel(RequestId id) override;
  EngineStats stats() const override;
  void drain(std::chrono::milliseconds patience) override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Job {
    RequestId id = 0;
    Request request;
    std::unique_ptr<RequestSink> sink;
    Clock::time_point submitted, started;
  };
  std::optional<Job> next();
  void check_request(const Request& request) const;
  void serve(Job& job);
  Finish continue_prompt(Job& job);
  // Runs tokens behind the cache; the logits of the last of them. Of all of them when `all`.
  Tensor forward(std::span<const int32_t> tokens, KvCache& cache, bool all);
  bool prefill(Job& job, KvCache& cache, Tensor& logits, LogProbs& work);
  int32_t choose(Job& job, const Tensor& logits, const std::vector<int32_t>& answer, Sampler& sampler);
  static void reject(Job& job);

  ForwardModel& model_;
  const SequentialOptions options_;
  EngineLimits limits_;
  std::vector<int32_t> positions_;
  std::vector<uint32_t> allowed_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> waiting_;
  RequestId last_id_ = 0, running_ = 0;
  bool is_draining_ = false, is_stopped_ = false;
  EngineStats totals_;
  std::atomic<bool> is_cancelled_{false};  // the running one
};

}  // namespace weft
