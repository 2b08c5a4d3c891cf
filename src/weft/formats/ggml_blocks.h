// Ggml blocks: rows of floats to and from the element types of GGUF files, plain or quantised in blocks.
#pragma once
#include <span>

#include "weft/base/bytes.h"
#include "weft/formats/ggml_type.h"

namespace weft {

// What weft converts: F64, F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K. Others are listed by
// GgufFile and refused here.
bool can_convert(GgmlType type);

// Blocks as in a file, at any alignment, to as many values as they hold: bit for bit what ggml computes.
// `blocks` must have ggml_bytes(type, values.size()) bytes, in whole blocks.
void dequantize(GgmlType type, Bytes blocks, std::span<float> values);

// The reverse, with the sizes of dequantize. Types without a K give the bytes that ggml's reference gives; those with
// one search scales for the least squared error. Blocks hold values up to kLargestBlockValue: Error when one is above
// it or not finite.
constexpr float kLargestBlockValue = 65504;  // the largest half
void quantize(GgmlType type, std::span<const float> values, std::span<std::byte> blocks);

}  // namespace weft
