// Permutation: the Feistel rounds.
#include "weft/data/permutation.h"

#include <bit>

#include "weft/base/error.h"
#include "weft/base/philox.h"

namespace weft {
namespace {

const uint64_t kPurpose = name_hash("data.permutation");
constexpr int kRounds = 4;  // each changes both halves, so 8 in the usual count

}  // namespace

Permutation::Permutation(uint64_t size, uint64_t key) : size_(size), key_(key) {
  check(size >= 1 && size <= uint64_t(1) << 62, "permutation: size {} is outside [1, 2^62]", size);
  const int bits = std::bit_width(size - 1);
  low_bits_ = bits / 2;
  high_bits_ = bits - low_bits_;
}

uint64_t Permutation::operator()(uint64_t index) const {
  check(index < size_, "permutation: index {} is not below {}", index, size_);
  const uint64_t low_mask = (uint64_t(1) << low_bits_) - 1, high_mask = (uint64_t(1) << high_bits_) - 1;
  const auto scramble = [&](uint64_t half, int round) {
    return to_number(philox(key_, half, kPurpose + uint64_t(round)));
  };
  do {
    uint64_t low = index & low_mask, high = index >> low_bits_;
    for (int round = 0; round < kRounds; ++round) {
      high ^= scramble(low, 2 * round) & high_mask;
      low ^= scramble(high, 2 * round + 1) & low_mask;
    }
    index = high << low_bits_ | low;
  } while (index >= size_);
  return index;
}

}  // namespace weft
