// TorchFile: the tensors of a PyTorch checkpoint (.bin, .pt), read without running anything of it.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "weft/formats/shards.h"
#include "weft/formats/zip_file.h"
#include "weft/tensor/dtype.h"
#include "weft/tensor/shape.h"

namespace weft {

// One tensor of a file: a view of a part of a storage, which others may share.
struct TorchEntry {
  std::string name;                    // keys joined by dots where dicts and lists are inside each other
  std::string dtype_name;              // as safetensors says it: "F32", "BF16", "I16", ...
  uint64_t element_size = 0;           // bytes
  std::vector<int64_t> dims, strides;  // strides in elements
  uint64_t offset = 0;                 // of the first element, in elements
  size_t storage = 0;                  // which entry of the archive

  DType dtype() const;  // Error when weft does not compute with it
  Shape shape() const;  // Error when weft's tensors cannot have it
  uint64_t numel() const;
  uint64_t size() const { return numel() * element_size; }  // bytes when contiguous
  bool is_contiguous() const;                               // row-major
};

// An open file in the zip format that PyTorch writes since 1.6. Opening reads the pickle as data: dicts, lists,
// tuples, numbers, text, and calls of the few functions that rebuild tensors; any other function is refused by its
// name. Every storage has the bytes it should have, and every tensor lies inside its storage. Throws Error naming the
// file, the tensor and what is wrong. What is no tensor is passed over.
class TorchFile {
 public:
  using Entry = TorchEntry;
  explicit TorchFile(const std::string& path, FileSystem& fs = FileSystem::real());

  const std::string& path() const { return archive_.path(); }
  const std::vector<TorchEntry>& entries() const { return entries_; }  // in the file's order
  const TorchEntry* find(const std::string& name) const;
  const TorchEntry& at(const std::string& name) const;  // Error naming the nearest when absent

  // Of a contiguous tensor; valid while the file is open. Aligned to its elements, as PyTorch writes them.
  Bytes bytes(const TorchEntry& entry) const;
  // Row-major, whatever the strides: `into` has entry.size() bytes.
  void read(const TorchEntry& entry, std::span<std::byte> into) const;

 private:
  friend class TorchReader;
  ZipFile archive_;
  std::vector<TorchEntry> entries_;
  std::unordered_map<std::string, size_t> index_;
};

// How Hugging Face names the files of a folder.
constexpr ShardNames kTorchNames{"pytorch_model.bin", "pytorch_model.bin.index.json", ".bin"};

class TorchShards : public Shards<TorchFile> {
 public:
  explicit TorchShards(const std::string& path, FileSystem& fs = FileSystem::real())
      : Shards(path, kTorchNames, fs) {}
  void read(const TorchEntry& entry, std::span<std::byte> into) const { file_of(entry).read(entry, into); }
};

}  // namespace weft
