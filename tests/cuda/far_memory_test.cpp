// What a device's tensors leave on the host and on a disk: they come back, in order, through pinned memory alone
// where the system pins so much, and through any other where it does not.
#include "weft/tensor/far_memory.h"

#include <gtest/gtest.h>

#include <optional>

#include "base/temporary_folder.h"
#include "cuda/emulation.h"
#include "kernels/workbench.h"

namespace weft {
namespace {

constexpr int64_t kSizes[] = {1, 63, 4096, (2 << 20) + 5};  // queues carry pieces of 2 MiB

struct StoreCase {
  const char* name;
  bool is_disk;
  const char* pinned_bytes;  // that the system grants; null: any number
  bool is_pinned;            // all of it
};
class CudaFarMemory : public testing::TestWithParam<StoreCase> {
 protected:
  void SetUp() override {
    if (!GetParam().pinned_bytes) return;
    if (!kIsEmulated) GTEST_SKIP() << "a card's system grants what it grants";
    pinned_.emplace("WEFT_EMULATED_PINNED_BYTES", GetParam().pinned_bytes);
  }
  std::optional<EmulatorSetting> pinned_;

  std::unique_ptr<FarStore> make_store() {
    if (GetParam().is_disk) return make_disk_store(FileSystem::real(), folder_ / "far");
    return make_host_store(HostBlock::Pages::pinned);
  }
  Tensor numbered(int64_t bytes, int seed) {
    const Tensor t = bench_.host.empty(DType::u8, {bytes});
    for (int64_t i = 0; i < bytes; ++i) t.data<uint8_t>()[i] = uint8_t((i * 31 + seed) % 251);
    return t;
  }
  void expect_equal(const Tensor& on_device, const Tensor& want, const std::string& where) {
    const Tensor got = bench_.on_host(on_device);
    EXPECT_EQ(std::memcmp(got.raw(), want.raw(), want.bytes()), 0) << where;
  }
  TemporaryFolder folder_;
  Workbench bench_{1, Device::cuda};
};
INSTANTIATE_TEST_SUITE_P(Stores, CudaFarMemory,
                         testing::Values(StoreCase{"host", false, nullptr, true},
                                         StoreCase{"disk", true, nullptr, true},
                                         StoreCase{"host_of_little_pinned_memory", false, "5000", false},
                                         StoreCase{"host_without_pinned_memory", false, "0", false},
                                         StoreCase{"disk_without_pinned_memory", true, "0", false}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(CudaFarMemory, GivesBackWhatWasStored) {
  const int64_t pageable = num_pageable_copies();
  testing::internal::CaptureStderr();
  {
    FarMemory far(make_store(), &bench_.stream);
    std::vector<FarMemory::Slot> slots;
    for (const int64_t bytes : kSizes) slots.push_back(far.reserve(size_t(bytes)));
    for (int round = 0; round < 2; ++round) {
      std::vector<Tensor> kept, on_device;
      for (size_t i = 0; i < slots.size(); ++i) {
        kept.push_back(numbered(kSizes[i], int(i) + 7 * round));
        on_device.push_back(bench_.on_device(kept[i]));
        if (round == 0) {
          const Tensor before = bench_.empty(DType::u8, {kSizes[i]});
          far.wait(far.start_load(slots[i], before));
          expect_equal(before, bench_.host.zeros(DType::u8, {kSizes[i]}), "a new slot");
        }
        far.start_store(slots[i], on_device[i]);
      }
      for (size_t i = slots.size(); i-- > 0;) {
        const Tensor back = bench_.empty(DType::u8, {kSizes[i]});
        far.wait(far.start_load(slots[i], back));
        expect_equal(back, kept[i], fmt::format("{} bytes, round {}", kSizes[i], round));
      }
    }
  }
  // The queue's own ring is pinned too: what is copied through it waits, but never for pages.
  EXPECT_EQ(num_pageable_copies(), pageable);
  const std::string said = testing::internal::GetCapturedStderr();
  const bool should_say = !GetParam().is_disk && !GetParam().is_pinned;
  EXPECT_EQ(said.find("pins no more memory") != std::string::npos, should_say) << said;
  EXPECT_EQ(std::ranges::count(said, '\n'), should_say ? 1 : 0) << said;
}

TEST_P(CudaFarMemory, BlocksSayWhetherTheyArePinned) {
  const HostBlock small(100, HostBlock::Pages::pinned), any(100, HostBlock::Pages::any);
  HostBlock large(4 << 20, HostBlock::Pages::pinned);
  const std::string_view granted = GetParam().pinned_bytes ? GetParam().pinned_bytes : "";
  EXPECT_EQ(small.is_pinned(), granted != "0");
  EXPECT_EQ(large.is_pinned(), GetParam().is_pinned);
  EXPECT_FALSE(any.is_pinned());
  std::memset(large.data(), 1, large.bytes());
  const std::byte* const at = large.data();
  const HostBlock moved = std::move(large);
  EXPECT_EQ(moved.data(), at);
  EXPECT_EQ(large.data(), nullptr);
}

// Bytes of pinned memory come back when a block goes.
TEST(HostBlockTest, GivesPinnedMemoryBack) {
  if (!kIsEmulated) GTEST_SKIP() << "a card's system grants what it grants";
  const EmulatorSetting pinned("WEFT_EMULATED_PINNED_BYTES", "1000");
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(HostBlock(800, HostBlock::Pages::pinned).is_pinned()) << i;
  const HostBlock first(800, HostBlock::Pages::pinned);
  EXPECT_FALSE(HostBlock(800, HostBlock::Pages::pinned).is_pinned());
}

}  // namespace
}  // namespace weft
