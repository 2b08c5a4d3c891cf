// GGUF from outside: the header, every value by every getter, and the tensors as numbers.
#include <cstdlib>
#include <utility>

#include "fuzz/memory_file.h"
#include "fuzz/targets.h"
#include "weft/formats/ggml_blocks.h"
#include "weft/formats/gguf.h"

namespace weft {
namespace {

template <class... Getters>
void call_each(Getters&&... getters) {
  (expect_errors_only(getters), ...);
}

// The getters of other types only throw, which takes longer than all else: they are called for one value of a file.
void read_value(const GgufValue& value, bool with_other_types, int depth) {
  const auto scalars = [&] {
    call_each([&] { value.integer(0, 1000); }, [&] { value.number(); }, [&] { value.boolean(); },
              [&] { value.string(); });
  };
  const auto arrays = [&] {
    call_each([&] { value.integers(); }, [&] { value.numbers(); }, [&] { value.booleans(); },
              [&] { value.strings(); });
    expect_errors_only([&] {
      if (value.size() > 100 || depth > 5) return;
      for (const GgufValue& element : value.elements()) read_value(element, false, depth + 1);
    });
  };
  const bool is_array = value.type() == GgufType::array;
  if (!is_array || with_other_types) scalars();
  if (is_array || with_other_types) arrays();
}

}  // namespace

void fuzz_gguf(Bytes input) {
  MemoryFile memory(input);
  expect_errors_only([&] {
    const GgufFile file("fuzz.gguf", memory);
    bool is_first = true;
    for (const std::string& key : file.keys()) read_value(file.at(key), std::exchange(is_first, false), 0);
    for (const GgufTensor& tensor : file.tensors()) {
      if (&file.tensor(tensor.name) != &tensor) std::abort();
      const Bytes bytes = file.bytes(tensor);
      const Shape shape = tensor.shape();
      constexpr int64_t kEnough = 4096;
      if (!can_convert(tensor.type) || shape.numel() > kEnough) continue;
      std::vector<float> values(static_cast<size_t>(shape.numel()));
      dequantize(tensor.type, bytes, values);
    }
  });
}

}  // namespace weft
