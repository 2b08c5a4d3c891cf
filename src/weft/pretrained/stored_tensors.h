// StoredTensors: the tensors of a file or of several, by name, read in parts as fp32.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/checkpoint/checkpoint.h"
#include "weft/formats/safetensors_shards.h"
#include "weft/kernels/block_matrix.h"

namespace weft {

struct StoredInfo {
  std::string name;
  std::string dtype_name;  // as its file says
  std::vector<int64_t> dims;
  std::optional<DType> dtype = {};  // none: of blocks, or of a kind that weft does not compute with
  int64_t numel() const;
  std::string to_text() const;  // "model.norm.weight [64] F32"
};

// A matrix in blocks that products read.
struct StoredBlocks {
  BlockType type;
  Bytes bytes;  // its rows as they lie in a file, valid while that is open; empty: copy_blocks makes them
};

// Opened files, read through their mappings; may be used by many threads.
class StoredTensors {
 public:
  virtual ~StoredTensors() = default;
  virtual const std::string& path() const = 0;  // for messages
  const std::vector<StoredInfo>& all() const { return all_; }
  const StoredInfo* find(std::string_view name) const;  // null when there is none

  // Elements first, first + stride, ... of a tensor of all(), counted row by row, one for each of `out`.
  virtual void read(const StoredInfo& info, int64_t first, int64_t stride, std::span<float> out) const = 0;
  // Where the tensor is in such blocks.
  virtual std::optional<StoredBlocks> blocks(const StoredInfo&) const { return {}; }
  // Whether it is in blocks that no product reads.
  virtual bool is_in_other_blocks(const StoredInfo&) const { return false; }
  // Blocks of a row of such a tensor, from `first` on, as many as `out` has room for.
  virtual void copy_blocks(const StoredInfo& info, int64_t row, int64_t first, std::span<std::byte> out) const;
  // The tensor's elements, row by row, where they lie so in one piece.
  virtual std::optional<Bytes> bytes(const StoredInfo&) const { return {}; }

 protected:
  void set_all(std::vector<StoredInfo> all);  // sorts by name

 private:
  std::vector<StoredInfo> all_;
};

// Elements first, first + stride, ... of the bytes of floats, which need not be aligned.
void read_floats(DType dtype, Bytes bytes, int64_t first, int64_t stride, std::span<float> out);

// A .safetensors file, an index of several, or a folder with one of them.
std::unique_ptr<StoredTensors> open_safetensors(const std::string& path);
// The weights of a folder: of safetensors, or where it has none of PyTorch's own format (.bin), single or in shards.
// Or a file of either format.
std::unique_ptr<StoredTensors> open_weights(const std::string& path);
// The weights of a checkpoint, which outlives this.
std::unique_ptr<StoredTensors> stored_weights(const Checkpoint& checkpoint);

}  // namespace weft
