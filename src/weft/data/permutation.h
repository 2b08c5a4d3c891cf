// Permutation: a keyed shuffle of [0, size) computed element by element, so that no list of indices is kept.
#pragma once
#include <cstdint>

namespace weft {

// A Feistel network over the smallest power of two that holds `size`, with Philox as its round function; values that
// fall outside are sent through again ("cycle walking"), which keeps it one-to-one. Source: Black and Rogaway,
// "Ciphers with Arbitrary Finite Domains", CT-RSA 2002.
class Permutation {
 public:
  Permutation(uint64_t size, uint64_t key);  // size in [1, 2^62]

  uint64_t size() const { return size_; }
  uint64_t operator()(uint64_t index) const;  // index < size()

 private:
  uint64_t size_, key_;
  int low_bits_, high_bits_;
};

}  // namespace weft
