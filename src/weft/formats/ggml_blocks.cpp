// Which type is converted how: plain elements one by one, quantised ones block by block.
#include "weft/formats/ggml_blocks.h"

#include "weft/base/error.h"
#include "weft/tensor/ggml_block_layout.h"

namespace weft {
namespace {

// Calls `visit` with a value of the struct of `type`, or gives false when weft does not convert the type.
template <class Visit>
bool visit_type(GgmlType type, Visit&& visit) {
  switch (type) {
    case GgmlType::f64: visit(double()); return true;
    case GgmlType::f32: visit(float()); return true;
    case GgmlType::f16: visit(Float16()); return true;
    case GgmlType::bf16: visit(BFloat16()); return true;
    case GgmlType::q4_0: visit(ggml::Q4_0()); return true;
    case GgmlType::q4_1: visit(ggml::Q4_1()); return true;
    case GgmlType::q5_0: visit(ggml::Q5_0()); return true;
    case GgmlType::q5_1: visit(ggml::Q5_1()); return true;
    case GgmlType::q8_0: visit(ggml::Q8_0()); return true;
    case GgmlType::mxfp4: visit(ggml::Mxfp4()); return true;
    case GgmlType::iq4_nl: visit(ggml::Iq4Nl()); return true;
    case GgmlType::iq4_xs: visit(ggml::Iq4Xs()); return true;
    case GgmlType::q2_k: visit(ggml::Q2_K()); return true;
    case GgmlType::q3_k: visit(ggml::Q3_K()); return true;
    case GgmlType::q4_k: visit(ggml::Q4_K()); return true;
    case GgmlType::q5_k: visit(ggml::Q5_K()); return true;
    case GgmlType::q6_k: visit(ggml::Q6_K()); return true;
    default: return false;
  }
}

template <class T>
concept Block = requires {
  T::kSize;
};

template <class T>
consteval size_t elements_of() {
  if constexpr (Block<T>) return size_t(T::kSize);
  return 1;
}

void check_sizes(GgmlType type, size_t bytes, size_t numel) {
  const GgmlTypeInfo& info = info_of(type);
  check(numel % info.block == 0 && bytes == numel / info.block * info.bytes,
        "{} values of {} do not take {} bytes in whole blocks", numel, info.name, bytes);
}

[[noreturn]] void refuse(GgmlType type) {
  throw Error("weft does not convert {}; convert the file to a type such as Q8_0 or F16 first", name_of(type));
}

void check_range(std::span<const float> values, GgmlType type) {
  for (const float x : values) {
    if (!(std::abs(x) <= kLargestBlockValue)) {
      throw Error("{} cannot hold the value {}: its blocks have scales in half precision", name_of(type), x);
    }
  }
}

}  // namespace

bool can_convert(GgmlType type) {
  return visit_type(type, [](auto) {});
}

void dequantize(GgmlType type, Bytes blocks, std::span<float> values) {
  check_sizes(type, blocks.size(), values.size());
  const auto convert = [&]<class T>(T) {
    for (size_t i = 0; i < values.size(); i += elements_of<T>()) {
      T element;
      std::memcpy(&element, blocks.data() + i / elements_of<T>() * sizeof(T), sizeof(T));
      if constexpr (Block<T>) {
        element.decode(&values[i]);
      } else {
        values[i] = float(element);
      }
    }
  };
  if (!visit_type(type, convert)) refuse(type);
}

void quantize(GgmlType type, std::span<const float> values, std::span<std::byte> blocks) {
  check_sizes(type, blocks.size(), values.size());
  const auto convert = [&]<class T>(T) {
    if constexpr (Block<T>) check_range(values, type);
    for (size_t i = 0; i < values.size(); i += elements_of<T>()) {
      T element;
      if constexpr (Block<T>) {
        element = T::encode(&values[i]);
      } else {
        element = T(values[i]);
      }
      std::memcpy(blocks.data() + i / elements_of<T>() * sizeof(T), &element, sizeof(T));
    }
  };
  if (!visit_type(type, convert)) refuse(type);
}

}  // namespace weft
