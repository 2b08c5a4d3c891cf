// Gradients of recurrences of matrices. A block has all columns of a head in a run, and goes back through its tokens:
// states are kept before each span of tokens, and then, from the last span on, before each token of it.
#include <cmath>
#include <vector>

#include "weft/kernels/cuda/column_sums.cuh"
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/recurrent_state.cuh"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

// Of a block; with many rows fewer, for registers and shared memory are few.
template <int kRows>
constexpr int kMostThreads = (kRows > 32 ? 64 : 128) * kColumnLanes;
constexpr int64_t kMostStateBytes = int64_t(512) << 20;  // of the blocks that run together

template <class T>
struct BackwardCall {
  T* dv;
  const T *dy, *v, *skip;
  float *dqueries, *dkeys;            // [T, N, Dk]: of what the rule reads
  float *dbeta, *dlog_decay, *dskip;  // [T, N], dlog_decay like a; dskip of each token
  const TokenRun* runs;
  RecurrentInputs inputs;
  RecurrentShape shape;
  float* states;  // of each block of the grid
  int64_t floats_of_block, spans;
  int span;  // tokens
  int64_t first_task;
};

// The threads of one column see each other as lanes 0 to 3; those of a warp have eight columns.
template <class T, int kRows>
class BackwardBlock {
 public:
  struct Shared {
    static constexpr int kPadded = kRows * kColumnLanes, kWarps = kMostThreads<kRows> / kWarp;
    float key[kPadded], query[kPadded], decay[kPadded];
    // Of each warp's columns, summed; forgot where each row decays by its own.
    float dquery[kWarps][kPadded], dkey[kWarps][kPadded], forgot[kWarps][kPadded];
  };

  __device__ BackwardBlock(const BackwardCall<T>& call, Shared& shared)
      : call_(call),
        shared_(shared),
        run_(call.runs[(call.first_task + blockIdx.x) / call.shape.heads]),
        n_(int((call.first_task + blockIdx.x) % call.shape.heads)),
        lane_(int(threadIdx.x) % kColumnLanes),
        warp_(int(threadIdx.x) / kWarp),
        starts_(call.states + blockIdx.x * call.floats_of_block),
        states_(starts_ + call.spans * kRows * blockDim.x),
        errors_(states_ + int64_t(call.span) * kRows * blockDim.x) {}

  __device__ void run(int first_column) {
    column_ = first_column + int(threadIdx.x) / kColumnLanes;
    is_here_ = column_ < call_.shape.dv;
    is_first_ = first_column == 0;
    const int64_t tokens = run_.end - run_.begin, spans = (tokens + call_.span - 1) / call_.span;
    StateColumn<kRows> state;
    state.clear();
    for (int64_t span = 0; span < spans; ++span) {
      save(starts_, span, state);
      if (span + 1 == spans) break;
      for (int64_t i = 0; i < call_.span; ++i) forward(state, run_.begin + span * call_.span + i);
    }
    StateColumn<kRows> gradient;
    gradient.clear();
    for (int64_t span = spans; span-- > 0;) {
      const int64_t first = run_.begin + span * call_.span, count = min(int64_t(call_.span), run_.end - first);
      fetch(starts_, span, state);
      for (int64_t i = 0; i < count; ++i) {
        save(states_, i, state);
        errors_[i * blockDim.x + threadIdx.x] = forward(state, first + i);
      }
      for (int64_t i = count; i-- > 0;) {
        fetch(states_, i, state);
        back(gradient, state, errors_[i * blockDim.x + threadIdx.x], first + i);
      }
    }
  }

 private:
  __device__ static void save(float* to, int64_t number, const StateColumn<kRows>& state) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) to[(number * kRows + r) * blockDim.x + threadIdx.x] = state.s[r];
  }
  __device__ static void fetch(const float* from, int64_t number, StateColumn<kRows>& state) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) state.s[r] = from[(number * kRows + r) * blockDim.x + threadIdx.x];
  }
  __device__ int64_t gate_at(int64_t t) const { return t * call_.shape.heads + n_; }

  // Of token t, to where all threads see them. Begins and ends with a barrier.
  __device__ void share_addresses(int64_t t) {
    __syncthreads();
    const int64_t at = call_.shape.key_at(t, n_);
    const float* const decays = call_.inputs.decay + gate_at(t) * call_.shape.rates;
    for (int i = int(threadIdx.x); i < kRows * kColumnLanes; i += int(blockDim.x)) {
      shared_.key[i] = i < call_.shape.dk ? call_.inputs.keys[at + i] : 0.0f;
      shared_.query[i] = i < call_.shape.dk ? call_.inputs.queries[at + i] : 0.0f;
      shared_.decay[i] = call_.shape.rates == 1 ? decays[0] : i < call_.shape.dk ? decays[i] : 0.0f;
    }
    __syncthreads();
  }

  __device__ float forward(StateColumn<kRows>& state, int64_t t) {
    share_addresses(t);
    const int64_t at = gate_at(t);
    const float v = is_here_ ? load(call_.v + at * call_.shape.dv + column_) : 0.0f;
    return state.step(
        call_.shape.is_delta, shared_.key, lane_, v, [&](int i) { return shared_.decay[i]; }, call_.inputs.beta[at]);
  }

  // The sum over the columns of this warp, in the lanes of its first column.
  __device__ static float over_columns(float x) {
    for (int mask = kWarp / 2; mask >= kColumnLanes; mask /= 2) x += __shfl_xor_sync(kAllLanes, x, mask);
    return x;
  }

  // The gradient of the state after token t becomes that of the one before it, `old`.
  __device__ void back(StateColumn<kRows>& gradient, const StateColumn<kRows>& old, float error, int64_t t) {
    share_addresses(t);
    const int64_t at = gate_at(t), out = at * call_.shape.dv + column_;
    const float beta = call_.inputs.beta[at], learnt = beta * error;
    const float dy = is_here_ ? load(call_.dy + out) : 0.0f;
    const bool is_first_column = int(threadIdx.x) % kWarp<kColumnLanes, is_by_row = call_.shape.rates> 1;
    float dlearnt = 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int i = r * kColumnLanes + lane_;
      gradient.s[r] += shared_.query[i] * dy;
      dlearnt += gradient.s[r] * shared_.key[i];
      const float read = over_columns(old.s[r] * dy);
      if (is_first_column) shared_.dquery[warp_][i] = read;
    }
    dlearnt = lanes_reduce<kColumnLanes, Plus>(dlearnt);
    const float derror = beta * dlearnt, known = call_.shape.is_delta ? derror : 0.0f;  // of what the state knew
    float forgot = 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int i = r * kColumnLanes + lane_;
      const float decay = shared_.decay[i], decayed = decay * old.s[r];
      const float change = over_columns(gradient.s[r] * learnt - decayed * known);
      if (is_first_column) shared_.dkey[warp_][i] = change;
      const float before = gradient.s[r] - shared_.key[i] * known;
      if (is_by_row) {
        const float of_row = over_columns(before * decayed);
        if (is_first_column) shared_.forgot[warp_][i] = of_row;
      } else {
        forgot += before * decayed;
      }
      gradient.s[r] = decay * before;
    }
    const float skip = call_.shape.is_delta ? 0.0f : load(call_.skip + n_);
    if (is_here_ && lane_ == 0) store(call_.dv + out, derror + skip * dy);
    const bool counts = lane_ == 0;  // what all lanes of a column know
    const float learnt_dy = block_sum(counts ? learnt * dy : 0.0f);
    const float dbeta = block_sum(counts ? dlearnt * error : 0.0f);
    const float dskip = call_.shape.is_delta ? 0.0f : block_sum(counts ? error * dy : 0.0f);  // whose error is v
    forgot = block_sum(forgot);  // ends with a barrier: the warps' sums are there
    if (threadIdx.x == 0) {
      give(call_.dbeta + at, dbeta);
      if (!is_by_row) give(call_.dlog_decay + at, forgot);
      if (!call_.shape.is_delta) give(call_.dskip + at, dskip);
    }
    for (int i = int(threadIdx.x); i < call_.shape.dk; i += int(blockDim.x)) {
      const int64_t row = at * call_.shape.dk + i;
      give(call_.dqueries + row, shared_.decay[i] * over_warps(shared_.dquery, i) + shared_.key[i] * learnt_dy);
      give(call_.dkeys + row, over_warps(shared_.dkey, i));
      if (is_by_row) give(call_.dlog_decay + row, over_warps(shared_.forgot, i));
    }
  }

  // The block's first columns set, the others add.
  __device__ void give(float* to, float x) const { *to = x + (is_first_ ? 0 : *to); }
  __device__ static float over_warps(const float (&sums)[Shared::kWarps][Shared::kPadded], int i) {
    float sum = 0;
    for (int w = 0; w < int(blockDim.x) / kWarp; ++w) sum += sums[w][i];
    return sum;
  }

  const BackwardCall<T>& call_;
  Shared& shared_;
  TokenRun run_;
  int n_, lane_, warp_;
  float *starts_, *states_, *errors_;
  int column_ = 0;
  bool is_here_ = false, is_first_ = true;
};

template <class T, int kRows>
__global__ void __launch_bounds__(kMostThreads<kRows>) recurrence_backward_kernel(const BackwardCall<T> call) {
  __shared__ typename BackwardBlock<T, kRows>::Shared shared;
  BackwardBlock<T, kRows> block(call, shared);
  for (int first = 0; first < call.shape.dv; first += int(blockDim.x) / kColumnLanes) block.run(first);
}

// A warp to each key of a token, and to its query: sums over the heads that share it, and the way back through the
// length of a unit vector.
template <class T>
__global__ void address_gradients_kernel(T* dq, T* dk, const float* dqueries, const float* dkeys,
                                         const RecurrentInputs inputs, const RecurrentShape z) {
  const int64_t warp = first_element() / kWarp, vector = warp / 2;
  if (vector >= z.tokens * z.keys) return;
  const bool is_query = warp % 2 != 0;
  const int lane = int(threadIdx.x) % kWarp, group = z.heads / z.keys;
  const float scale = is_query ? 1 / sqrtf(float(z.dk)) : 1.0f;
  const float* const unit = (is_query ? inputs.queries : inputs.keys) + vector * z.dk;
  const float* const gradients = (is_query ? dqueries : dkeys) + vector * group * z.dk;
  const auto gradient = [&](int i) {
    float sum = 0;
    for (int h = 0; h < group; ++h) sum += gradients[h * z.dk + i];
    return sum;
  };
  float along = 0, factor = 1;
  if (z.is_delta) {
    for (int i = lane; i < z.dk; i += kWarp) along += unit[i] * gradient(i);
    along = warp_sum(along) / (scale * scale);
    factor = scale * (is_query ? inputs.inverse_q : inputs.inverse_k)[vector];
  }
  for (int i = lane; i < z.dk; i += kWarp)
    store((is_query ? dq : dk) + vector * z.dk + i, factor * (gradient(i) - along * unit[i]));
}

template <class T>
__global__ void gate_gradients_kernel(float* da, float* db, const float* dbeta, const float* dlog_decay,
                                      const float* a, const T* rate, const T* shift, const RecurrentInputs inputs,
                                      float beta_scale, int64_t count, int heads, int rates) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    const int64_t head = i / rates;  // of a token
    const float x = a[i] + load(shift + i % (int64_t(heads) * rates)), beta = inputs.beta[head];
    const float dstep = (db ? 0 : dbeta[head]) - dlog_decay[i] * expf(load(rate + head % heads));
    da[i] = dstep / (1 + expf(-x));
    if (db && i % rates == 0) db[head] = dbeta[head] * beta * (1 - beta / beta_scale);
  }
}

struct RateTerms {
  const float *dlog_decay, *log_decay;
  int64_t cols;  // heads
  int rates;

  template <int N>
  __device__ __forceinline__ void at(float (&term)[N], int64_t row, int64_t col) const {
    for (int i = 0; i < N; ++i) {
      const int64_t first = (row * cols + col + i) * rates;
      term[i] = 0;
      for (int64_t j = first; j < first + rates; ++j) term[i] += dlog_decay[j] * log_decay[j];
    }
  }
};

template <class T>
void go_back(Stream& stream, BackwardCall<T> call, int64_t runs, int64_t longest) {
  const RecurrentShape& z = call.shape;
  call.span = int(std::max<int64_t>(16, int64_t(std::ceil(std::sqrt(double(longest))))));
  call.spans = ceil_div(longest, int64_t(call.span));
  with_rows_of_lane(z.dk, [&]<int kRows>() {
    const auto threads =
        unsigned(std::min<int64_t>(round_up(int64_t(z.dv) * kColumnLanes, int64_t(kWarp)), kMostThreads<kRows>));
    call.floats_of_block = ((call.spans + call.span) * kRows + call.span) * int64_t(threads);
    const int64_t tasks = runs * z.heads, bytes = call.floats_of_block * int64_t(sizeof(float));
    const int64_t together = std::min(tasks, std::max<int64_t>(1, kMostStateBytes / bytes));
    const Tensor states = stream.allocator().empty(DType::f32, {together * call.floats_of_block});
    call.states = device_data<float>(states);
    for (call.first_task = 0; call.first_task < tasks; call.first_task += together)
      launch(stream, recurrence_backward_kernel<T, kRows>,
             {.blocks_x = unsigned(std::min(together, tasks - call.first_task)), .threads = threads}, call);
  });
}

}  // namespace

void recurrence_backward(Stream& stream, const RecurrenceBackwardArgs& args) {
  shapes::check_recurrence_backward(args);
  const RecurrentShape z = recurrent_shape(args);
  if (z.tokens == 0 || z.heads == 0) return;
  int64_t longest = 1;
  for (const TokenRun& run : args.runs) longest = std::max<int64_t>(longest, run.end - run.begin);
  Tensor held;
  const RecurrentInputs inputs = make_recurrent_inputs(stream, held,
                                                       {.rule = args.rule,
                                                        .y = {},
                                                        .q = args.q,
                                                        .k = args.k,
                                                        .v = args.v,
                                                        .a = args.a,
                                                        .b = args.b,
                                                        .beta_scale = args.beta_scale,
                                                        .rate = args.rate,
                                                        .shift = args.shift});
  const int64_t gates = args.a.numel(), heads = z.tokens * z.heads, unit_floats = heads * z.dk;
  const Tensor dunits = stream.allocator().empty(DType::f32, {2 * unit_floats});
  const Tensor dgates = stream.allocator().empty(DType::f32, {gates + 2 * heads});
  auto *const dqueries = device_data<float>(dunits), *const dkeys = dqueries + unit_floats;
  auto *const dbeta = device_data<float>(dgates), *const dskip = dbeta + heads, *const dlog_decay = dskip + heads;
  with_float("recurrence_backward", args.q, [&]<class T>() {
    go_back<T>(stream,
               {.dv = device_data<T>(args.dv),
                .dy = device_data<T>(args.dy),
                .v = device_data<T>(args.v),
                .skip = device_data<T>(args.skip),
                .dqueries = dqueries,
                .dkeys = dkeys,
                .dbeta = dbeta,
                .dlog_decay = dlog_decay,
                .dskip = dskip,
                .runs = upload(stream, args.runs.runs, args.runs.count),
                .inputs = inputs,
                .shape = z},
               args.runs.count, longest);
    constexpr int64_t kWarps = 8;  // of a block
    launch(stream, address_gradients_kernel<T>,
           {.blocks_x = unsigned(ceil_div(2 * z.tokens * z.keys, kWarps)), .threads = unsigned(kWarps * kWarp)},
           device_data<T>(args.dq), device_data<T>(args.dk), dqueries, dkeys, inputs, z);
    launch(stream, gate_gradients_kernel<T>, over_elements(gates), device_data<float>(args.da),
           device_data<float>(args.db), dbeta, dlog_decay, device_data<float>(args.a), device_data<T>(args.rate),
           device_data<T>(args.shift), inputs, args.beta_scale, gates, z.heads, z.rates);
  });
  if (!args.drate) return;
  sum_columns<1>(stream, device_data<float>(args.drate), RateTerms{dlog_decay, inputs.log_decay, z.heads, z.rates},
                 z.tokens, z.heads, true);
  sum_columns<1>(stream, device_data<float>(args.dshift),
                 ElementTerms<float>{device_data<float>(args.da), args.da.dim(1)}, z.tokens, args.da.dim(1), true);
  if (args.dskip)
    sum_columns<1>(stream, device_data<float>(args.dskip), ElementTerms<float>{dskip, z.heads}, z.tokens, z.heads,
                   true);
}

}  // namespace weft::cuda
