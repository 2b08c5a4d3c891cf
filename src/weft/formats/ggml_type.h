// GgmlType: the element types of GGUF tensors, plain and in blocks, with what a block holds and takes.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "weft/tensor/dtype.h"

namespace weft {

// The numbers are those of the file format.
enum class GgmlType : uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q8_1 = 9,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  q8_k = 15,
  iq2_xxs = 16,
  iq2_xs = 17,
  iq3_xxs = 18,
  iq1_s = 19,
  iq4_nl = 20,
  iq3_s = 21,
  iq2_s = 22,
  iq4_xs = 23,
  i8 = 24,
  i16 = 25,
  i32 = 26,
  i64 = 27,
  f64 = 28,
  iq1_m = 29,
  bf16 = 30,
  tq1_0 = 34,
  tq2_0 = 35,
  mxfp4 = 39,
};

struct GgmlTypeInfo {
  GgmlType type;
  std::string_view name;       // as people write it: "Q4_K"
  uint32_t block;              // elements that are stored together, of one row
  uint32_t bytes;              // of a block
  std::optional<DType> dtype;  // where a block is one element that weft's tensors can hold
};

// Null for a number that names no type, or one that newer files may have.
const GgmlTypeInfo* find_ggml_type(uint32_t number);
const GgmlTypeInfo& info_of(GgmlType type);
inline std::string_view name_of(GgmlType type) { return info_of(type).name; }

// Of a tensor of `numel` elements, in whole blocks; nothing when 64 bits cannot count it.
std::optional<uint64_t> ggml_bytes(GgmlType type, uint64_t numel);

}  // namespace weft
