// FarMemory: memory beyond that of a rank, on the host or on a disk; a thread copies to and from it behind the
// rank's work.
#pragma once
#include <array>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "weft/base/file.h"
#include "weft/tensor/host_block.h"
#include "weft/tensor/stream.h"

namespace weft {

// Where a FarMemory has its bytes. reserve() is called while nothing else is; the others by one thread.
class FarStore {
 public:
  virtual ~FarStore() = default;
  virtual size_t reserve(size_t bytes) = 0;  // a new slot, of zeros
  virtual void write(size_t slot, Bytes all) = 0;
  virtual void read(size_t slot, std::span<std::byte> all) = 0;
  // The slot itself, where it lies in the host's memory; else null.
  virtual const HostBlock* memory(size_t /*slot*/) const { return nullptr; }
};

// pinned: for tensors of a device, which are copied to and from slots without passing through other memory.
std::unique_ptr<FarStore> make_host_store(HostBlock::Pages pages = HostBlock::Pages::any);
// A file of this path, without a name once it is there. Blocks are read past the page cache where the file system can
// do that, and compared with the checksums of what was written. Throws Error naming the file when the disk is full or
// gives back other bytes.
std::unique_ptr<FarStore> make_disk_store(FileSystem& fs, const std::string& path);

struct FarStats {
  int64_t reserved_bytes = 0, stored_bytes = 0, loaded_bytes = 0;
  double waited_seconds = 0;  // for transfers that were not done when they were wanted
};

// Transfers are done in the order in which they are started, so that a load after a store of the same slot, and a
// load into memory that an earlier one stores, need no waiting. One thread calls. In the steady state nothing is
// allocated.
class FarMemory {
 public:
  // Without a store nothing is copied and no time passes, as over meta memory.
  // stream: of the rank, when its tensors lie on a device; then transfers begin when what it has queued is done, for
  // which it does not wait.
  explicit FarMemory(std::unique_ptr<FarStore> store, Stream* stream = nullptr);
  ~FarMemory();  // after all that was started is done
  FarMemory(const FarMemory&) = delete;
  FarMemory& operator=(const FarMemory&) = delete;

  struct Slot {
    size_t index = 0, bytes = 0;
  };
  Slot reserve(size_t bytes);

  // `from` and `into` are as large as the slot. The tensor's memory must live, and what is loaded or stored must be
  // left alone, until the ticket was waited for.
  using Ticket = uint64_t;
  Ticket start_store(const Slot& slot, const Tensor& from);
  Ticket start_load(const Slot& slot, const Tensor& into);
  // Throws what the transfer threw; after one has failed, later ones are not done and throw the same.
  void wait(Ticket ticket);
  void wait_for_all() noexcept;  // and leave it to the next wait() to say what failed

  bool has_failed() const {
    const std::lock_guard lock(mutex_);
    return failure_ != nullptr;
  }
  FarStats stats() const { return stats_; }

 private:
  struct Transfer {
    size_t slot = 0;
    std::byte* data = nullptr;
    size_t bytes = 0;
    bool is_store = false;
  };
  static constexpr size_t kCapacity = 256;
  Ticket start(const Slot& slot, const Tensor& t, bool is_store);
  void wait_until_done(Ticket ticket) noexcept;
  void work();
  void move(const Transfer& t);
  // Between the device and memory of the host; returns when it is done.
  void copy_to(const HostBlock& host, const Transfer& t);
  void copy_from(const HostBlock& host, const Transfer& t);

  std::unique_ptr<FarStore> store_;
  Stream* stream_;                          // null: tensors lie on the host
  std::unique_ptr<DeviceQueue> own_queue_;  // of the thread, likewise
  HostBlock staged_;                        // what passes between the device and a store that is no memory
  FarStats stats_;
  mutable std::mutex mutex_;
  std::condition_variable started_signal_, done_signal_;
  std::array<Transfer, kCapacity> ring_;
  Ticket started_ = 0, done_ = 0;
  bool stop_ = false;
  Ticket failed_ = UINT64_MAX;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace weft
