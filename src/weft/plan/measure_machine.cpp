// measure_machine: timed steps, and least squares of relative errors.
#include "weft/plan/measure_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <map>
#include <numeric>

#include "weft/base/machine.h"
#include "weft/base/timing.h"
#include "weft/comm/run_world.h"
#include "weft/comm/single/single.h"
#include "weft/kernels/cpu/peak.h"
#include "weft/plan/recorded_kernels.h"
#include "weft/plan/trace_step.h"
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

// A step of a rank alone in its world, kernel by kernel. Everything is the least of many steps: what else runs on the
// machine, or on the host of a virtual one, only ever makes it longer, and comes and goes.
struct TimedStep {
  std::vector<Event> events;
  double kernels_s = INFINITY;  // of a step, together
  double gaps_s = INFINITY;     // between kernels
};

double seconds_of(const std::vector<Event>& events) {
  return std::accumulate(events.begin(), events.end(), 0.0, [](double s, const Event& e) { return s + e.seconds; });
}

void keep_least(TimedStep& least, const TimedStep& other) {
  if (least.events.empty()) least.events = other.events;
  check(least.events.size() == other.events.size(), "steps of a rank differ");
  for (size_t e = 0; e < least.events.size(); ++e)
    least.events[e].seconds = std::min(least.events[e].seconds, other.events[e].seconds);
  least.kernels_s = std::min(least.kernels_s, other.kernels_s);
  least.gaps_s = std::min(least.gaps_s, other.gaps_s);
}

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
  for (int i = 0; i < repeats; ++i) {
    meet();
    events.clear();
    stream.set_recording(true);
    const Clock::time_point begin = Clock::now();
    trainer.step();
    const double gaps_s = seconds_since(begin) - seconds_of(events);
    meet();  // a step is over when the slowest is done
    stream.set_recording(false);
    keep_least(timed, {.events = events, .kernels_s = seconds_since(begin) - gaps_s, .gaps_s = gaps_s});
  }
  return timed;
}

// Beside each other, as ranks of so many threads that share the machine: what the first of them saw, recipe by
// recipe.
std::vector<TimedStep> timed_beside(int ranks, int threads_each, std::span<const Recipe> recipes, int repeats) {
  std::vector<TimedStep> first;
  std::barrier together(ranks);
  std::vector<std::exception_ptr> failures{size_t(ranks)};
  const auto body = [&](int rank) {
    try {
      ThreadTeam team(threads_each);
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

bool is_kernel(const Event&) { return true; }
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
    // In rounds, so that a while in which the machine is slow spoils nothing.
    for (int round = 0; round < o_.rounds; ++round) {
      say(fmt::format("steps of 1 rank and of more at once, round {} of {}", round + 1, o_.rounds));
      for (const int ranks : o_.ranks) {
        time(ranks, ranks, recipes);
        time(1, ranks, recipes);
      }
    }
    for (auto& [key, steps] : timed_)
      for (TimedStep& step : steps) {
        // A step's kernels are not all at their quickest in one step.
        const double whole = step.kernels_s / seconds_of(step.events);
        for (Event& e : step.events) e.seconds *= whole;
      }
    const std::vector<TimedStep>& whole = timed_.at({1, threads_of(1)});
    products(all, whole);
    for (const int ranks : o_.ranks) {
      const std::vector<TimedStep>& steps = timed_.at({ranks, threads_of(ranks)});
      Sharing s{.ranks = ranks, .launch_s = launch_of(steps)};
      double seconds = sum(steps, is_kernel);
      if (ranks > usable_cores() && ranks > 1) {
        // They take turns, between kernels as in them: what a turn costs is of no kernel's end.
        const double measured = s.launch_s;
        s.launch_s = std::min(measured, h_.sharing.back().launch_s * ranks / h_.sharing.back().ranks);
        seconds += (measured - s.launch_s) * num_events(steps);
      }
      s.speed = sum(whole, is_kernel) / seconds;
      s.memory = sum(whole, is_bound_by_memory) / sum(steps, is_bound_by_memory);
      s.alone = std::max(s.speed, sum(whole, is_kernel) / sum(timed_.at({1, threads_of(ranks)}), is_kernel));
      s.link_bytes_per_s = h_.memory_bytes_per_s, s.link_latency_s = 0;
      if (ranks > 1) {
        say(fmt::format("collectives of {} ranks", ranks));
        const ThreadLink link = measure_link(ranks, o_.rounds * o_.repeats);
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

  static int threads_of(int ranks) { return std::max(1, usable_cores() / ranks); }

  // So many at once, each with the threads that one of `ranks` has.
  void time(int at_once, int ranks, std::span<const Recipe> recipes) {
    const std::pair key{at_once, threads_of(ranks)};
    if (last_timed_ == key) return;  // as of the rank that has all cores
    last_timed_ = key;
    std::vector<TimedStep> steps = timed_beside(key.first, key.second, recipes, o_.repeats);
    std::vector<TimedStep>& least = timed_[key];
    least.resize(steps.size());
    for (size_t i = 0; i < steps.size(); ++i) keep_least(least[i], steps[i]);
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
    double gaps = 0;
    for (const TimedStep& step : steps) gaps += std::max(0.0, step.gaps_s);
    return gaps / num_events(steps) + empty_s_;
  }

  static double num_events(const std::vector<TimedStep>& steps) {
    double count = 0;
    for (const TimedStep& step : steps) count += double(step.events.size());
    return count;
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
  std::map<std::pair<int, int>, std::vector<TimedStep>> timed_;  // by ranks at once and threads of each; by recipe
  std::pair<int, int> last_timed_;
  double empty_s_ = 0;
};

}  // namespace

Hardware measure_machine(const MeasureOptions& options) { return MachineMeasurement(options).measure(); }

}  // namespace weft::plan
