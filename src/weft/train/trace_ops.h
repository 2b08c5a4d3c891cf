// TraceOps: the trace of one run: every op and every collective of this rank, and the file of all ranks. On a device
// ops and actions are shown when the device did them, and on a line of its own when the host queued them.
#pragma once
#include <string>
#include <vector>

#include "weft/autograd/context.h"
#include "weft/comm/communicator.h"
#include "weft/parallel/pipeline/schedule.h"
#include "weft/tensor/device_timer.h"
#include "weft/train/trace.h"

namespace weft {

class TraceOps final : public OpObserver {
 public:
  // Observes `world` and the groups split from it later; between start and stop also the context's ops.
  TraceOps(Communicator& world, Context& context);

  // On a device both wait for what is queued, and nothing between them does.
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
  // A moment of the host, and its place in the device's queue.
  struct Moment {
    int64_t ns = 0, mark = 0;
  };
  struct DeviceSpan {
    TraceEvent event;
    DeviceMarks marks;
  };
  Moment now() { return {Tracer::now_ns(), timer_ ? timer_->mark() : 0}; }
  void record(TraceEvent event, const Moment& begin);  // which ends now
  void record(const CommEvent& event);

  Communicator& world_;
  Context& context_;
  Tracer tracer_;
  std::unique_ptr<DeviceTimer> timer_;  // null on the CPU
  std::vector<DeviceSpan> on_device_;   // since start
  Moment action_begun_;
  std::vector<Moment> begun_;  // of the ops that run now, outermost first
};

}  // namespace weft
