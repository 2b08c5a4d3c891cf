// NcclChannel: collectives as NCCL has them, and those that it has not as groups of messages.
#include "weft/comm/nccl/nccl_channel.h"

#include <algorithm>
#include <exception>

#include "weft/tensor/cuda/check_cuda.h"

namespace weft {
namespace {

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return ncclFloat32;
    case DType::f64: return ncclFloat64;
    case DType::bf16: return ncclBfloat16;
    case DType::f16: return ncclFloat16;
    case DType::i32: return ncclInt32;
    case DType::i64: return ncclInt64;
    default: return ncclUint8;
  }
}

ncclRedOp_t reduction_of(Reduction reduction) {
  return reduction == Reduction::max ? ncclMax : reduction == Reduction::min ? ncclMin : ncclSum;
}

}  // namespace

NcclChannel::NcclChannel(const ncclUniqueId& id, int rank, int size) {
  check_nccl(ncclCommInitRank(&comm_, size, id, rank), "join the ranks of a group");
  check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream");
}

NcclChannel::~NcclChannel() {
  if (std::uncaught_exceptions() > 0) abort();
  if (!is_aborted_.load()) {
    cudaStreamSynchronize(stream_);
    ncclCommDestroy(comm_);
  }
  cudaStreamDestroy(stream_);
}

void NcclChannel::abort() noexcept {
  if (!is_aborted_.exchange(true)) ncclCommAbort(comm_);
}

void NcclChannel::check_alive() const {
  if (is_aborted_.load()) throw AbortedError("the NCCL communicator was ended");
  ncclResult_t status = ncclSuccess;
  check_nccl(ncclCommGetAsyncError(comm_, &status), "say how it is");
  check_nccl(status, "go on");
}

void NcclChannel::queue(const Collective& call, int rank, int size) {
  check_alive();
  const ncclDataType_t type = type_of(call.dtype);
  const size_t count = call.bytes / size_of(call.dtype);
  const ncclRedOp_t reduction = reduction_of(call.reduction);
  switch (call.op) {
    case CommOp::all_reduce:
      return check_nccl(ncclAllReduce(call.in, call.out, count, type, reduction, comm_, stream_), "sum over ranks");
    case CommOp::all_gather:
      return check_nccl(ncclAllGather(call.in, call.out, count, type, comm_, stream_), "gather");
    case CommOp::reduce_scatter:
      return check_nccl(ncclReduceScatter(call.in, call.out, count, type, reduction, comm_, stream_), "reduce");
    case CommOp::broadcast:
      return check_nccl(ncclBroadcast(call.in, call.out, call.bytes, ncclUint8, call.peer, comm_, stream_),
                        "broadcast");
    case CommOp::send: return check_nccl(ncclSend(call.in, call.bytes, ncclUint8, call.peer, comm_, stream_), "send");
    case CommOp::recv:
      return check_nccl(ncclRecv(call.out, call.bytes, ncclUint8, call.peer, comm_, stream_), "receive");
    case CommOp::all_to_all: break;
    default: throw Error("{}: NCCL moves tensors only", describe(call));
  }
  check(int(call.in_counts.size()) == size && rank < size, "counts of {} ranks, not {}", call.in_counts.size(), size);
  check_nccl(ncclGroupStart(), "group messages");
  size_t from = 0, to = 0;
  for (int r = 0; r < size; ++r) {
    const size_t bytes = size_t(call.in_counts[size_t(r)]) * call.row_bytes;
    if (bytes > 0) check_nccl(ncclSend(call.in + from, bytes, ncclUint8, r, comm_, stream_), "send");
    from += bytes;
  }
  for (int r = 0; r < size; ++r) {
    const size_t bytes = size_t(call.out_counts[size_t(r)]) * call.row_bytes;
    if (bytes > 0) check_nccl(ncclRecv(call.out + to, bytes, ncclUint8, r, comm_, stream_), "receive");
    to += bytes;
  }
  check_nccl(ncclGroupEnd(), "exchange rows");
}

void NcclChannels::add(NcclChannel& channel) {
  const std::lock_guard lock(mutex_);
  all_.push_back(&channel);
  if (is_aborted_) channel.abort();
}

void NcclChannels::remove(NcclChannel& channel) {
  const std::lock_guard lock(mutex_);
  std::erase(all_, &channel);
}

void NcclChannels::check_alive() {
  const std::lock_guard lock(mutex_);
  for (const NcclChannel* channel : all_) channel->check_alive();
}

void NcclChannels::abort() noexcept {
  const std::lock_guard lock(mutex_);
  is_aborted_ = true;
  for (NcclChannel* channel : all_) channel->abort();
}

}  // namespace weft
