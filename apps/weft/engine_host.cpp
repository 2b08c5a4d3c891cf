// EngineHost: the engine runs on the thread that its weights were read on.
#include "engine_host.h"

#include "rank_resources.h"

namespace weft::app {

EngineHost::EngineHost(EngineOptions options, OnFailure on_failure)
    : thread_(
          [this, options = std::move(options), on_failure = std::move(on_failure)] { run(options, on_failure); }) {
  try {
    can_be_asked_.get_future().get();
  } catch (...) {
    thread_.join();
    throw;
  }
}

EngineHost::~EngineHost() {
  engine_->stop();
  is_released_.set_value();
  thread_.join();
}

void EngineHost::run(const EngineOptions& options, const OnFailure& on_failure) {
  bool is_told = false;
  const auto tell = [&](const char* error) {
    if (!std::exchange(is_told, true)) on_failure(error);
  };
  try {
    run_engine(options, [&](Driver& driver) {
      engine_ = &driver.engine;
      can_be_asked_.set_value();
      try {
        engine_->run();
      } catch (const std::exception& e) {
        tell(e.what());
      }
      is_released_.get_future().wait();  // nobody points to it any more
    });
  } catch (const std::exception& e) {
    if (engine_)
      tell(e.what());  // of another rank, or as it ended
    else
      can_be_asked_.set_exception(std::current_exception());
  }
}

HostedModel::HostedModel(const EngineOptions& options, const EngineHost::OnFailure& on_failure) {
  const int count = replicas_of(options.forward);
  std::vector<Engine*> engines;
  for (int i = 0; i < count; ++i) {
    EngineOptions one = options;
    one.forward.replica = i, one.forward.replicas = count;
    if (device_of(one.forward) == Device::cpu) one.num_models *= count;  // else each has devices of its own
    if (count > 1)
      one.forward.threads = std::max(1, (one.forward.threads > 0 ? one.forward.threads : usable_cores()) / count);
    hosts_.push_back(std::make_unique<EngineHost>(std::move(one), [this, on_failure](const std::string& error) {
      has_failed_ = true;
      on_failure(error);
    }));
    engines.push_back(&hosts_.back()->engine());
  }
  if (count > 1) together_.emplace(std::move(engines));
}

}  // namespace weft::app
