// nf4_held: what frozen weights take that are held as NF4.
#pragma once
#include <cstdint>
#include <string>

namespace weft {

class Trainer;

struct Nf4Held {
  int64_t weights = 0, bytes = 0;  // bytes: with scales, and with the padding of flat memory
};
// Of this rank.
Nf4Held nf4_held(const Trainer& trainer);
// "7340032 weights in 3.6 MiB, 0.516 bytes each"
std::string describe(const Nf4Held& held);

}  // namespace weft
