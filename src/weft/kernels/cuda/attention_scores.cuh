// Scores of attention: which keys a lane sees, and what scale, cap, bias and dropout make of a product.
#pragma once
#include "weft/kernels/cuda/philox.cuh"

namespace weft::cuda {

// What is the same for all scores of a call.
struct ScoreRule {
  float scale, softcap;
  int window;
  int group;
  const float* bias;  // [N, 2 reach + 1], or null
  int reach;
  DropoutFactors dropout;
  int first_head, total_heads;
  const uint32_t* key_bits;  // [T, words], or null
  int words;
};

inline ScoreRule score_rule(const AttentionShape& s, const DropoutKey& dropout = {}, const Tensor& bias = {},
                            const Tensor& key_bits = {}) {
  return {.scale = s.scale,
          .softcap = s.softcap,
          .window = s.window,
          .group = s.num_kv_heads ? s.num_heads / s.num_kv_heads : 1,
          .bias = device_data<float>(bias),
          .reach = bias ? int(bias.dim(1) / 2) : 0,
          .dropout = DropoutFactors::of(dropout),
          .first_head = s.first_head,
          .total_heads = s.total_heads ? s.total_heads : s.num_heads,
          .key_bits = reinterpret_cast<const uint32_t*>(device_data<int32_t>(key_bits)),
          .words = key_bits ? int(key_bits.dim(1)) : 0};
}

// A lane of a span; keys are counted inside the span.
struct ScoreLane {
  int begin, end;    // the keys it sees
  int distance;      // of key 0 behind it
  int head;          // of q
  int64_t row;       // of q
  int first_key;     // row of k that is key 0
  uint64_t element;  // of key 0, for dropout
  float lse, delta;  // of the backward
};

__device__ __forceinline__ int clamped(int64_t x, int64_t low, int64_t high) {
  return int(x < low ? low : x > high ? high : x);
}

// As shapes::visible_keys, shapes::first_distance and AttentionArgs::dropout say.
__device__ __forceinline__ ScoreLane score_lane(const ScoreRule& rule, const AttentionSpan& a, int lane,
                                                int kv_head) {
  const int row = lane / rule.group, num_queries = a.q_end - a.q_begin, num_keys = a.k_end - a.k_begin;
  const int64_t diagonal = int64_t(row) + 1 + num_keys - num_queries;
  ScoreLane s;
  s.end = a.causal ? clamped(diagonal, 0, num_keys) : num_keys;
  s.begin = rule.window > 0 ? clamped(diagonal + a.lead - rule.window, 0, s.end) : 0;
  s.distance = num_queries - row - a.lead - num_keys;
  s.head = kv_head * rule.group + lane % rule.group;
  s.row = a.q_begin + int64_t(row);
  s.first_key = a.k_begin;
  s.element =
      ((uint64_t(a.first_query + row) * uint64_t(rule.total_heads) + uint64_t(rule.first_head + s.head)) << 24) +
      uint64_t(a.first_key);
  s.lse = s.delta = 0;
  return s;
}
// Of a tile's row that is no lane.
__device__ __forceinline__ ScoreLane no_lane() { return {0, 0, 0, 0, 0, 0, 0, 0, 0}; }

// Whether a lane sees a key.
__device__ __forceinline__ bool sees(const ScoreRule& rule, const ScoreLane& lane, int key) {
  if (key < lane.begin || key >= lane.end) return false;
  if (!rule.key_bits) return true;
  const int at = lane.first_key + key;
  return rule.key_bits[lane.row * rule.words + at / 32] >> (at % 32) & 1;
}

// The column of the bias that a key of a lane has.
__device__ __forceinline__ int bias_column(const ScoreRule& rule, const ScoreLane& lane, int key) {
  return clamped(int64_t(lane.distance) + key, -rule.reach, rule.reach) + rule.reach;
}

// The score; `slope` is how it changes with the product of query and key.
__device__ __forceinline__ float score_of(const ScoreRule& rule, const ScoreLane& lane, int key, float product,
                                          float* slope = nullptr) {
  float score = product * rule.scale, bend = 1;
  if (rule.softcap != 0) {
    const float t = tanhf(score / rule.softcap);
    score = rule.softcap * t, bend = 1 - t * t;
  }
  if (slope) *slope = rule.scale * bend;
  if (rule.bias) score += rule.bias[int64_t(lane.head) * (2 * rule.reach + 1) + bias_column(rule, lane, key)];
  return score;
}

// What dropout multiplies a probability with.
__device__ __forceinline__ float dropout_factor(const ScoreRule& rule, const ScoreLane& lane, int key) {
  return rule.dropout.p == 0 ? 1.0f : rule.dropout.at(lane.element + uint64_t(key));
}

}  // namespace weft::cuda
