// The state of the gated delta rule in registers: each column of a head's matrix belongs to four neighbouring lanes,
// which hold every fourth row of it, so that a projection is a sum of few lanes.
#pragma once
#include "weft/kernels/cuda/reduce.cuh"

namespace weft::cuda {

constexpr int kColumnLanes = 4;

// What is made once of a call's inputs. Unit vectors are [T, K, Dk], scaled as the rule has them; their inverse
// lengths [T, K]; the gates [T, N]. All f32.
struct DeltaUnits {
  float *keys, *queries, *inverse_k, *inverse_q, *log_decay, *decay, *beta;
};

struct DeltaShape {
  int64_t tokens;
  int keys, heads, dk, dv;
  __device__ int64_t key_at(int64_t t, int n) const { return (t * keys + n / (heads / keys)) * dk; }
};

// The rows of a column, kRows of each lane: row i is of lane i % 4, at i / 4; those from Dk on are zero.
template <int kRows>
struct DeltaColumn {
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
  // Returns v - decay s^T key, of which the state then learns.
  __device__ __forceinline__ float step(const float* key, int lane, float v, float decay, float beta) {
    const float error = v - decay * project(key, lane), learnt = beta * error;
#pragma unroll
    for (int r = 0; r < kRows; ++r) s[r] = decay * s[r] + key[r * kColumnLanes + lane] * learnt;
    return error;
  }
};

// The units of a call, in memory that `all` holds.
DeltaUnits make_delta_units(Stream& stream, Tensor& all, const Tensor& q, const Tensor& k, const Tensor& a,
                            const Tensor& b, const Tensor& rate, const Tensor& shift);

// work.operator()<kRows>() with rows of a lane that are enough for dk.
template <class Work>
void with_rows_of_lane(int64_t dk, Work&& work) {
  if (dk <= 8 * kColumnLanes) return work.template operator()<8>();
  if (dk <= 32 * kColumnLanes) return work.template operator()<32>();
  work.template operator()<64>();
}

}  // namespace weft::cuda
