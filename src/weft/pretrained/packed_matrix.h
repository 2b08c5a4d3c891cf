// PackedMatrix: a weight [outputs, inputs], or a stack of such, as codes in several tensors of a Hugging Face model;
// its rows as floats, or in blocks that products read.
#pragma once
#include <memory>
#include <optional>
#include <span>

#include "weft/pretrained/hf_quantization.h"
#include "weft/pretrained/stored_tensors.h"

namespace weft {

// How the names of a stack's codes and scales end.
inline constexpr std::string_view kStackCodes = "_blocks", kStackScales = "_scales";

class PackedMatrix {
 public:
  virtual ~PackedMatrix() = default;
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  // As a plain tensor has them.
  std::vector<int64_t> dims() const {
    return stack_ > 0 ? std::vector{stack_, rows_ / stack_, cols_} : std::vector{rows_, cols_};
  }

  // Elements [first, first + out.size()) of a row.
  virtual void read(int64_t row, int64_t first, std::span<float> out) const = 0;
  // The blocks that hold the same numbers; nothing where none do.
  virtual std::optional<BlockType> block_type() const = 0;
  // Blocks of block_type() of a row, from `first` on; what a last one has room for beyond the row counts for nothing.
  // Throws Error where a code is no number.
  virtual void copy_blocks(int64_t row, int64_t first, std::span<std::byte> out) const = 0;

 protected:
  // stack: above 0, of so many matrices, whose rows follow each other.
  PackedMatrix(int64_t rows, int64_t cols, int64_t stack = 0) : rows_(rows), cols_(cols), stack_(stack) {}

 private:
  int64_t rows_, cols_, stack_;
};

// All throw Error naming the tensor that is missing or has another shape or dtype. `files` outlives the result.
// base: what names have before ".weight", ".weight_packed" or ".qweight".
std::unique_ptr<PackedMatrix> scaled_matrix(const StoredTensors& files, const std::string& base,
                                            const HfQuantization& how);
// Of GPTQ and AWQ.
std::unique_ptr<PackedMatrix> grouped_matrix(const StoredTensors& files, const std::string& base,
                                             const HfQuantization& how);
// Of compressed-tensors' pack-quantized.
std::unique_ptr<PackedMatrix> words_matrix(const StoredTensors& files, const std::string& base,
                                           const HfQuantization& how);
// Of compressed-tensors' nvfp4-pack-quantized and mxfp4-pack-quantized, and of ModelOpt.
std::unique_ptr<PackedMatrix> float4_matrix(const StoredTensors& files, const std::string& base,
                                            const HfQuantization& how);
// Of gpt-oss, base: what names have before kStackCodes.
std::unique_ptr<PackedMatrix> mxfp4_stack(const StoredTensors& files, const std::string& base,
                                          const HfQuantization& how);
// Of bitsandbytes in 4 bits.
std::unique_ptr<PackedMatrix> table_matrix(const StoredTensors& files, const std::string& base);

}  // namespace weft
