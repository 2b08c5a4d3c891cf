// Two ranks sum a number through the installed library.
#include <cstdlib>

#include "weft/comm/threads/run_ranks.h"
#include "weft/kernels/kernels.h"

int main() {
  bool agreed = false;
  weft::run_ranks(2, [&](weft::Communicator& world) {
    weft::Allocator allocator;
    weft::Tensor x = allocator.zeros(weft::DType::f32, {16});
    x.data<float>()[3] = float(world.rank() + 1);
    world.all_reduce(x);
    if (world.rank() == 0) agreed = x.data<float>()[3] == 3;
  });
  return agreed && weft::cpu_kernels().name == "cpu" ? EXIT_SUCCESS : EXIT_FAILURE;
}
