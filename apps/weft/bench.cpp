// weft bench: how near this machine's limits the parts and the whole come.
#include "bench.h"

#include "weft/base/philox.h"
#include "weft/tensor/device_timer.h"
#include "weft/tensor/host_access.h"

namespace weft::app {

std::vector<double> time_calls(Stream& stream, int repeats, FunctionRef<void()> call) {
  const auto timer = make_timer(stream);
  if (!timer) return time_calls(repeats, call);
  call();
  timer->start();
  for (int i = 0; i < repeats; ++i) timer->mark(), call(), timer->mark();
  const std::vector<int64_t> times = timer->stop();
  std::vector<double> seconds;
  for (size_t i = 0; i < times.size(); i += 2) seconds.push_back(double(times[i + 1] - times[i]) * 1e-9);
  return seconds;
}

void fill_with_noise(Context& c, const Tensor& t) {
  const int64_t period = std::min(t.numel(), int64_t(1) << 18);
  const Tensor noise = c.empty(DType::f32, {period});
  fill_on_host(c.stream, noise, [&](const Tensor& host) {
    for (int64_t i = 0; i < period; ++i) host.data<float>()[i] = philox_normal(1, 0, uint64_t(i));
  });
  for (int64_t at = 0; at < t.numel(); at += period) {
    const int64_t n = std::min(period, t.numel() - at);
    c.kernels.convert(c.stream, t.slice_flat(at, {n}), noise.slice_flat(0, {n}));
  }
}

std::string percent_of(double value, double limit) {
  return limit > 0 ? fmt::format("{:.1f}%", 100 * value / limit) : "-";
}

std::string giga(double value, int decimals) {
  return value > 0 ? fmt::format("{:.{}f}", value * 1e-9, decimals) : "-";
}

nlohmann::json known(double value) { return value > 0 ? nlohmann::json(value) : nlohmann::json(); }

void add_bench(CLI::App& program) {
  CLI::App* bench = program.add_subcommand("bench", "Measure the parts and the whole against this machine's limits");
  bench->require_subcommand(1);
  for (const auto add : {add_bench_matmul, add_bench_attention, add_bench_comm, add_bench_train, add_bench_steps,
                         add_bench_choose, add_bench_answers, add_bench_serve})
    add(*bench);
  bench->footer("Example: weft bench train --shape gpt --precision bf16");
}

}  // namespace weft::app
