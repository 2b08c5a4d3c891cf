// with_engine_on: clients beside a ContinuousEngine whose model, with initial values, lies on a mesh.
#pragma once
#include "pretrained/model_on_ranks.h"
#include "serve/with_engine.h"

namespace weft {

inline void with_engine_on(const ModelConfig& config, const MeshShape& mesh, const ContinuousOptions& options,
                           const std::function<void(ContinuousEngine&)>& clients, DType dtype = DType::f32) {
  on_ranks(config, mesh, cpu_kernels(), dtype, initial_values(11),
           [&](ForwardModel& model) { with_engine(model, options, clients); });
}

}  // namespace weft
