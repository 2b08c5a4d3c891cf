// weft bench comm: all_reduce between ranks, by size.
#include "bench.h"
#include "rank_resources.h"
#include "weft/comm/run_world.h"

namespace weft::app {
namespace {

struct Options {
  int ranks = 2, repeats = 0;
  Output output;
};

constexpr int64_t kSizes[] = {1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 26};

void measure(const Options& o, Communicator& world) {
  Allocator memory;
  nlohmann::json rows = nlohmann::json::array();
  const bool speaks = world.rank() == 0;
  if (speaks) o.output.text(fmt::format("{:>10} {:>12} {:>12} {:>12}", "bytes", "median us", "min us", "busbw GB/s"));
  for (const int64_t bytes : kSizes) {
    const Tensor x = world.allocate_shared(memory, DType::f32, {bytes / 4});
    std::fill_n(x.data<float>(), x.numel(), 1.0f);
    const int repeats = o.repeats > 0 ? o.repeats : int(std::clamp<int64_t>((int64_t(1) << 30) / bytes, 15, 2000));
    std::vector<double> seconds = time_calls(repeats, [&] {
      world.barrier();
      world.all_reduce(x);
    });
    if (!speaks) continue;
    const double middle = median(seconds), least = *std::min_element(seconds.begin(), seconds.end());
    const double n = double(world.size());
    const double bus = 2 * (n - 1) / n * double(bytes) / middle;
    rows.push_back(
        {{"op", "all_reduce"}, {"bytes", bytes}, {"median_s", middle}, {"min_s", least}, {"bus_bytes_per_s", bus}});
    o.output.text(fmt::format("{:>10} {:>12.2f} {:>12.2f} {:>12.2f}", bytes, middle * 1e6, least * 1e6, bus / 1e9));
  }
  if (speaks)
    o.output.json({{"bench", "comm"}, {"transport", world.name()}, {"ranks", world.size()}, {"rows", rows}});
}

}  // namespace

void add_bench_comm(CLI::App& bench) {
  const auto o = std::make_shared<Options>();
  CLI::App* c = bench.add_subcommand("comm", "all_reduce of fp32 between ranks, each call behind a barrier");
  c->add_option("--ranks", o->ranks, "Ranks as threads; under mpirun, its processes")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  c->add_option("--repeats", o->repeats, "Timed calls a size; 0: as many as make sense");
  o->output.add_option(*c);
  c->footer("Example: weft bench comm --ranks 2");
  c->callback([o] { run_world(o->ranks, [&](Communicator& world) { measure(*o, world); }); });
}

}  // namespace weft::app
