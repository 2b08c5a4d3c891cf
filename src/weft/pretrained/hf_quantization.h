// HfQuantization: what the quantization_config of a Hugging Face model says of how its weights are stored.
#pragma once
#include <cstdint>

#include "weft/base/json.h"

namespace weft {

struct HfQuantization {
  // scaled: codes of 8 bits (F8_E4M3 or I8) in `weight`, beside them `weight_scale` or `weight_scale_inv`; or codes
  // of
  //   `bits` bits in `weight_packed`, with `weight_scale` and perhaps `weight_zero_point`; or pairs of floats of 4
  //   bits in either, with `weight_scale` and perhaps one of the whole.
  // gptq, awq: codes of `bits` bits in `qweight`, with `scales` and `qzeros` of groups of inputs.
  // mxfp4: stacks of experts' codes in `_blocks`, with `_scales`.
  // bitsandbytes: codes of 4 bits in `weight`, with `weight.absmax` of blocks and `weight.quant_map`; or of 8 bits
  //   with `SCB` of rows.
  enum class Kind : uint8_t { scaled, gptq, awq, mxfp4, bitsandbytes };
  Kind kind = Kind::scaled;
  int64_t block_rows = 0, block_cols = 0;  // that share a scale; 0: one to a row or to a matrix
  int64_t bits = 4;                        // of codes in words
  int64_t group = 0;                       // inputs that share a scale and a zero; 0: all
  bool varies = false;                     // bits and groups are each weight's own, as the shapes of its tensors say
  bool zeros_less_one = false;             // zeros are stored minus one
  bool is_planar = false;                  // of GPTQ: codes are parted into planes of 4, 2 and 1 bits
  bool has_lines_of_outputs = false;       // of AWQ: version gemv
  bool has_zeros = false;                  // of compressed-tensors: every quantised weight has them
  bool has_float4 = false;                 // bytes of a weight are two codes of 4 bits
};

// Of config.json, or of what ModelOpt writes beside it or alone, hf_quant_config.json. Throws Error naming the file,
// the key and what weft can read instead.
HfQuantization parse_hf_quantization(const JsonView& json);

}  // namespace weft
