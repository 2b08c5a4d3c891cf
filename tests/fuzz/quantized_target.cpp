// A quantised checkpoint from outside: what its config.json says of codes, and its tensors.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>

#include "fuzz/memory_file.h"
#include "fuzz/targets.h"
#include "weft/formats/ggml_blocks.h"
#include "weft/kernels/block_layout.h"
#include "weft/pretrained/held_blocks.h"
#include "weft/pretrained/hf_family.h"
#include "weft/pretrained/quantized_tensors.h"

namespace weft {
namespace {

// A file's tensors, each in memory of its own, so that a sanitizer sees who reads beyond one.
class CopiedTensors final : public StoredTensors {
 public:
  explicit CopiedTensors(const SafetensorsFile& file) : path_(file.path()) {
    std::vector<StoredInfo> all;
    for (const SafetensorsEntry& e : file.entries()) {
      all.push_back({e.name, e.dtype_name, e.dims, safetensors_dtype(e.dtype_name)});
      const Bytes bytes = file.bytes(e);
      auto copy = std::make_unique<std::byte[]>(bytes.size());
      std::memcpy(copy.get(), bytes.data(), bytes.size());
      copies_.emplace(e.name, Copy{std::move(copy), bytes.size()});
    }
    set_all(std::move(all));
  }
  const std::string& path() const override { return path_; }
  void read(const StoredInfo& info, int64_t first, int64_t stride, std::span<float> out) const override {
    if (!info.dtype || !is_float(*info.dtype)) throw Error("{} holds no weights", info.to_text());
    if (first < 0 || (!out.empty() && first + int64_t(out.size() - 1) * stride >= info.numel())) std::abort();
    read_floats(*info.dtype, *bytes(info), first, stride, out);
  }
  std::optional<Bytes> bytes(const StoredInfo& info) const override {
    const Copy& copy = copies_.at(info.name);
    return Bytes(copy.bytes.get(), copy.size);
  }

 private:
  struct Copy {
    std::unique_ptr<std::byte[]> bytes;
    size_t size;
  };
  std::string path_;
  std::map<std::string, Copy> copies_;
};

template <class Block>
void decode(Bytes from, std::span<float> out) {
  for (size_t i = 0; i < out.size() / Block::kSize; ++i) {
    Block block;
    std::memcpy(&block, from.data() + i * sizeof(Block), sizeof(Block));
    block.decode(out.data() + i * Block::kSize);
  }
}

void decode(BlockType type, Bytes from, std::span<float> out) {
  switch (type) {
    case BlockType::fp8: return decode<blocks::Fp8>(from, out);
    case BlockType::int8: return decode<blocks::Int8>(from, out);
    case BlockType::w4_g32: return decode<blocks::W4<32>>(from, out);
    case BlockType::w4_g128: return decode<blocks::W4<128>>(from, out);
    case BlockType::nf4: return decode<blocks::Nf4>(from, out);
    default: return dequantize(*ggml_type_of(type), from, out);
  }
}

// A row's blocks have the numbers that are read of it.
void expect_same(const StoredTensors& tensors, const StoredInfo& info, BlockType type, int64_t row,
                 std::span<const float> values) {
  const auto num_blocks = (int64_t(values.size()) + block_elements(type) - 1) / block_elements(type);
  std::vector<std::byte> stored(size_t(num_blocks * block_bytes(type)));
  tensors.copy_blocks(info, row, 0, stored);
  std::vector<float> decoded(size_t(num_blocks * block_elements(type)));
  decode(type, stored, decoded);
  for (size_t i = 0; i < values.size(); ++i)
    if (decoded[i] != values[i] && !(std::isnan(decoded[i]) && std::isnan(values[i]))) std::abort();
}

void read_all(const StoredTensors& tensors, const StoredInfo& info) {
  constexpr int64_t kMostRows = 8;
  if (info.dims.size() != 2 || info.numel() == 0) return;
  const int64_t rows = info.dims[0], cols = info.dims[1], step = std::max<int64_t>(1, rows / kMostRows);
  const std::optional<StoredBlocks> blocks = tensors.blocks(info);
  std::vector<float> values(static_cast<size_t>(cols)), column(static_cast<size_t>(rows));
  for (int64_t row = 0; row < rows; row += step) {
    tensors.read(info, row * cols, 1, values);
    if (blocks) expect_same(tensors, info, blocks->type, row, values);
  }
  tensors.read(info, cols - 1, cols, column);  // as PEFT's and GPT-2's matrices are read
  const float last = column.back();
  tensors.read(info, info.numel() - cols, 1, values);
  if (last != values.back() && !(std::isnan(last) && std::isnan(values.back()))) std::abort();
}

}  // namespace

// A config.json, a zero, a safetensors file.
void fuzz_quantized(Bytes input) {
  const std::string_view text = text_of(input);
  const size_t end = text.find('\0');
  if (end == text.npos) return;
  MemoryFile memory(input.subspan(end + 1));
  expect_errors_only([&] {
    const HfConfig config = parse_hf_config(text.substr(0, end), "config.json");
    if (!config.quantization) return;
    const SafetensorsFile file("fuzz.safetensors", memory);
    const auto tensors = with_whole_weights(std::make_unique<CopiedTensors>(file), *config.quantization);
    for (const StoredInfo& info : tensors->all()) expect_errors_only([&] { read_all(*tensors, info); });
  });
}

}  // namespace weft
