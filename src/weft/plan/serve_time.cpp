// time_of: the step simulated, and each event's seconds by what it waits for.
#include "weft/plan/serve_time.h"

#include <fmt/format.h>

#include <algorithm>

#include "weft/plan/simulate.h"

namespace weft::plan {
namespace {

void add_event(ServeTime& t, const Event& e, const CostModel& costs) {
  const bool is_kernel =
      e.kind == Event::Kind::matmul || e.kind == Event::Kind::attention || e.kind == Event::Kind::memory;
  if (is_kernel) {
    const double seconds = costs.kernel_s(e);
    const bool waits_for_memory = seconds <= costs.traffic_s(e);
    double& part = e.kind == Event::Kind::memory   ? t.small_s
                   : !waits_for_memory             ? t.compute_s
                   : e.kind == Event::Kind::matmul ? t.weights_s
                                                   : t.cache_s;
    part += seconds;
    t.launch_s += costs.launches_s(e);
  } else if (e.kind == Event::Kind::collective) {
    t.links_s[size_t(e.axis)] += costs.collective_s(e.op, e.bytes, e.axis);
  } else if (e.kind == Event::Kind::send) {
    t.links_s[size_t(e.axis)] += costs.message_s(e.bytes, e.axis);
  }
}

}  // namespace

ServeTime time_of(std::span<const StepTrace> traces, const CostModel& costs) {
  ServeTime t{.step_s = simulate(traces, costs).step_s};
  for (const StepTrace& trace : traces) {
    const bool is_first = &trace == &traces.front();
    // All ranks are told at once what the step is.
    for (const Event& e : trace.events)
      if (is_first || e.axis != Axis::world) add_event(t, e, costs);
  }
  return t;
}

ServeTime add(const ServeTime& a, const ServeTime& b, double times) {
  ServeTime sum = a;
  for (double ServeTime::*part : {&ServeTime::step_s, &ServeTime::weights_s, &ServeTime::cache_s,
                                  &ServeTime::compute_s, &ServeTime::small_s, &ServeTime::launch_s})
    sum.*part += b.*part * times;
  for (size_t i = 0; i < sum.links_s.size(); ++i) sum.links_s[i] += b.links_s[i] * times;
  return sum;
}

std::vector<std::pair<std::string, double>> ServeTime::parts() const {
  std::vector<std::pair<std::string, double>> all = {{"reading weights", weights_s},
                                                     {"reading keys and values", cache_s},
                                                     {"computing", compute_s},
                                                     {"small kernels", small_s},
                                                     {"launching kernels", launch_s}};
  for (int axis = 0; axis < kNumAxes; ++axis)
    all.emplace_back(Axis(axis) == Axis::pp      ? "messages between stages"
                     : Axis(axis) == Axis::world ? "telling ranks the step"
                                                 : fmt::format("collectives of {}", name_of(Axis(axis))),
                     links_s[size_t(axis)]);
  return all;
}

std::string ServeTime::bound() const {
  const auto all = parts();
  const auto& most = *std::ranges::max_element(all, {}, &std::pair<std::string, double>::second);
  return fmt::format("{}: {:.0f}% of the step", most.first, 100 * most.second / step_s);
}

}  // namespace weft::plan
