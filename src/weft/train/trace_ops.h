// TraceOps: the trace of one run: every op and every collective of this rank, and the file of all ranks.
#pragma once
#include <string>
#include <vector>

#include "weft/autograd/context.h"
#include "weft/comm/communicator.h"
#include "weft/parallel/pipeline/schedule.h"
#include "weft/train/trace.h"

namespace weft {

class TraceOps final : public OpObserver {
 public:
  // Observes `world` and the groups split from it later; between start and stop also the context's ops.
  TraceOps(Communicator& world, Context& context);

  void start();
  void stop();
  // Collective: rank 0 gathers all ranks' events and writes them.
  void write(const std::string& path);

  // An action of a pipeline, for Pipeline::set_observer.
  void record(const Action& action, bool is_begin);

  // The name of spans in which a rank waits for a collective that it started: what is not hidden behind work.
  static constexpr std::string_view kWaitName = "wait";

  void begin(std::string_view op, Phase phase) override;
  void end(std::string_view op, Phase phase) override;

 private:
  void record(const CommEvent& event);

  Communicator& world_;
  Context& context_;
  Tracer tracer_;
  int64_t action_begun_ns_ = 0;
  std::vector<int64_t> begun_ns_;  // of the ops that run now, outermost first
};

}  // namespace weft
