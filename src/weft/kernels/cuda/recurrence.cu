// Recurrences of matrices, token by token: blocks of columns of a head's state, which depend on no other column.
#include <cmath>

#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/recurrent_state.cuh"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

// A warp to each key of a token, and to its query.
template <class T>
__global__ void addresses_kernel(const RecurrentInputs inputs, const T* q, const T* k, int64_t vectors, int dk,
                                 bool is_delta) {
  const int64_t warp = first_element() / kWarp, vector = warp / 2;
  if (vector >= vectors) return;
  const bool is_query = warp % 2 != 0;
  const int lane = int(threadIdx.x) % kWarp;
  const T* const x = (is_query ? q : k) + vector * dk;
  float* const to = (is_query ? inputs.queries : inputs.keys) + vector * dk;
  if (!is_delta) {
    for (int i = lane; i < dk; i += kWarp) to[i] = load(x + i);
    return;
  }
  float squares = 0;
  for (int i = lane; i < dk; i += kWarp) squares += load(x + i) * load(x + i);
  const float inverse = 1 / sqrtf(warp_sum(squares) + 1e-6f),
              factor = is_query ? inverse / sqrtf(float(dk)) : inverse;
  for (int i = lane; i < dk; i += kWarp) to[i] = load(x + i) * factor;
  if (lane == 0) (is_query ? inputs.inverse_q : inputs.inverse_k)[vector] = inverse;
}

template <class T>
__global__ void gates_kernel(const RecurrentInputs inputs, const float* a, const float* b, const T* rate,
                             const T* shift, float beta_scale, int64_t count, int heads, int rates) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    const int64_t head = i / rates;  // of a token
    const float x = a[i] + load(shift + i % (int64_t(heads) * rates));
    const float step = fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
    const float log_decay = -expf(load(rate + head % heads)) * step;
    inputs.log_decay[i] = log_decay, inputs.decay[i] = expf(log_decay);
    if (i % rates == 0) inputs.beta[head] = b ? beta_scale / (1 + expf(-b[head])) : step;
  }
}

constexpr int kBlockColumns = 32, kBlockThreads = kBlockColumns * kColumnLanes;
constexpr int kTokensAhead = 8;  // whose keys and queries wait in shared memory

// As TokenRuns says it.
__device__ __forceinline__ bool goes_on(const TokenRun* runs, int i, int count) {
  return i > 0 && i < count && runs[i].from >= 0 && runs[i].from == runs[i - 1].to;
}

template <class T>
struct RecurrenceCall {
  T* y;
  const T *v, *skip;
  float* states;
  const TokenRun* runs;
  int num_runs;
  RecurrentInputs inputs;
  RecurrentShape shape;
};

// A block to some columns of a run and all that go on from it. kByRow: each row decays by its own.
template <class T, int kRows, bool kByRow>
__global__ void __launch_bounds__(kBlockThreads) recurrence_kernel(const RecurrenceCall<T> call) {
  constexpr int kPadded = kRows * kColumnLanes, kRates = kByRow ? kPadded : 1;
  __shared__ float keys[kTokensAhead][kPadded], queries[kTokensAhead][kPadded];
  __shared__ float values[kTokensAhead][kBlockColumns], betas[kTokensAhead];
  __shared__ float decays[kTokensAhead][kRates];
  const RecurrentShape& z = call.shape;
  int number = int(blockIdx.x / unsigned(z.heads));
  if (goes_on(call.runs, number, call.num_runs)) return;
  TokenRun run = call.runs[number];
  const int n = int(blockIdx.x % unsigned(z.heads)), lane = int(threadIdx.x) % kColumnLanes;
  const int column = int(blockIdx.y) * kBlockColumns + int(threadIdx.x) / kColumnLanes;
  const bool is_here = column < z.dv;
  const auto kept = [&](int32_t at, int r) {
    return call.states + ((int64_t(at) * z.heads + n) * z.dk + r * kColumnLanes + lane) * z.dv + column;
  };
  const float skip = z.is_delta ? 0.0f : load(call.skip + n);
  StateColumn<kRows> state;
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    state.s[r] = run.from >= 0 && is_here && r * kColumnLanes + lane < z.dk ? *kept(run.from, r) : 0.0f;
  const auto add_tokens = [&](int64_t first) {
    const int count = int(min(int64_t(kTokensAhead), run.end - first));
    __syncthreads();  // all have read the last ones
    for (int i = int(threadIdx.x); i < count * kPadded; i += kBlockThreads) {
      const int64_t at = z.key_at(first + i / kPadded, n) + i % kPadded;
      const bool is_element = i % kPadded < z.dk;
      keys[i / kPadded][i % kPadded] = is_element ? call.inputs.keys[at] : 0.0f;
      queries[i / kPadded][i % kPadded] = is_element ? call.inputs.queries[at] : 0.0f;
    }
    for (int i = int(threadIdx.x); i < count * kRates; i += kBlockThreads) {
      const int64_t at = ((first + i / kRates) * z.heads + n) * z.rates + i % kRates;
      decays[i / kRates][i % kRates] = i % kRates < z.rates ? call.inputs.decay[at] : 0.0f;
    }
    for (int i = int(threadIdx.x); i < count * kBlockColumns; i += kBlockThreads) {
      const int64_t at = (first + i / kBlockColumns) * z.heads + n;
      const int c = int(blockIdx.y) * kBlockColumns + i % kBlockColumns;
      values[i / kBlockColumns][i % kBlockColumns] = c < z.dv ? load(call.v + at * z.dv + c) : 0.0f;
    }
    if (int(threadIdx.x) < count) betas[threadIdx.x] = call.inputs.beta[(first + int(threadIdx.x)) * z.heads + n];
    __syncthreads();
#pragma unroll 1
    for (int t = 0; t < count; ++t) {
      const int64_t at = (first + t) * z.heads + n;
      const float v = values[t][int(threadIdx.x) / kColumnLanes];
      state.step(
          z.is_delta, keys[t], lane, v, [&](int i) { return decays[t][kByRow ? i : 0]; }, betas[t]);
      const float y = state.project(queries[t], lane) + skip * v;
      if (is_here && lane == 0) store(call.y + at * z.dv + column, y);
    }
  };
  for (;; run = call.runs[number]) {
    for (int64_t first = run.begin; first < run.end; first += kTokensAhead) add_tokens(first);
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (run.to >= 0 && is_here && r * kColumnLanes + lane < z.dk) *kept(run.to, r) = state.s[r];
    if (!goes_on(call.runs, ++number, call.num_runs)) return;
  }
}

}  // namespace

RecurrentInputs make_recurrent_inputs(Stream& stream, Tensor& all, const RecurrenceArgs& given) {
  const Tensor& q = given.q;
  const int64_t vectors = q.dim(0) * q.dim(1), elements = q.numel(), gates = given.a.numel();
  const int64_t rates = rates_of_head(given);
  all = stream.allocator().empty(DType::f32, {2 * elements + 2 * vectors + 2 * gates + gates / rates});
  auto* at = device_data<float>(all);
  const auto take = [&](int64_t count) { return std::exchange(at, at + count); };
  RecurrentInputs inputs{};
  inputs.keys = take(elements), inputs.queries = take(elements);
  inputs.inverse_k = take(vectors), inputs.inverse_q = take(vectors);
  inputs.log_decay = take(gates), inputs.decay = take(gates), inputs.beta = take(gates / rates);
  with_float("recurrence", q, [&]<class T>() {
    constexpr int64_t kWarps = 8;  // of a block
    launch(stream, addresses_kernel<T>,
           {.blocks_x = unsigned(ceil_div(2 * vectors, kWarps)), .threads = unsigned(kWarps * kWarp)}, inputs,
           device_data<T>(q), device_data<T>(given.k), vectors, int(q.dim(2)), given.rule == StateRule::delta);
    launch(stream, gates_kernel<T>, over_elements(gates), inputs, device_data<float>(given.a),
           device_data<float>(given.b), device_data<T>(given.rate), device_data<T>(given.shift), given.beta_scale,
           gates, int(given.rate.numel()), int(rates));
  });
  return inputs;
}

void recurrence(Stream& stream, const RecurrenceArgs& args) {
  shapes::check_recurrence(args);
  const RecurrentShape shape = recurrent_shape(args);
  if (args.runs.count == 0 || shape.heads == 0) return;
  Tensor held;
  const RecurrentInputs inputs = make_recurrent_inputs(stream, held, args);
  with_float("recurrence", args.q, [&]<class T>() {
    const RecurrenceCall<T> call{.y = device_data<T>(args.y),
                                 .v = device_data<T>(args.v),
                                 .skip = device_data<T>(args.skip),
                                 .states = device_data<float>(args.states),
                                 .runs = upload(stream, args.runs.runs, args.runs.count),
                                 .num_runs = args.runs.count,
                                 .inputs = inputs,
                                 .shape = shape};
    with_rows_of_lane(shape.dk, [&]<int kRows>() {
      const auto kernel = shape.rates > 1 ? recurrence_kernel<T, kRows, true> : recurrence_kernel<T, kRows, false>;
      launch(stream, kernel,
             {.blocks_x = unsigned(args.runs.count) * unsigned(shape.heads),
              .blocks_y = unsigned(ceil_div(shape.dv, kBlockColumns)),
              .threads = kBlockThreads},
             call);
    });
  });
}

}  // namespace weft::cuda
