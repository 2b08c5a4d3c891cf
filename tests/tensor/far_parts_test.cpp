// Far parts keep what is written to them, whatever the order of use, in two windows.
#include "weft/tensor/far_parts.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

class FarPartsTest : public testing::Test {
 protected:
  static constexpr int kParts = 5;
  FarPartsTest() {
    for (size_t i = 0; i < kParts; ++i) {
      parts_.add_part();
      for (const int64_t n : {int64_t(i + 1) * 100, int64_t(33)})
        tensors_.push_back(parts_.add(i, DType::f32, {n}).handle());
    }
  }
  void add_one(size_t part) {
    parts_.enter(part, Access::write);
    for (size_t t = 2 * part; t < 2 * part + 2; ++t)
      for (int64_t i = 0; i < tensors_[t].numel(); ++i) tensors_[t].data<float>()[i] += 1;
    parts_.leave(part);
    ++want_[part];
  }
  void expect_what_was_written() {
    for (size_t part = 0; part < kParts; ++part) {
      parts_.enter(part, Access::read);
      for (size_t t = 2 * part; t < 2 * part + 2; ++t)
        for (int64_t i = 0; i < tensors_[t].numel(); ++i)
          ASSERT_EQ(tensors_[t].data<float>()[i], float(want_[part])) << "part " << part << ", element " << i;
      parts_.leave(part);
    }
  }

  Allocator memory_;
  FarMemory far_{make_host_store()};
  FarParts parts_{far_, memory_};
  std::vector<Tensor> tensors_;
  int want_[kParts] = {};
};

TEST_F(FarPartsTest, KeepsWhatIsWrittenInAnyOrder) {
  for (const bool keeps_windows : {false, true}) {
    if (keeps_windows) parts_.keep_windows();
    for (const size_t part : {0, 1, 2, 3, 4, 0, 0, 4, 2, 2, 1, 3, 0, 1, 1, 4}) add_one(part);
    expect_what_was_written();
    if (keeps_windows) parts_.let_go();
    EXPECT_EQ(memory_.stats().live_bytes, 0);
  }
}

TEST_F(FarPartsTest, AWalkMovesEachPartOnceAndHoldsTwo) {
  parts_.keep_windows();
  for (size_t part = 0; part < kParts; ++part) add_one(part);
  parts_.let_go();
  int64_t bytes = 0;
  for (const Tensor& t : tensors_) bytes += int64_t(t.bytes());
  EXPECT_EQ(far_.stats().stored_bytes, bytes);
  EXPECT_EQ(far_.stats().loaded_bytes, bytes);
  Allocator other(Device::meta);
  const BufferRef window = other.allocate(size_t(parts_.window_bytes()));
  EXPECT_EQ(memory_.stats().peak_bytes, 2 * other.stats().live_bytes);
  expect_what_was_written();
}

TEST_F(FarPartsTest, TwoMayBeEnteredAtATime) {
  parts_.enter(1, Access::write);
  for (const size_t part : {0, 1, 2, 3, 4}) add_one(part);
  parts_.leave(1);
  expect_what_was_written();
}

}  // namespace
}  // namespace weft
