// The NCCL transport: a channel for a group's collectives, and messengers for the ranks that it exchanges messages
// with.
#include "weft/comm/nccl/nccl_transport.h"

#include <unistd.h>

#include <array>
#include <cstring>
#include <map>

#include "weft/base/philox.h"
#include "weft/comm/device_staging.h"
#include "weft/comm/nccl/nccl_messenger.h"
#include "weft/tensor/cuda/check_cuda.h"

namespace weft {
namespace {

class NcclTransport final : public DeviceTransport {
 public:
  NcclTransport(Communicator& group, Stream& stream, int device, std::shared_ptr<NcclChannels> channels)
      : group_(group), stream_(stream), device_(device), channels_(std::move(channels)) {
    for (cudaEvent_t& event : done_)
      check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "make an event");
    check_cuda(cudaEventCreateWithFlags(&ready_, cudaEventDisableTiming), "make an event");
  }
  ~NcclTransport() override {
    if (std::uncaught_exceptions() > 0) channels_->abort();
    if (channel_) channels_->remove(*channel_);
    messengers_.clear();
    channel_.reset();
    for (cudaEvent_t event : done_) cudaEventDestroy(event);
    cudaEventDestroy(ready_);
  }

  Stream& stream() override { return stream_; }
  std::unique_ptr<DeviceTransport> for_group(Communicator& group) override {
    if (group.size() == 1) return std::make_unique<DeviceStaging>(group, stream_);
    return std::make_unique<NcclTransport>(group, stream_, device_, channels_);
  }

  void prepare(const Collective& call) override {
    if (call.op == CommOp::send || call.op == CommOp::recv) return open_messenger(call);
    if (channel_) return;
    ncclUniqueId id{};
    const Tensor shared = stream_.host_memory().empty(DType::u8, {int64_t(sizeof id)});
    if (group_.rank() == 0) check_nccl(ncclGetUniqueId(&id), "begin a group");
    std::memcpy(shared.raw(), &id, sizeof id);
    group_.broadcast(shared, 0);
    std::memcpy(&id, shared.raw(), sizeof id);
    channel_ = std::make_unique<NcclChannel>(id, group_.rank(), group_.size());
    channels_->add(*channel_);
  }

  void run(const Collective& call, bool, OnHost) override {
    if (call.op == CommOp::send) return messengers_.at({call.peer, true})->send(call);
    if (call.op == CommOp::recv) return messengers_.at({call.peer, false})->recv(call);
    put_behind(start(call));
  }

  bool queues_calls() const override { return true; }

  uint32_t start(const Collective& call) override {
    const uint32_t ticket = ++started_;
    cudaEvent_t done = done_[ticket % kEvents];
    check_cuda(cudaEventRecord(ready_, own_stream()), "record an event");
    check_cuda(cudaStreamWaitEvent(channel_->stream(), ready_, 0), "wait for an event");
    timed(channel_->stream(), [&] { channel_->queue(call, group_.rank(), group_.size()); });
    check_cuda(cudaEventRecord(done, channel_->stream()), "record an event");
    return ticket;
  }

  void wait(uint32_t ticket) override {
    timed(own_stream(), [&] { put_behind(ticket); });
  }

 private:
  static constexpr size_t kEvents = 256;

  // The rank's later work. Events are recorded in order on one stream, so one that was recorded again since stands
  // for this call too.
  void put_behind(uint32_t ticket) {
    check_cuda(cudaStreamWaitEvent(own_stream(), done_[ticket % kEvents], 0), "wait for an event");
  }

  cudaStream_t own_stream() { return static_cast<cudaStream_t>(stream_.queue().handle()); }

  void open_messenger(const Collective& call) {
    auto& messenger = messengers_[{call.peer, call.op == CommOp::send}];
    if (!messenger)
      messenger =
          std::make_unique<NcclMessenger>(group_, call.peer, call.op == CommOp::send, device_, stream_, channels_);
  }

  Communicator& group_;
  Stream& stream_;
  int device_;
  std::shared_ptr<NcclChannels> channels_;
  std::unique_ptr<NcclChannel> channel_;                                       // made by the first collective
  std::map<std::pair<int, bool>, std::unique_ptr<NcclMessenger>> messengers_;  // by peer and whether it is sent to
  std::array<cudaEvent_t, kEvents> done_{};
  cudaEvent_t ready_ = nullptr;
  uint32_t started_ = 0;
};

// Whether every rank of the world has a device of its own.
bool have_own_devices(Communicator& world, Stream& stream, int device) {
  char host[256] = {}, bus[64] = {};  // the device's number means nothing to a process that sees others
  ::gethostname(host, sizeof host - 1);
  check_cuda(cudaDeviceGetPCIBusId(bus, sizeof bus, device), "say where a device is");
  const Tensor all = stream.host_memory().empty(DType::i64, {world.size(), 2});
  const Tensor mine = all.slice_rows(world.rank(), 1);
  mine.data<int64_t>()[0] = int64_t(name_hash(host)), mine.data<int64_t>()[1] = int64_t(name_hash(bus));
  world.all_gather(all, mine);
  const auto* const places = reinterpret_cast<const std::array<int64_t, 2>*>(all.data<int64_t>());
  for (int a = 0; a < world.size(); ++a)
    for (int b = 0; b < a; ++b)
      if (places[a] == places[b]) return false;
  return true;
}

}  // namespace

bool has_nccl() { return true; }

std::unique_ptr<DeviceTransport> make_nccl_transport(Communicator& world, Stream& stream) {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "say which device is in use");
  if (world.size() == 1 || !have_own_devices(world, stream, device)) return nullptr;
  auto channels = std::make_shared<NcclChannels>();
  // A rank that waits for its device learns that another has failed, and ends what the device waits for.
  stream.queue().set_watch([&world, channels] {
    try {
      world.check_alive();
      channels->check_alive();
    } catch (...) {
      channels->abort();
      throw;
    }
  });
  return std::make_unique<NcclTransport>(world, stream, device, std::move(channels));
}

}  // namespace weft
