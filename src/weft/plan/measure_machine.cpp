// measure_machine: timed steps, and least squares of relative errors.
#include "weft/plan/measure_machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <numeric>

#include "weft/base/machine.h"
#include "weft/base/timing.h"
#include "weft/base/units.h"
#include "weft/comm/run_world.h"
#include "weft/comm/single/single.h"
#include "weft/kernels/cpu/peak.h"
#include "weft/plan/recorded_kernels.h"
#include "weft/plan/trace_step.h"
#include "weft/train/launch.h"
#include "weft/train/trainer.h"

namespace weft::plan {
namespace {

using Clock = std::chrono::steady_clock;

// Between them they run the kernels of most recipes.
Recipe probe_recipe(const std::string& family, Precision precision) {
  Recipe r;
  ModelConfig& m = r.model = family_defaults(family);
  const bool is_llama = family == "llama";
  m.layers = 2, m.hidden = is_llama ? 384 : 256, m.heads = m.hidden / 64, m.vocab = is_llama ? 4096 : 512;
  m.kv_heads = m.heads, m.context = 256;
  if (is_llama) m.ffn = 1024;
  complete(m);
  r.train = {.steps = 1000, .seq_len = is_llama ? 256 : 128, .global_batch = 4, .micro_batch = 4, .accumulation = 1};
  r.train.precision = precision;
  r.optimizer.schedule = {.decay = Decay::constant, .lr = 1e-4, .steps = 1000};
  return r;
}

// A step of a rank alone in its world, kernel by kernel: medians over steps.
struct TimedStep {
  std::vector<Event> events;
  double step_s = 0;
  double kernels_s() const {
    return std::accumulate(events.begin(), events.end(), 0.0, [](double s, const Event& e) { return s + e.seconds; });
  }
};

TimedStep timed_step(const Recipe& recipe, ThreadTeam& team, int repeats, const std::function<void()>& meet) {
  TimedStep timed;
  Kernels kernels = recorded_kernels(cpu_kernels());
  Allocator memory;
  std::vector<Event> events;
  RecordedStream stream(team, memory, events, &cpu_kernels());
  Context context{.kernels = kernels, .stream = stream};
  const auto world = make_single_communicator();
  const SyntheticBatches batches(int32_t(recipe.train.seq_len), int32_t(recipe.train.global_batch),
                                 int32_t(recipe.model.vocab), 1);
  Trainer trainer(context, *world, recipe, batches);
  trainer.step(), trainer.step();
  std::vector<std::vector<double>> seconds;
  std::vector<double> steps;
  for (int i = 0; i < repeats; ++i) {
    meet();
    events.clear();
    stream.set_recording(true);
    const Clock::time_point begin = Clock::now();
    trainer.step();
    steps.push_back(seconds_since(begin));
    stream.set_recording(false);
    if (seconds.empty()) seconds.resize(events.size()), timed.events = events;
    check(events.size() == seconds.size(), "steps of a rank differ");
    for (size_t e = 0; e < events.size(); ++e) seconds[e].push_back(events[e].seconds);
  }
  for (size_t e = 0; e < seconds.size(); ++e) timed.events[e].seconds = median(seconds[e]);
  timed.step_s = median(steps);
  return timed;
}

// Beside each other, as threads that share the machine: what the first of them saw. The first recipe's events, then
// the second's, and so on.
std::vector<TimedStep> timed_beside(int ranks, std::span<const Recipe> recipes, int repeats) {
  std::vector<TimedStep> first;
  std::barrier together(ranks);
  std::vector<std::exception_ptr> failures{size_t(ranks)};
  const auto body = [&](int rank) {
    try {
      ThreadTeam team(std::max(1, usable_cores() / ranks));
      for (const Recipe& recipe : recipes) {
        TimedStep timed = timed_step(recipe, team, repeats, [&] { together.arrive_and_wait(); });
        if (rank == 0) first.push_back(std::move(timed));
      }
    } catch (...) {
      failures[size_t(rank)] = std::current_exception();
      together.arrive_and_drop();
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 1; rank < ranks; ++rank) threads.emplace_back(body, rank);
  body(0);
  for (std::thread& t : threads) t.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
  return first;
}

// y = a u + b v with a and b at least 0, so that relative errors are least.
std::pair<double, double> fit(const std::vector<std::array<double, 3>>& rows) {
  double uu = 0, uv = 0, vv = 0, u1 = 0, v1 = 0;
  for (const auto& [y, u0, v0] : rows) {
    const double u = u0 / y, v = v0 / y;
    uu += u * u, uv += u * v, vv += v * v, u1 += u, v1 += v;
  }
  const double det = uu * vv - uv * uv;
  const double a = (u1 * vv - v1 * uv) / det, b = (v1 * uu - u1 * uv) / det;
  if (!(det > 1e-12 * uu * vv) || b < 0) return {u1 / uu, 0};
  if (a < 0) return {0, v1 / vv};
  return {a, b};
}

struct ThreadLink {
  double bytes_per_s, latency_s;
};

// Collectives of small and of large messages between ranks that are threads, in the terms of CostModel.
ThreadLink measure_link(int ranks, int repeats) {
  ThreadLink link{};
  run_world(ranks, [&](Communicator& world) {
    Allocator memory;
    const auto time = [&](int64_t numel, auto&& run) {
      const Tensor whole = world.allocate_shared(memory, DType::f32, {numel});
      const Tensor part = memory.zeros(DType::f32, {numel / ranks});
      std::fill_n(whole.data<float>(), numel, 1.0f);
      std::vector<double> seconds;
      for (int i = 0; i <= repeats; ++i) {
        world.barrier();
        const Clock::time_point begin = Clock::now();
        run(whole, part);
        if (i > 0) seconds.push_back(seconds_since(begin));
      }
      return median(seconds);
    };
    const auto reduce = [&](const Tensor& whole, const Tensor&) { world.all_reduce(whole); };
    const auto gather = [&](const Tensor& whole, const Tensor& part) { world.all_gather(whole, part); };
    const auto scatter = [&](const Tensor& whole, const Tensor& part) { world.reduce_scatter(part, whole); };
    const int64_t small = 256 * ranks, large = int64_t(1) << 20;
    const double steps = ranks - 1, n = ranks, bytes = 4.0 * double(large);
    const double latency = (time(small, reduce) / 2 + time(small, gather) + time(small, scatter)) / 3;
    const auto rate = [&](double sent, double seconds, double passes) {
      return sent / std::max(seconds - latency * passes, 0.1 * seconds);
    };
    const double sent = (n - 1) / n * bytes;
    const double reached = (rate(2 * sent, time(large, reduce), 2) + rate(sent, time(large, gather), 1) +
                            rate(sent, time(large, scatter), 1)) /
                           3;
    if (world.rank() == 0) link = {reached, latency / steps};
  });
  return link;
}

bool is_bound_by_memory(const Event& e) { return e.kind == Event::Kind::memory; }

// Seconds of a kernel that does next to nothing.
double empty_kernel_s(ThreadTeam& team) {
  Allocator memory;
  Stream stream(team, memory);
  const Tensor tiny = memory.zeros(DType::f32, {16});
  std::vector<double> seconds;
  for (int i = 0; i < 500; ++i) {
    const Clock::time_point begin = Clock::now();
    cpu_kernels().fill(stream, tiny, 1.0f);
    seconds.push_back(seconds_since(begin));
  }
  return median(seconds);
}

class MachineMeasurement {
 public:
  explicit MachineMeasurement(const MeasureOptions& options) : o_(options) {}

  Hardware measure() {
    const std::vector<Recipe> recipes = {probe_recipe("llama", Precision::fp32),
                                         probe_recipe("gpt2", Precision::fp32),
                                         probe_recipe("llama", Precision::bf16)};
    ThreadTeam all(usable_cores());
    describe(all);
    std::vector<TimedStep> alone;
    for (const int ranks : o_.ranks) {
      say(fmt::format("steps of {} rank{} at once", ranks, ranks == 1 ? "" : "s"));
      std::vector<TimedStep> steps = timed_beside(ranks, recipes, o_.repeats);
      if (ranks == 1) {
        products(all, steps);
        alone = steps;
      }
      Sharing s{.ranks = ranks, .launch_s = launch_of(steps)};
      s.speed = sum(alone, [](const Event&) { return true; }) / sum(steps, [](const Event&) { return true; });
      s.memory = sum(alone, is_bound_by_memory) / sum(steps, is_bound_by_memory);
      s.link_bytes_per_s = h_.memory_bytes_per_s, s.link_latency_s = 0;
      if (ranks > 1) {
        say(fmt::format("collectives of {} ranks", ranks));
        const ThreadLink link = measure_link(ranks, 5 * o_.repeats);
        s.link_bytes_per_s = link.bytes_per_s, s.link_latency_s = link.latency_s;
      }
      h_.sharing.push_back(s);
    }
    h_.launch_s = h_.sharing.front().launch_s;
    const Sharing& pair = h_.sharing[std::min<size_t>(1, h_.sharing.size() - 1)];
    h_.node = {.bytes_per_s = pair.link_bytes_per_s, .latency_s = pair.link_latency_s};
    h_.network = {.bytes_per_s = 1.25e9, .latency_s = 50e-6};  // 10 Gb/s: not measured
    return std::move(h_);
  }

 private:
  void say(const std::string& what) const {
    if (o_.progress) o_.progress(what);
  }

  void describe(ThreadTeam& all) {
    const Machine machine = describe_machine();
    h_.name = "this-machine";
    h_.description = fmt::format("{}: {} threads", machine.cpu, all.size());
    h_.memory_bytes = double(machine.memory_bytes);
    h_.reserved_bytes = 0.1 * h_.memory_bytes;
    say("memory");
    h_.memory_bytes_per_s = cpu::measure_read_bandwidth(all);
    h_.devices_per_node = std::max(o_.ranks.back(), all.size());
  }

  // Of the fp32 models, the first two, and of the bf16 model, the last.
  void products(ThreadTeam& all, const std::vector<TimedStep>& steps) {
    const double empty_s = empty_kernel_s(all);
    for (const auto& [type, dtype] :
         {std::pair{MatmulType::fp32, DType::f32}, std::pair{MatmulType::bf16, DType::bf16}}) {
      const double peak = cpu::measure_peak_flops(all, dtype);
      std::vector<std::array<double, 3>> rows;
      for (const TimedStep& step : steps)
        for (const Event& e : step.events)
          if (e.kind == Event::Kind::matmul && e.dtype == dtype && e.seconds > empty_s) {
            const double results = 2.0 * e.m * e.n;
            rows.push_back({std::max(e.seconds - empty_s, 0.3 * e.seconds), results * e.k, results});
          }
      const auto [per_flop, per_result] = fit(rows);
      h_.peak_flops[size_t(type)] = peak;
      h_.reached[size_t(type)] = std::clamp(1 / std::max(per_flop, 1e-18) / peak, 0.01, 1.5);
      if (type == MatmulType::fp32) h_.half_depth = std::min(per_result / std::max(per_flop, 1e-18), 1e4);
    }
    h_.peak_flops[size_t(MatmulType::fp16)] = h_.peak(MatmulType::fp32);
    h_.reached[size_t(MatmulType::fp16)] = h_.reached[size_t(MatmulType::fp32)];
    attention(steps);
    struct Sums {
      double bytes = 0, seconds = 0;
    };
    std::map<std::string_view, Sums> of_kernel;
    Sums whole;
    for (const TimedStep& step : steps)
      for (const Event& e : step.events) {
        if (!is_bound_by_memory(e) || e.bytes <= 0) continue;
        const double seconds = std::max(e.seconds - empty_s, 0.05 * e.seconds);
        Sums& s = of_kernel[e.name];
        s.bytes += e.bytes, s.seconds += seconds;
        whole.bytes += e.bytes, whole.seconds += seconds;
      }
    for (const auto& [name, s] : of_kernel) h_.kernel_bytes_per_s[std::string(name)] = s.bytes / s.seconds;
    h_.memory_reached = std::clamp(whole.bytes / whole.seconds / h_.memory_bytes_per_s, 0.01, 1.0);
    empty_s_ = empty_s;
  }

  // Undoing what CostModel does for narrow heads.
  void attention(const std::vector<TimedStep>& steps) {
    for (const bool is_backward : {false, true}) {
      double work = 0, seconds = 0;
      for (const TimedStep& step : steps)
        for (const Event& e : step.events)
          if (e.kind == Event::Kind::attention && e.dtype == DType::f32 && e.is_backward == is_backward) {
            work += e.flops / (h_.peak(MatmulType::fp32) * std::min(1.0, 0.55 + 0.45 * e.k / 128.0));
            seconds += e.seconds;
          }
      (is_backward ? h_.attention_backward : h_.attention_forward) = std::clamp(work / seconds, 0.01, 1.0);
    }
  }

  // From the end of a kernel to the beginning of the next, and what a kernel takes before it does something.
  double launch_of(const std::vector<TimedStep>& steps) const {
    double gaps = 0, count = 0;
    for (const TimedStep& step : steps)
      gaps += std::max(0.0, step.step_s - step.kernels_s()), count += double(step.events.size());
    return gaps / count + empty_s_;
  }

  template <class Wanted>
  static double sum(const std::vector<TimedStep>& steps, Wanted&& wanted) {
    double seconds = 0;
    for (const TimedStep& step : steps)
      for (const Event& e : step.events)
        if (wanted(e)) seconds += e.seconds;
    return seconds;
  }

  const MeasureOptions& o_;
  Hardware h_;
  double empty_s_ = 0;
};

}  // namespace

Hardware measure_machine(const MeasureOptions& options) { return MachineMeasurement(options).measure(); }

std::string hardware_toml(const Hardware& h) {
  std::string out = fmt::format("# {}. Measured by weft plan --measure.\nname = \"{}\"\ndescription = \"{}\"\n",
                                h.description, h.name, h.description);
  const auto add = [&]<class... Args>(fmt::format_string<Args...> text, Args&&... args) {
    fmt::format_to(std::back_inserter(out), text, std::forward<Args>(args)...);
  };
  add("\n[memory]             # of the machine, which its ranks share\ngib = {:.5g}\nreserved_gib = {:.5g}\n",
      gib(h.memory_bytes), gib(h.reserved_bytes));
  add("gb_s = {:.5g}\nreached = {:.4g}\n", h.memory_bytes_per_s / 1e9, h.memory_reached);
  add("\n[device]\ncores = {}\nlaunch_us = {:.4g}   # from the end of a kernel to the work of the next\n", h.cores,
      h.launch_s * 1e6);
  add("\n[matmul]             # all cores: TFLOP/s of independent multiply-adds, and the share that products reach\n"
      "tile = [{}, {}]\nsustained = {:.4g}\nhalf_depth = {:.4g}\n",
      h.tile_m, h.tile_n, h.sustained, h.half_depth);
  for (int i = 0; i < kNumMatmulTypes; ++i)
    if (h.peak_flops[size_t(i)] > 0)
      add("{} = [{:.5g}, {:.4g}]\n", name_of(MatmulType(i)), h.peak_flops[size_t(i)] / 1e12, h.reached[size_t(i)]);
  add("\n[attention]\nforward = {:.4g}\nbackward = {:.4g}\n", h.attention_forward, h.attention_backward);
  const auto link = [&](const Link& l) {
    add("gb_s = {:.4g}\nreached = {:.4g}\nlatency_us = {:.4g}\nhalf_mib = {:.4g}\n", l.bytes_per_s / 1e9, l.reached,
        l.latency_s * 1e6, l.half_bytes / kMebi);
  };
  add("\n[node]\ndevices = {}\n", h.devices_per_node);
  link(h.node);
  out += "\n[network]            # not measured: 10 Gb/s\n";
  link(h.network);
  if (!h.kernel_bytes_per_s.empty()) {
    std::vector<std::string> names;
    std::vector<double> rates;
    for (const auto& [name, rate] : h.kernel_bytes_per_s)
      names.push_back(fmt::format("\"{}\"", name)), rates.push_back(rate / 1e9);
    add("\n[kernels]            # what each moves in a second, all cores\nnames = [{}]\ngb_s = [{:.4g}]\n",
        fmt::join(names, ", "), fmt::join(rates, ", "));
  }
  if (!h.is_shared()) return out;
  const auto column = [&](std::string_view key, double Sharing::*member, double unit) {
    std::vector<double> values;
    for (const Sharing& s : h.sharing) values.push_back(s.*member / unit);
    add("{} = [{:.4g}]\n", key, fmt::join(values, ", "));
  };
  std::vector<int> ranks;
  for (const Sharing& s : h.sharing) ranks.push_back(s.ranks);
  add("\n[sharing]            # what one of so many ranks has, beside one rank alone\nranks = [{}]\n",
      fmt::join(ranks, ", "));
  column("speed", &Sharing::speed, 1), column("memory", &Sharing::memory, 1);
  column("launch_us", &Sharing::launch_s, 1e-6);
  column("gb_s", &Sharing::link_bytes_per_s, 1e9), column("latency_us", &Sharing::link_latency_s, 1e-6);
  return out;
}

}  // namespace weft::plan
