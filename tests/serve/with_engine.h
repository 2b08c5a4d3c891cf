// with_engine: clients beside a ContinuousEngine that serves a model on this rank.
#pragma once
#include "serve/recorder.h"
#include "weft/serve/continuous_engine.h"

namespace weft {

// Runs `clients` beside the engine of the driver; `first` before its first step.
inline void with_engine(ForwardModel& model, const ContinuousOptions& options,
                        const std::function<void(ContinuousEngine&)>& clients,
                        const std::function<void(ContinuousEngine&)>& first = {}) {
  ContinuousEngine engine(model, options);
  if (!engine.is_driver()) return engine.run();
  if (first) first(engine);
  auto done = std::async(std::launch::async, [&] {
    try {
      clients(engine);
    } catch (...) {
      engine.stop();
      throw;
    }
    engine.stop();
  });
  engine.run();
  done.get();
}

}  // namespace weft
