// weft bench comm: every collective between ranks, by size.
#include "bench.h"
#include "rank_resources.h"
#include "weft/comm/run_world.h"

namespace weft::app {
namespace {

struct BenchCommCommand {
  int ranks = 2, repeats = 0;
  std::string device = "cpu";
  std::vector<int64_t> sizes{1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 26};
  Output output;
};

// One operation on `bytes`: what every rank holds before or after, whichever is more, as nccl-tests count.
// bus_factor: of the bandwidth that the busiest link sees, for n ranks.
struct Operation {
  const char* name;
  double (*bus_factor)(double n);
  void (*run)(Communicator& world, const Tensor& whole, const Tensor& part, const Tensor& other);
};

constexpr auto kRing = [](double n) { return (n - 1) / n; };
constexpr auto kOnce = [](double) { return 1.0; };

const Operation kOperations[] = {
    {"all_reduce", [](double n) { return 2 * (n - 1) / n; },
     [](Communicator& w, const Tensor& whole, const Tensor&, const Tensor&) { w.all_reduce(whole); }},
    {"all_gather", kRing,
     [](Communicator& w, const Tensor& whole, const Tensor& part, const Tensor&) { w.all_gather(whole, part); }},
    {"reduce_scatter", kRing,
     [](Communicator& w, const Tensor& whole, const Tensor& part, const Tensor&) { w.reduce_scatter(part, whole); }},
    {"all_to_all", kRing,
     [](Communicator& w, const Tensor& whole, const Tensor&, const Tensor& other) {
       const std::vector<int64_t> counts(size_t(w.size()), whole.dim(0) / w.size());
       w.all_to_all(other, counts, whole, counts);
     }},
    {"broadcast", kOnce,
     [](Communicator& w, const Tensor& whole, const Tensor&, const Tensor&) { w.broadcast(whole, 0); }},
    {"sendrecv", kOnce,
     [](Communicator& w, const Tensor& whole, const Tensor&, const Tensor& other) {
       w.send(whole, (w.rank() + 1) % w.size(), 0);
       w.recv(other, (w.rank() + w.size() - 1) % w.size(), 0);
     }},
};

void measure(const BenchCommCommand& o, Communicator& world) {
  RankResources rank(1, parse_device(o.device), world.rank());
  world.use_stream(rank.stream);
  Allocator& memory = rank.allocator;
  nlohmann::json rows = nlohmann::json::array();
  const bool speaks = world.rank() == 0;
  const double n = double(world.size());
  if (speaks)
    o.output.text(fmt::format("{:<15} {:>10} {:>12} {:>12} {:>12} {:>12}", "", "bytes", "median us", "min us",
                              "algbw GB/s", "busbw GB/s"));
  for (const Operation& op : kOperations)
    for (const int64_t size : o.sizes) {
      const int64_t part_size = std::max<int64_t>(size / 4 / world.size(), 1);
      const int64_t bytes = part_size * world.size() * 4;
      const Tensor whole = world.allocate_shared(memory, DType::f32, {part_size * world.size()});
      const Tensor part = memory.zeros(DType::f32, {part_size}), other = memory.empty(DType::f32, whole.shape());
      rank.context.kernels.fill(rank.stream, whole, 1.0f);
      const int repeats = o.repeats > 0 ? o.repeats : int(std::clamp<int64_t>((int64_t(1) << 29) / size, 9, 1000));
      const std::vector<double> seconds = time_calls(repeats, [&] {
        world.barrier();
        op.run(world, whole, part, other);
        rank.stream.wait();
      });
      if (!speaks) continue;
      const double middle = median(seconds), least = *std::min_element(seconds.begin(), seconds.end());
      const double algorithm = double(bytes) / middle, bus = algorithm * op.bus_factor(n);
      rows.push_back({{"op", op.name},
                      {"bytes", bytes},
                      {"median_s", middle},
                      {"min_s", least},
                      {"alg_bytes_per_s", algorithm},
                      {"bus_bytes_per_s", bus}});
      o.output.text(fmt::format("{:<15} {:>10} {:>12.2f} {:>12.2f} {:>12.2f} {:>12.2f}", op.name, bytes, middle * 1e6,
                                least * 1e6, algorithm / 1e9, bus / 1e9));
    }
  if (speaks)
    o.output.json({{"bench", "comm"},
                   {"transport", world.name()},
                   {"device", o.device},
                   {"ranks", world.size()},
                   {"rows", rows}});
}

}  // namespace

void add_bench_comm(CLI::App& bench) {
  const auto o = std::make_shared<BenchCommCommand>();
  CLI::App* c = bench.add_subcommand("comm", "Collectives of fp32 between ranks, each call behind a barrier");
  c->add_option("--ranks", o->ranks, "Ranks as threads; under mpirun, its processes")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  c->add_option("--device", o->device, "Of every rank: cpu or cuda")->capture_default_str();
  c->add_option("--sizes", o->sizes, "Bytes, with commas between them")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(int64_t(4), int64_t(1) << 34));
  c->add_option("--repeats", o->repeats, "Timed calls a size; 0: as many as make sense")
      ->check(CLI::Range(0, 1 << 20));
  o->output.add_option(*c);
  c->footer("Example: weft bench comm --ranks 2");
  c->callback([o] { run_world(o->ranks, [&](Communicator& world) { measure(*o, world); }); });
}

}  // namespace weft::app
