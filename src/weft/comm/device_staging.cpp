// DeviceStaging: in by one copy, out by another.
#include "weft/comm/device_staging.h"

#include <numeric>

#include "weft/tensor/cuda/cuda_device.h"

namespace weft {

StagedBytes staged_bytes(const Collective& call, int rank, int size) {
  const size_t bytes = call.bytes, all = bytes * size_t(size);
  switch (call.op) {
    case CommOp::all_reduce: return {bytes, bytes};
    case CommOp::broadcast: return call.peer == rank ? StagedBytes{bytes, 0} : StagedBytes{0, bytes};
    case CommOp::send: return {bytes, 0};
    case CommOp::recv: return {0, bytes};
    case CommOp::all_gather: return {bytes, all};
    case CommOp::reduce_scatter: return {all, bytes};
    case CommOp::all_to_all:
      return {bytes,
              call.row_bytes * size_t(std::reduce(call.out_counts.begin(), call.out_counts.end(), int64_t(0)))};
    default: return {};  // the rest moves no tensors
  }
}

uint32_t DeviceStaging::start(const Collective& call) {
  timed(nullptr, [&] {
    if (call.in != call.out) stream_.queue().copy_on_device(call.out, call.in, call.bytes);
  });
  return 0;
}

void DeviceStaging::prepare(const Collective& call) {
  if (is_alone_in(call)) return;
  if (!own_queue_) own_queue_ = make_cuda_queue();
  stream_.wait();
}

void DeviceStaging::run(const Collective& call, bool is_on_comm_thread, OnHost on_host) {
  if (is_alone_in(call)) return void(start(call));
  DeviceQueue& queue = is_on_comm_thread ? *own_queue_ : stream_.queue();
  const StagedBytes bytes = staged_bytes(call, group_.rank(), group_.size());
  const bool is_in_place = call.in == call.out;
  const auto host = [&](size_t n) { return host_memory_.empty(DType::u8, {int64_t(n)}); };
  const Tensor in = host(is_in_place ? std::max(bytes.in, bytes.out) : bytes.in);
  const Tensor out = is_in_place ? in : host(bytes.out);
  if (bytes.in > 0) queue.copy_to_host(in.raw(), call.in, bytes.in);
  Collective staged = call;
  staged.in = static_cast<std::byte*>(in.raw()), staged.out = static_cast<std::byte*>(out.raw());
  staged.is_on_device = false;
  on_host(staged);
  if (bytes.out == 0) return;
  queue.copy_to_device(call.out, out.raw(), bytes.out);
  if (is_on_comm_thread) queue.wait();
}

}  // namespace weft
