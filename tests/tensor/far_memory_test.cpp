// Far memory gives back what was put there, in order, and says which file failed when it cannot.
#include "weft/tensor/far_memory.h"

#include <gtest/gtest.h>

#include "base/faulty_file_system.h"
#include "base/temporary_folder.h"
#include "weft/tensor/allocator.h"

namespace weft {
namespace {

constexpr int64_t kSizes[] = {1, 63, 4096, 4097, 1 << 20, (1 << 20) + 1, 3 * (1 << 20) + 12345};

Tensor numbered(Allocator& memory, int64_t bytes, int seed) {
  Tensor t = memory.empty(DType::u8, {bytes});
  for (int64_t i = 0; i < bytes; ++i) static_cast<uint8_t*>(t.raw())[i] = uint8_t((i * 31 + seed) % 251);
  return t;
}
bool are_equal(const Tensor& a, const Tensor& b) { return std::memcmp(a.raw(), b.raw(), a.bytes()) == 0; }

enum class Store { host, disk_in_memory, disk };

class FarMemoryTest : public testing::TestWithParam<Store> {
 protected:
  std::unique_ptr<FarStore> make_store() {
    if (GetParam() == Store::host) return make_host_store();
    const std::string direct = testing::TempDir() + "/weft-far-" + std::to_string(::getpid());
    return make_disk_store(FileSystem::real(), GetParam() == Store::disk ? direct : folder_ / "far");
  }
  TemporaryFolder folder_;
  Allocator memory_;
};
constexpr const char* kNames[] = {"host", "disk_in_memory", "disk"};
INSTANTIATE_TEST_SUITE_P(Stores, FarMemoryTest, testing::Values(Store::host, Store::disk_in_memory, Store::disk),
                         [](const auto& store) { return kNames[int(store.param)]; });

TEST_P(FarMemoryTest, GivesBackWhatWasStored) {
  FarMemory far(make_store());
  std::vector<FarMemory::Slot> slots;
  std::vector<Tensor> kept;
  for (const int64_t bytes : kSizes) slots.push_back(far.reserve(size_t(bytes)));
  for (int round = 0; round < 2; ++round) {
    kept.clear();
    for (size_t i = 0; i < slots.size(); ++i) {
      kept.push_back(numbered(memory_, kSizes[i], int(i) + 7 * round));
      far.start_store(slots[i], kept[i]);
    }
    for (size_t i = slots.size(); i-- > 0;) {
      const Tensor back = memory_.empty(DType::u8, {kSizes[i]});
      far.wait(far.start_load(slots[i], back));
      EXPECT_TRUE(are_equal(back, kept[i])) << kSizes[i] << " bytes, round " << round;
    }
  }
  int64_t sum = 0;
  for (const int64_t bytes : kSizes) sum += bytes;
  EXPECT_EQ(far.stats().reserved_bytes, sum);
  EXPECT_EQ(far.stats().stored_bytes, 2 * sum);
  EXPECT_EQ(far.stats().loaded_bytes, 2 * sum);
}

TEST_P(FarMemoryTest, BeginsWithZeros) {
  FarMemory far(make_store());
  const FarMemory::Slot slot = far.reserve(10000);
  const Tensor t = numbered(memory_, 10000, 1);
  far.wait(far.start_load(slot, t));
  EXPECT_TRUE(are_equal(t, memory_.zeros(DType::u8, {10000})));
}

// More transfers than the queue holds, all through one piece of memory: only the order keeps them apart.
TEST_P(FarMemoryTest, TransfersKeepTheirOrder) {
  FarMemory far(make_store());
  constexpr int kSlots = 300;
  std::vector<FarMemory::Slot> slots;
  for (int i = 0; i < kSlots; ++i) slots.push_back(far.reserve(100));
  for (int i = 0; i < kSlots; ++i) far.wait(far.start_store(slots[size_t(i)], numbered(memory_, 100, i)));
  const Tensor passing = memory_.empty(DType::u8, {100}), last = memory_.empty(DType::u8, {100});
  for (int i = 0; i + 1 < kSlots; ++i) {
    far.start_load(slots[size_t(i)], passing);
    far.start_store(slots[size_t(i) + 1], passing);
  }
  far.wait(far.start_load(slots[kSlots - 1], last));
  EXPECT_TRUE(are_equal(last, numbered(memory_, 100, 0)));
}

TEST(DiskStoreTest, LeavesNothingBehind) {
  const TemporaryFolder folder;
  write_file_atomically(FileSystem::real(), folder / "far", std::string_view("of a run that was killed"));
  FarMemory far(make_disk_store(FileSystem::real(), folder / "far"));
  EXPECT_TRUE(list_folder(FileSystem::real(), folder.path()).empty());
}

// What some fault at some call leads to: either all is right, or an Error names the file.
void store_and_load_with(Fault fault, int64_t nth) {
  const TemporaryFolder folder;
  FaultyFileSystem fs(fault, nth);
  Allocator memory;
  const std::string path = folder / "far";
  const auto run = [&] {
    FarMemory far(make_disk_store(fs, path));
    const int64_t bytes = (1 << 20) + 5000;
    const FarMemory::Slot slot = far.reserve(size_t(bytes));
    const Tensor t = numbered(memory, bytes, 3), back = memory.empty(DType::u8, {bytes});
    const FarMemory::Ticket store = far.start_store(slot, t), load = far.start_load(slot, back);
    far.wait(store);
    far.wait(load);
    EXPECT_TRUE(are_equal(t, back)) << name_of(fault) << " at call " << nth;
  };
  const bool is_harmless = fault == Fault::none || fault == Fault::eintr || fault == Fault::short_write;
  try {
    run();
    EXPECT_TRUE(is_harmless || !fs.fired() || nth >= fs.calls() - 1) << name_of(fault) << " at call " << nth;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(path), std::string::npos) << e.what();
    EXPECT_FALSE(is_harmless) << name_of(fault) << " at call " << nth << ": " << e.what();
  }
}

TEST(DiskStoreTest, SurvivesOrNamesTheFile) {
  for (const Fault fault : {Fault::none, Fault::eio, Fault::enospc, Fault::eintr, Fault::short_write,
                            Fault::eio_for_good, Fault::enospc_for_good})
    for (int64_t nth = 0; nth < 12; ++nth) store_and_load_with(fault, nth);
}

// After a failure nothing more is done, and every wait says the same.
TEST(DiskStoreTest, AFailureStays) {
  class FullDisk final : public PassingFileSystem {
   public:
    int64_t write_at(int, Bytes, uint64_t) override { return -ENOSPC; }
  } fs;
  const TemporaryFolder folder;
  Allocator memory;
  FarMemory far(make_disk_store(fs, folder / "far"));
  const FarMemory::Slot slot = far.reserve(100);
  const Tensor t = numbered(memory, 100, 1), back = numbered(memory, 100, 2);
  const FarMemory::Ticket store = far.start_store(slot, t), load = far.start_load(slot, back);
  for (const FarMemory::Ticket ticket : {load, store, load}) {
    try {
      far.wait(ticket);
      ADD_FAILURE() << "no error";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("far"), std::string::npos);
      EXPECT_NE(std::string(e.what()).find("No space left"), std::string::npos) << e.what();
    }
  }
  EXPECT_TRUE(are_equal(back, numbered(memory, 100, 2)));
}

TEST(DiskStoreTest, DamageIsFound) {
  class FlippedBit final : public PassingFileSystem {
   public:
    int64_t read(int fd, std::span<std::byte> into, uint64_t offset) override {
      const int64_t count = real_.read(fd, into, offset);
      if (offset == 1 << 20) into[17] ^= std::byte{4};
      return count;
    }
  } fs;
  const TemporaryFolder folder;
  Allocator memory;
  FarMemory far(make_disk_store(fs, folder / "far"));
  const int64_t bytes = 2 << 20;
  const FarMemory::Slot slot = far.reserve(size_t(bytes));
  const Tensor t = numbered(memory, bytes, 1);
  far.start_store(slot, t);
  try {
    far.wait(far.start_load(slot, t));
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("from byte 1048576 are not what was written"), std::string::npos)
        << e.what();
  }
}

TEST(FarMemoryMetaTest, CopiesNothing) {
  Allocator memory(Device::meta);
  FarMemory far(nullptr);
  const FarMemory::Slot slot = far.reserve(100);
  const Tensor t = memory.empty(DType::u8, {100});
  far.wait(far.start_store(slot, t));
  far.wait(far.start_load(slot, t));
  EXPECT_EQ(far.stats().loaded_bytes, 100);
}

}  // namespace
}  // namespace weft
