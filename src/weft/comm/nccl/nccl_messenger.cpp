// NcclMessenger: a queue of calls, each waited for on the stream.
#include "weft/comm/nccl/nccl_messenger.h"

#include <cstring>

#include "weft/tensor/cuda/check_cuda.h"

namespace weft {

NcclMessenger::NcclMessenger(const ncclUniqueId& id, bool is_sender, int device, Stream& stream,
                             std::shared_ptr<NcclChannels> channels)
    : id_(id),
      is_sender_(is_sender),
      device_(device),
      stream_(stream),
      channels_(std::move(channels)),
      ready_(kEvents),
      queue_([this](const Collective& call) { move(call); }) {
  for (cudaEvent_t& event : ready_)
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "make an event");
}

NcclMessenger::~NcclMessenger() {
  if (std::uncaught_exceptions() > 0) channels_->abort();
  for (const Sent& s : sent_) try {
      queue_.wait(s.ticket);
    } catch (...) {  // the job ends, and its first failure says why
    }
  if (channel_) channels_->remove(*channel_);
  for (cudaEvent_t event : ready_) cudaEventDestroy(event);
}

void NcclMessenger::move(const Collective& call) {
  if (!channel_) {
    check_cuda(cudaSetDevice(device_), "choose a device");
    channel_ = std::make_unique<NcclChannel>(id_, is_sender_ ? 0 : 1, 2);
    channels_->add(*channel_);
  }
  cudaEvent_t ready = ready_[size_t(call.sequence) % kEvents];
  check_cuda(cudaStreamWaitEvent(channel_->stream(), ready, 0), "wait for an event");
  channel_->queue(call, is_sender_ ? 0 : 1, 2);
  check_cuda(cudaStreamSynchronize(channel_->stream()), "finish a message");
}

uint32_t NcclMessenger::push(Collective call) {
  call.sequence = pushed_++;
  call.peer = is_sender_ ? 1 : 0;
  cudaEvent_t ready = ready_[size_t(call.sequence) % kEvents];
  check_cuda(cudaEventRecord(ready, static_cast<cudaStream_t>(stream_.queue().handle())), "record an event");
  return queue_.push(call);
}

void NcclMessenger::send(const Collective& call) {
  while (!sent_.empty() && queue_.is_done(sent_.front().ticket)) sent_.pop_front();
  const Tensor copy = stream_.allocator().empty(DType::u8, {int64_t(call.bytes)});
  stream_.queue().copy_on_device(copy.raw(), call.in, call.bytes);
  Collective copied = call;
  copied.in = static_cast<const std::byte*>(copy.raw());
  sent_.push_back({push(copied), copy});
}

void NcclMessenger::recv(const Collective& call) {
  queue_.wait(push(call), [this] { stream_.queue().look_around(); });
}

}  // namespace weft
