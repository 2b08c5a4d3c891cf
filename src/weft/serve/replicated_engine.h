// ReplicatedEngine: several engines of one model as one (data parallelism). Each has weights and a cache of its own.
#pragma once
#include <atomic>
#include <mutex>
#include <unordered_map>

#include "weft/serve/engine.h"

namespace weft {

// A request goes to the engine that has the fewest open ones, or to the one that last had a prompt that begins alike,
// whose cache knows that beginning, as long as it is not much busier. What is answered does not depend on the choice.
// Those that have failed get none.
class ReplicatedEngine : public Engine {
 public:
  // At least one, alike in their limits and adapters; they outlive this.
  explicit ReplicatedEngine(std::vector<Engine*> replicas);

  const EngineLimits& limits() const override { return limits_; }  // requests: of all together
  std::vector<std::string> adapters() const override;              // that all have
  // All have it, or none has.
  void load_adapter(const std::string& name, const std::string& folder, Told told) override;
  bool unload_adapter(const std::string& name) override;
  RequestId submit(Request request, std::unique_ptr<RequestSink> sink) override;
  void cancel(RequestId id) override;
  EngineStats stats() const override;  // sums
  void drain(std::chrono::milliseconds patience) override;

 private:
  using Count = std::shared_ptr<std::atomic<int64_t>>;
  size_t choose(const Request& request);
  std::vector<Engine*> alive() const;  // the first where none is

  const std::vector<Engine*> replicas_;
  EngineLimits limits_;
  std::vector<Count> open_;  // requests of each; sinks may outlive this
  std::mutex mutex_;
  std::unordered_map<uint64_t, size_t> last_with_;  // hash of a prompt's beginning
};

}  // namespace weft
