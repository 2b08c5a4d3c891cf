// EngineHost: an engine on a thread of its own, from the reading of its weights to its end.
#pragma once
#include <atomic>
#include <future>
#include <optional>
#include <thread>

#include "serve_engine.h"
#include "weft/serve/engine_pool.h"
#include "weft/serve/replicated_engine.h"

namespace weft::app {

class EngineHost {
 public:
  // Waits until it can be asked; throws what is wrong with it. `on_failure` is told, on that thread and once,
  // why it ended before it was stopped, its requests having been refused by then, or how it failed to end.
  using OnFailure = std::function<void(const std::string& error)>;
  EngineHost(EngineOptions options, OnFailure on_failure);
  ~EngineHost();  // stops it
  EngineHost(const EngineHost&) = delete;

  MeshEngine& engine() { return *engine_; }

 private:
  void run(const EngineOptions& options, const OnFailure& on_failure);

  std::promise<void> can_be_asked_, is_released_;
  MeshEngine* engine_ = nullptr;
  std::thread thread_;
};

// A model's replicas (data parallelism) on threads of this process, as one engine. They come one after the other, so
// that each sees what memory the ones before left.
class HostedModel : public EnginePool::Loaded {
 public:
  HostedModel(const EngineOptions& options, const EngineHost::OnFailure& on_failure);

  Engine& engine() override { return together_ ? *together_ : static_cast<Engine&>(hosts_.front()->engine()); }
  bool is_alive() const override { return !has_failed_; }

 private:
  std::atomic<bool> has_failed_{false};
  std::vector<std::unique_ptr<EngineHost>> hosts_;
  std::optional<ReplicatedEngine> together_;
};

}  // namespace weft::app
