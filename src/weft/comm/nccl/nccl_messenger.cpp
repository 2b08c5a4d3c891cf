// NcclMessenger: a queue of calls, each waited for on the stream.
#include "weft/comm/nccl/nccl_messenger.h"

#include <algorithm>
#include <cstring>

#include "weft/tensor/cuda/check_cuda.h"

namespace weft {
namespace {

// Of messages on the host: the first, and the word ahead of each.
constexpr int kIdTag = 32000, kWordTag = 32001;

}  // namespace

NcclMessenger::NcclMessenger(Communicator& group, int peer, bool is_sender, int device, Stream& stream,
                             std::shared_ptr<NcclChannels> channels)
    : group_(group),
      peer_(peer),
      is_sender_(is_sender),
      device_(device),
      stream_(stream),
      channels_(std::move(channels)),
      ready_(kEvents),
      queue_([this](const Collective& call) { move(call); }, true) {
  const Tensor id = stream_.host_memory().empty(DType::u8, {int64_t(sizeof id_)});
  if (is_sender_) {
    check_nccl(ncclGetUniqueId(&id_), "begin a group");
    std::memcpy(id.raw(), &id_, sizeof id_);
    group_.send(id, peer_, kIdTag);
  } else {
    group_.recv(id, peer_, kIdTag);
    std::memcpy(&id_, id.raw(), sizeof id_);
  }
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

void NcclMessenger::announce(const Announced& message) {
  const Tensor word = stream_.host_memory().empty(DType::u8, {int64_t(sizeof message)});
  std::memcpy(word.raw(), &message, sizeof message);
  group_.send(word, peer_, kWordTag);
}

NcclMessenger::Announced NcclMessenger::hear() {
  Announced message{};
  const Tensor word = stream_.host_memory().empty(DType::u8, {int64_t(sizeof message)});
  group_.recv(word, peer_, kWordTag);
  std::memcpy(&message, word.raw(), sizeof message);
  return message;
}

void NcclMessenger::send(const Collective& call) {
  while (!sent_.empty() && queue_.is_done(sent_.front().ticket)) sent_.pop_front();
  announce({call.tag, int64_t(call.bytes)});
  const Tensor copy = memory_.empty(DType::u8, {int64_t(call.bytes)});
  stream_.queue().copy_on_device(copy.raw(), call.in, call.bytes);
  Collective copied = call;
  copied.in = static_cast<const std::byte*>(copy.raw());
  sent_.push_back({push(copied), copy});
}

void NcclMessenger::recv(const Collective& call) {
  if (take_kept(call)) return;
  for (;;) {
    const Announced message = hear();
    if (message.tag == call.tag) {
      check(message.bytes == int64_t(call.bytes), "{} (group {}): rank {} has sent {} bytes", describe(call),
            group_.label(), peer_, message.bytes);
      return receive(call.out, call.bytes);
    }
    const Tensor early = memory_.empty(DType::u8, {message.bytes});
    receive(static_cast<std::byte*>(early.raw()), early.bytes());
    kept_.push_back({int(message.tag), early});
  }
}

bool NcclMessenger::take_kept(const Collective& call) {
  const auto found = std::ranges::find(kept_, call.tag, &Kept::tag);
  if (found == kept_.end()) return false;
  check(found->message.bytes() == call.bytes, "{} (group {}): rank {} has sent {} bytes", describe(call),
        group_.label(), peer_, found->message.bytes());
  stream_.queue().copy_on_device(call.out, found->message.raw(), call.bytes);
  stream_.wait();  // before the message's memory is used again, by another stream
  kept_.erase(found);
  return true;
}

void NcclMessenger::receive(std::byte* out, size_t bytes) {
  Collective call;
  call.op = CommOp::recv, call.bytes = bytes, call.out = out;
  queue_.wait(push(call), [this] { stream_.queue().look_around(); });
}

}  // namespace weft
