// weft bench: how near this machine's limits the parts and the whole come.
#include "bench.h"

namespace weft::app {

void add_bench(CLI::App& program) {
  CLI::App* bench = program.add_subcommand("bench", "Measure the parts and the whole against this machine's limits");
  bench->require_subcommand(1);
  for (const auto add :
       {add_bench_matmul, add_bench_attention, add_bench_comm, add_bench_train, add_bench_steps, add_bench_serve})
    add(*bench);
  bench->footer("Example: weft bench train --shape gpt --precision bf16");
}

}  // namespace weft::app
