// Four ranks as threads of one process sum their tensors: the smallest program with a collective.
#include <fmt/format.h>

#include <cstdlib>

#include "weft/comm/threads/run_ranks.h"

int main() {
  constexpr int kRanks = 4;
  constexpr int64_t kSize = 1000;
  try {
    weft::run_ranks(kRanks, [&](weft::Communicator& world) {
      // Every rank has an allocator of its own, which counts what the rank uses.
      weft::Allocator allocator;
      weft::Tensor x = world.allocate_shared(allocator, weft::DType::f32, {kSize});
      float* values = x.data<float>();
      for (int64_t i = 0; i < kSize; ++i) values[i] = float(world.rank() + 1) * float(i);

      world.all_reduce(x);  // in place, in rank order: every rank gets the same bits

      for (int64_t i = 0; i < kSize; ++i) {
        const float expected = float(kRanks * (kRanks + 1) / 2) * float(i);
        weft::check(values[i] == expected, "element {} is {}, not {}", i, values[i], expected);
      }
      if (world.rank() == 0) fmt::print("{} ranks agree: x[7] = {}\n", world.size(), values[7]);
    });
  } catch (const weft::Error& error) {
    fmt::print(stderr, "threads_allreduce: {}\n", error.what());
    return EXIT_FAILURE;
  }
}
