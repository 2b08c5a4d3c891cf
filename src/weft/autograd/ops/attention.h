// Attention: softmax(q kᵀ) v over packed sequences, for training, prefill and decode alike.
#pragma once
#include <vector>

#include "weft/autograd/tape.h"

namespace weft {

// Keys and values of one sequence's past, layer by layer.
class KvCache {
 public:
  KvCache(Context&, DType, int num_layers, int64_t capacity, int64_t kv_heads, int64_t head_dim);

  int64_t length() const { return length_; }
  int64_t capacity() const { return capacity_; }
  // Appends rows of one layer behind the first length() and returns all of them.
  std::array<Tensor, 2> append(int layer, const Tensor& k, const Tensor& v);
  void advance(int64_t num_tokens);  // after every layer has appended
  void clear() { length_ = 0; }

 private:
  std::vector<Tensor> keys_, values_;  // [capacity, K, D] each
  int64_t length_ = 0, capacity_ = 0;
};

// All that differs between training, prefill and decode.
struct AttentionPlan {
  const int32_t* positions = nullptr;       // [T], host memory that outlives the tape
  const int32_t* sequence_start = nullptr;  // [num_sequences + 1]: document boundaries among the T tokens
  int num_sequences = 0;
  bool causal = true;
  KvCache* cache = nullptr;  // null while training; with a cache there is one sequence, which continues it
};

struct AttentionOp {
  static constexpr std::string_view kName = "attention";
  const AttentionPlan& plan;  // outlives the tape
  int layer;
  float scale;
  DropoutKey dropout;
  Tensor q = {}, k = {}, v = {}, y = {}, lse = {};

  // q[T, N, D], k and v[T, K, D] -> y[T, N, D]
  Tensor forward(Context& context, const Tensor& q_in, const Tensor& k_in, const Tensor& v_in);
  std::array<Tensor, 3> backward(Context& context, const Tensor& dy);

 private:
  AttentionShape shape() const;
};

}  // namespace weft
