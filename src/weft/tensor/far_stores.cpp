// The stores of far memory: the host's memory, and a file.
#include <fmt/format.h>

#include <cstdio>
#include <vector>

#include "weft/base/checksum.h"
#include "weft/tensor/far_memory.h"

namespace weft {
namespace {

class HostStore final : public FarStore {
 public:
  explicit HostStore(HostBlock::Pages pages) : pages_(pages) {}

  size_t reserve(size_t bytes) override {
    const HostBlock& slot = slots_.emplace_back(bytes, pages_);
    std::memset(slot.data(), 0, bytes);
    if (pages_ == HostBlock::Pages::pinned && bytes > 0 && !slot.is_pinned()) {
      fmt::print(stderr,
                 "weft: the system pins no more memory of the host (ulimit -l): what is offloaded from now on moves "
                 "slower\n");
      pages_ = HostBlock::Pages::any;
    }
    return slots_.size() - 1;
  }
  void write(size_t slot, Bytes all) override { std::memcpy(slots_[slot].data(), all.data(), all.size()); }
  void read(size_t slot, std::span<std::byte> all) override {
    std::memcpy(all.data(), slots_[slot].data(), all.size());
  }
  const HostBlock* memory(size_t slot) const override { return &slots_[slot]; }

 private:
  HostBlock::Pages pages_;
  std::vector<HostBlock> slots_;
};

// Slots are whole blocks of the file, which pass through a piece of memory that is aligned as direct I/O wants it.
class DiskStore final : public FarStore {
 public:
  DiskStore(FileSystem& fs, const std::string& path) : file_(fs, path) {}

  size_t reserve(size_t bytes) override {
    Slot slot{.offset = end_, .digests = {}};
    slot.digests.resize((bytes + kChunk - 1) / kChunk);
    file_.reserve(end_ + whole_blocks(bytes));
    end_ += whole_blocks(bytes);
    slots_.push_back(std::move(slot));
    return slots_.size() - 1;
  }

  void write(size_t index, Bytes all) override {
    Slot& slot = slots_[index];
    for (size_t i = 0, at = 0; at < all.size(); ++i, at += kChunk) {
      const Bytes chunk = all.subspan(at, std::min(kChunk, all.size() - at));
      const Bytes padded{memory_.data(), size_t(whole_blocks(chunk.size()))};
      std::memcpy(memory_.data(), chunk.data(), chunk.size());
      std::memset(memory_.data() + chunk.size(), 0, padded.size() - chunk.size());
      slot.digests[i] = digest_of(padded);
      file_.write(padded, slot.offset + at);
    }
    slot.is_written = true;
  }

  void read(size_t index, std::span<std::byte> all) override {
    const Slot& slot = slots_[index];
    if (!slot.is_written) {
      std::memset(all.data(), 0, all.size());
      return;
    }
    for (size_t i = 0, at = 0; at < all.size(); ++i, at += kChunk) {
      const std::span<std::byte> chunk = all.subspan(at, std::min(kChunk, all.size() - at));
      const std::span<std::byte> padded{memory_.data(), size_t(whole_blocks(chunk.size()))};
      file_.read(padded, slot.offset + at);
      if (digest_of(padded) != slot.digests[i])
        throw Error(
            "{}: {} bytes from byte {} are not what was written there: the disk is not to be trusted, "
            "write another mesh.offload_dir",
            file_.path(), padded.size(), slot.offset + at);
      std::memcpy(chunk.data(), memory_.data(), chunk.size());
    }
  }

 private:
  static constexpr size_t kChunk = size_t(1) << 20;
  struct Slot {
    uint64_t offset = 0;
    bool is_written = false;
    std::vector<Digest> digests;  // of each chunk
  };
  static uint64_t whole_blocks(uint64_t bytes) {
    return (bytes + ScratchFile::kBlock - 1) / ScratchFile::kBlock * ScratchFile::kBlock;
  }
  struct AlignedMemory {
    struct alignas(ScratchFile::kBlock) Block {
      std::byte bytes[ScratchFile::kBlock];
    };
    std::byte* data() { return blocks[0].bytes; }
    std::vector<Block> blocks = std::vector<Block>(kChunk / ScratchFile::kBlock);
  };

  ScratchFile file_;
  uint64_t end_ = 0;
  AlignedMemory memory_;
  std::vector<Slot> slots_;
};

}  // namespace

std::unique_ptr<FarStore> make_host_store(HostBlock::Pages pages) { return std::make_unique<HostStore>(pages); }

std::unique_ptr<FarStore> make_disk_store(FileSystem& fs, const std::string& path) {
  return std::make_unique<DiskStore>(fs, path);
}

}  // namespace weft
