// DeviceTransport: how one group moves tensors that lie on a device.
#pragma once
#include <cstdint>
#include <memory>
#include <utility>

#include "weft/base/function_ref.h"
#include "weft/comm/collective.h"
#include "weft/tensor/device_timer.h"
#include "weft/tensor/stream.h"

namespace weft {

class Communicator;

// A rank's calls come on its own thread, but for `run` of a started call. Memory of a call may change, and be read by
// what the rank queues later, when the call was run or waited for.
class DeviceTransport {
 public:
  virtual ~DeviceTransport() = default;

  virtual Stream& stream() = 0;  // of the rank

  // The same for a group that is split off, by all of its ranks; it outlives what is returned.
  virtual std::unique_ptr<DeviceTransport> for_group(Communicator& group) = 0;

  // Before each call: what has to be agreed on with the others, and what must not wait for the other thread.
  virtual void prepare(const Collective& call) = 0;

  // `on_host` does the same call over memory of the host.
  using OnHost = FunctionRef<void(const Collective&)>;
  virtual void run(const Collective& call, bool is_on_comm_thread, OnHost on_host) = 0;

  // Calls that the device queues need no thread: they are started at once, and `wait` puts the rank's later work
  // behind them. Tickets count from 1 in the order of the calls.
  virtual bool queues_calls() const { return false; }
  virtual uint32_t start(const Collective& call);
  virtual void wait(uint32_t ticket);

  // While the timer runs, calls that the device queues and waits for them leave marks of what the device did; null:
  // never. It is used on the rank's own thread alone.
  void set_timer(DeviceTimer* timer) { timer_ = timer; }
  DeviceMarks take_marks() { return std::exchange(marks_, {}); }  // of the last such call

 protected:
  // Work that `queue_work` queues, between two marks in that queue; null: the rank's own.
  template <class QueueWork>
  void timed(void* queue, QueueWork&& queue_work) {
    if (!timer_ || !timer_->is_running()) return queue_work();
    const int64_t begin = timer_->mark(queue);
    queue_work();
    marks_ = {begin, timer_->mark(queue)};
  }

 private:
  DeviceTimer* timer_ = nullptr;
  DeviceMarks marks_;
};

// NCCL where this program has it and every rank of the world has a device of its own, else through host memory. All
// ranks call it; `world` outlives what is returned.
std::unique_ptr<DeviceTransport> make_device_transport(Communicator& world, Stream& stream);

}  // namespace weft
