// The state of a recurrence in registers: each column of a head's matrix belongs to four neighbouring lanes,
// which hold every fourth row of it, so that a projection is a sum of few lanes.
#pragma once
#include "weft/kernels/cuda/reduce.cuh"

namespace weft::cuda {

constexpr int kColumnLanes = 4;

// What is made once of a call's inputs. Keys and queries are [T, K, Dk], as the rule reads them; the inverse lengths
// of those that are unit vectors [T, K]; decays and their logarithms like a; beta [T, N]. All f32.
struct RecurrentInputs {
  float *keys, *queries, *inverse_k, *inverse_q, *log_decay, *decay, *beta;
};

struct RecurrentShape {
  bool is_delta;
  int64_t tokens;
  int keys, heads, dk, dv, rates;  // rates: of a head, one to all rows or to each
  __device__ int64_t key_at(int64_t t, int n) const { return (t * keys + n / (heads / keys)) * dk; }
};

// The rows of a column, kRows of each lane: row i is of lane i % 4, at i / 4; those from Dk on are zero.
template <int kRows>
struct StateColumn {
  float s[kRows];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int r = 0; r < kRows; ++r) s[r] = 0;
  }
  // x: [4 kRows] in shared memory, zero from Dk on.
  __device__ __forceinline__ float project(const float* x, int lane) const {
    float sum = 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) sum += s[r] * x[r * kColumnLanes + lane];
    return lanes_reduce<kColumnLanes, Plus>(sum);
  }
  // decay: of row i. Returns v, less what the decayed state knew of it by the delta rule, of which it then learns.
  template <class Decay>
  __device__ __forceinline__ float step(bool is_delta, const float* key, int lane, float v, Decay decay, float beta) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) s[r] *= decay(r * kColumnLanes + lane);
    const float error = is_delta ? v - project(key, lane) : v, learnt = beta * error;
#pragma unroll
    for (int r = 0; r < kRows; ++r) s[r] += key[r * kColumnLanes + lane] * learnt;
    return error;
  }
};

// Of a call, in memory that `all` holds. `given`: what both its passes are given.
RecurrentInputs make_recurrent_inputs(Stream& stream, Tensor& all, const RecurrenceArgs& given);

template <class Args>
RecurrentShape recurrent_shape(const Args& args) {
  return {.is_delta = args.rule == StateRule::delta,
          .tokens = args.q.dim(0),
          .keys = int(args.q.dim(1)),
          .heads = int(args.v.dim(1)),
          .dk = int(args.q.dim(2)),
          .dv = int(args.v.dim(2)),
          .rates = int(rates_of_head(args))};
}

// work.operator()<kRows>() with rows of a lane that are enough for dk.
template <class Work>
void with_rows_of_lane(int64_t dk, Work&& work) {
  if (dk <= 8 * kColumnLanes) return work.template operator()<8>();
  if (dk <= 32 * kColumnLanes) return work.template operator()<32>();
  work.template operator()<64>();
}

}  // namespace weft::cuda
