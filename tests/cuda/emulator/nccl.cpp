// Emulated NCCL: ranks leave what they give, wait for each other, and take what they want of it.
#include "nccl.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "weft/base/error.h"
#include "weft/tensor/dtype.h"

namespace {

using Bytes = std::vector<char>;

struct Group {
  explicit Group(int size) : given(size_t(size)) {}
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Bytes> given;  // by each rank
  int arrived = 0;
  long round = 0;
  bool is_aborted = false;
  std::map<std::pair<int, int>, std::deque<Bytes>> messages;  // by sender and receiver

  // False when the group was ended meanwhile.
  bool meet(std::unique_lock<std::mutex>& lock) {
    const long mine = round;
    if (++arrived == int(given.size())) arrived = 0, ++round, changed.notify_all();
    changed.wait(lock, [&] { return round != mine || is_aborted; });
    return !is_aborted;
  }
};

std::mutex groups_mutex;
std::map<std::string, std::weak_ptr<Group>> groups;
std::atomic<int> num_ids{0};

size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclFloat32: return 4;
    default: return 8;
  }
}

Bytes read(const void* from, size_t bytes) {
  Bytes all(bytes);
  cudaMemcpyAsync(all.data(), from, bytes, cudaMemcpyDeviceToHost, nullptr);
  return all;
}
void write(void* to, const char* from, size_t bytes) {
  cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, nullptr);
}

template <class T>
void fold(char* into, const char* with, size_t count, ncclRedOp_t op) {
  for (size_t i = 0; i < count; ++i) {
    T a, b;
    std::memcpy(&a, into + i * sizeof(T), sizeof(T)), std::memcpy(&b, with + i * sizeof(T), sizeof(T));
    using Wide = std::conditional_t<sizeof(T) == 2, float, T>;
    const Wide x = Wide(a), y = Wide(b);
    const T z = T(op == ncclSum ? x + y : op == ncclMax ? std::max(x, y) : std::min(x, y));
    std::memcpy(into + i * sizeof(T), &z, sizeof(T));
  }
}

void fold(char* into, const char* with, size_t count, ncclDataType_t type, ncclRedOp_t op) {
  switch (type) {
    case ncclInt32: return fold<int32_t>(into, with, count, op);
    case ncclInt64: return fold<int64_t>(into, with, count, op);
    case ncclFloat32: return fold<float>(into, with, count, op);
    case ncclFloat64: return fold<double>(into, with, count, op);
    case ncclFloat16: return fold<weft::Float16>(into, with, count, op);
    case ncclBfloat16: return fold<weft::BFloat16>(into, with, count, op);
    default: weft::check(false, "bytes are not reduced");
  }
}

}  // namespace

struct EmulatedNccl {
  std::shared_ptr<Group> group;
  int rank;

  // take(given) runs when all ranks have given theirs.
  template <class Take>
  ncclResult_t exchange(Bytes mine, Take&& take) {
    std::unique_lock lock(group->mutex);
    if (group->is_aborted) return ncclRemoteError;
    group->given[size_t(rank)] = std::move(mine);
    if (!group->meet(lock)) return ncclRemoteError;
    take(group->given);
    return group->meet(lock) ? ncclSuccess : ncclRemoteError;
  }
};

const char* ncclGetErrorString(ncclResult_t status) {
  return status == ncclRemoteError ? "remote process exited or there was a network error" : "invalid argument";
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = {};
  std::snprintf(id->internal, sizeof id->internal, "%d", ++num_ids);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  std::shared_ptr<Group> group;
  {
    const std::lock_guard lock(groups_mutex);
    auto& known = groups[id.internal];
    group = known.lock();
    if (!group) known = group = std::make_shared<Group>(size);
  }
  if (rank < 0 || rank >= size || group->given.size() != size_t(size)) return ncclInvalidArgument;
  *comm = new EmulatedNccl{group, rank};
  std::unique_lock lock(group->mutex);
  return group->meet(lock) ? ncclSuccess : ncclRemoteError;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const std::lock_guard lock(comm->group->mutex);
  comm->group->is_aborted = true;
  comm->group->changed.notify_all();
  return ncclSuccess;  // what its owner still runs uses it: it is not freed
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* status) {
  const std::lock_guard lock(comm->group->mutex);
  *status = comm->group->is_aborted ? ncclRemoteError : ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclGroupStart() { return ncclSuccess; }
ncclResult_t ncclGroupEnd() { return ncclSuccess; }

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  emulated::finish(stream);
  return comm->exchange(read(in, count * size_of(type)), [&](const std::vector<Bytes>& given) {
    Bytes sum = given[0];
    for (size_t r = 1; r < given.size(); ++r) fold(sum.data(), given[r].data(), count, type, op);
    write(out, sum.data(), sum.size());
  });
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  emulated::finish(stream);
  const size_t bytes = count * size_of(type);
  return comm->exchange(read(in, bytes), [&](const std::vector<Bytes>& given) {
    for (size_t r = 0; r < given.size(); ++r) write(static_cast<char*>(out) + r * bytes, given[r].data(), bytes);
  });
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  emulated::finish(stream);
  const size_t bytes = count * size_of(type), first = bytes * size_t(comm->rank);
  return comm->exchange(read(in, bytes * comm->group->given.size()), [&](const std::vector<Bytes>& given) {
    Bytes sum(given[0].begin() + long(first), given[0].begin() + long(first + bytes));
    for (size_t r = 1; r < given.size(); ++r) fold(sum.data(), given[r].data() + first, count, type, op);
    write(out, sum.data(), sum.size());
  });
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  emulated::finish(stream);
  return comm->exchange(read(in, count * size_of(type)), [&](const std::vector<Bytes>& given) {
    write(out, given[size_t(root)].data(), given[size_t(root)].size());
  });
}
ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  emulated::finish(stream);
  Bytes message = read(in, count * size_of(type));
  const std::lock_guard lock(comm->group->mutex);
  comm->group->messages[{comm->rank, peer}].push_back(std::move(message));
  comm->group->changed.notify_all();
  return ncclSuccess;
}
ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  emulated::finish(stream);
  std::unique_lock lock(comm->group->mutex);
  std::deque<Bytes>& waiting = comm->group->messages[{peer, comm->rank}];
  comm->group->changed.wait(lock, [&] { return !waiting.empty() || comm->group->is_aborted; });
  if (comm->group->is_aborted) return ncclRemoteError;
  const Bytes message = std::move(waiting.front());
  waiting.pop_front();
  if (message.size() != count * size_of(type)) return ncclInvalidArgument;
  write(out, message.data(), message.size());
  return ncclSuccess;
}
