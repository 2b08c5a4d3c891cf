// Quantised blocks of any bits: decoded without fail; what can be encoded again gives finite numbers.
#include <cmath>
#include <cstdlib>

#include "fuzz/memory_file.h"
#include "fuzz/targets.h"
#include "weft/formats/ggml_blocks.h"

namespace weft {

// The first byte chooses the type.
void fuzz_blocks(Bytes input) {
  if (input.empty()) return;
  const GgmlTypeInfo* info = find_ggml_type(uint32_t(input[0]) % 31);
  if (!info || !can_convert(info->type)) return;
  const size_t num_blocks = (input.size() - 1) / info->bytes;
  std::vector<float> values(num_blocks * info->block);
  dequantize(info->type, input.subspan(1, num_blocks * info->bytes), values);
  std::vector<std::byte> encoded(num_blocks * info->bytes);
  expect_errors_only([&] {
    quantize(info->type, values, encoded);
    const bool is_exact = info->block == 1;  // infinities and what is no number stay what they are
    dequantize(info->type, encoded, values);
    for (const float x : values) {
      if (!is_exact && !std::isfinite(x)) std::abort();
    }
  });
}

}  // namespace weft
