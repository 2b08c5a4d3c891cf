// The measurements of `weft bench`, each beside the limit measured in the same run.
#pragma once
#include <algorithm>
#include <vector>

#include "command.h"
#include "weft/autograd/context.h"
#include "weft/base/function_ref.h"
#include "weft/base/timing.h"

namespace weft::app {

constexpr int64_t kBlockTokens = 16;  // of a paged cache

// Each adds its command below `weft bench`.
void add_bench_matmul(CLI::App& bench);
void add_bench_attention(CLI::App& bench);
void add_bench_comm(CLI::App& bench);
void add_bench_train(CLI::App& bench);
void add_bench_steps(CLI::App& bench);  // decode and prefill
void add_bench_choose(CLI::App& bench);
void add_bench_answers(CLI::App& bench);
void add_bench_serve(CLI::App& bench);

inline double seconds_of_call(FunctionRef<void()> call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  return seconds_since(begin);
}

// Seconds of each of `repeats` calls, after one that is not counted.
inline std::vector<double> time_calls(int repeats, FunctionRef<void()> call) {
  call();
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) seconds.push_back(seconds_of_call(call));
  return seconds;
}

// The same for work that a stream does: on a device, what the device took, without waiting between the calls.
std::vector<double> time_calls(Stream& stream, int repeats, FunctionRef<void()> call);

// t = normal deviates, which repeat after a while.
void fill_with_noise(Context&, const Tensor& t);

// Of a limit that may not be known, which is then 0: the share as "41.5%" or "-", the limit, and as JSON null
// for what is 0.
std::string percent_of(double value, double limit);
std::string giga(double value, int decimals);  // billions; "-" of 0
nlohmann::json known(double value);

}  // namespace weft::app
