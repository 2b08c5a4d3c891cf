// Attention by plain loops in double, which kernels are compared with.
#pragma once
#include <vector>

#include "support/attention_spans.h"

namespace weft {

using Doubles = std::vector<double>;

struct AttentionCase {
  int num_heads, num_kv_heads, dim;
  std::vector<int> q, k;  // rows of each sequence
  bool causal = true;
  float dropout = 0;
  std::vector<AttentionSpan> spans = {};  // instead of one a sequence
  int first_head = 0, total_heads = 0;
  int window = 0, value_dim = 0;
  float softcap = 0;
  int values_dim() const { return value_dim ? value_dim : dim; }
};

// Where each of some sequences begins, and where the last ends.
std::vector<int32_t> starts(const std::vector<int>& lengths);
std::vector<AttentionSpan> case_spans(const AttentionCase& c);
Doubles read_doubles(const Tensor& t);  // of any float type

struct AttentionResults {
  Doubles y, lse, dq, dk, dv;
};

// The contract of kernels.h, word by word. The backward is that of the y it is given, which bf16 has rounded.
AttentionResults plain_attention(const AttentionCase& c, float scale, const Doubles& q, const Doubles& k,
                                 const Doubles& v, const Doubles& dy, const Doubles& given_y, const DropoutKey& key);

}  // namespace weft
