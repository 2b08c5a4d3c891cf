// Attention on the CPU with its choices spelled out, for tests; everyone else calls those of cpu.h.
#pragma once
#include "weft/kernels/cpu/bf16_pairs.h"
#include "weft/kernels/cpu/cpu.h"

namespace weft::cpu {

struct AttentionOptions {
  bool use_bf16_dot =
      are_bf16_pairs_fast();  // multiply bf16 by the CPU's dot product of pairs if it has one, else in f32
  bool use_amx = true;        // over blocks, of pairs: and by its matrix tiles where it has some
};

void attention(Stream&, const AttentionArgs&, AttentionOptions);
void attention_backward(Stream&, const AttentionBackwardArgs&, AttentionOptions);
void paged_attention(Stream&, const PagedAttentionArgs&, AttentionOptions);

}  // namespace weft::cpu
