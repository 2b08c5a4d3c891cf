// GGUF from outside: the header, every value by every getter, and the tensors as numbers.
#include <cstdlib>

#include "fuzz/memory_file.h"
#include "fuzz/targets.h"
#include "weft/formats/ggml_blocks.h"
#include "weft/formats/gguf.h"

namespace weft {
namespace {

void read_value(const GgufValue& value, int depth) {
  expect_errors_only([&] { value.integer(0, 1000); });
  expect_errors_only([&] { value.number(); });
  expect_errors_only([&] { value.boolean(); });
  expect_errors_only([&] { value.string(); });
  expect_errors_only([&] { value.integers(); });
  expect_errors_only([&] { value.numbers(); });
  expect_errors_only([&] { value.booleans(); });
  expect_errors_only([&] { value.strings(); });
  expect_errors_only([&] {
    if (value.size() > 100 || depth > 5) return;
    for (const GgufValue& element : value.elements()) read_value(element, depth + 1);
  });
}

}  // namespace

void fuzz_gguf(Bytes input) {
  MemoryFile memory(input);
  expect_errors_only([&] {
    const GgufFile file("fuzz.gguf", memory);
    for (const std::string& key : file.keys()) read_value(file.at(key), 0);
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
