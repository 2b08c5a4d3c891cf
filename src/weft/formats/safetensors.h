// Safetensors: named tensors in one file, read through a mapping after every check, written as a stream.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "weft/base/file.h"
#include "weft/tensor/dtype.h"
#include "weft/tensor/shape.h"

namespace weft {

// One tensor of a file. Any dtype and rank of the format can be listed; dtype() and shape() throw Error naming the
// tensor when weft's tensors cannot hold it.
struct SafetensorsEntry {
  std::string name;
  std::string dtype_name;  // as in the file: "F32", "BF16", "F8_E4M3", ...
  std::vector<int64_t> dims;
  uint64_t begin = 0, end = 0;  // bytes, from the start of the data

  DType dtype() const;
  Shape shape() const;
  uint64_t size() const { return end - begin; }
};

// An open file. Opening checks all of it that can be checked without reading the data: the header is JSON of limited
// size and depth without duplicate keys, every size equals its shape, and the tensors cover the data exactly, without
// hole or overlap. Throws Error naming the file, the tensor and what is wrong.
class SafetensorsFile {
 public:
  using Entry = SafetensorsEntry;
  explicit SafetensorsFile(const std::string& path, FileSystem& fs = FileSystem::real());

  const std::string& path() const { return file_.path(); }
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }  // in the order of their bytes
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  const SafetensorsEntry* find(const std::string& name) const;
  const SafetensorsEntry& at(const std::string& name) const;  // Error naming the nearest when absent
  // Valid while the file is open. Not aligned beyond what the file's writer chose: 8 bytes at best.
  Bytes bytes(const SafetensorsEntry& entry) const;

 private:
  void check_layout() const;

  MappedFile file_;
  std::vector<SafetensorsEntry> entries_;
  std::unordered_map<std::string, size_t> index_;
  std::map<std::string, std::string> metadata_;
  uint64_t data_begin_ = 0;
};

// What a file will hold, before its data exists.
struct SafetensorsInfo {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::string_view dtype_name = {};  // in the file, where weft has no such dtype: "F8_E4M3"; lasts as long as this
  uint64_t bytes() const { return uint64_t(shape.numel()) * size_of(dtype); }
};

// The first bytes of a file, up to where data begins: a multiple of 64. Names must be distinct.
std::string safetensors_header(const std::vector<SafetensorsInfo>& tensors,
                               const std::map<std::string, std::string>& metadata = {});

// Writes the header at once, then the data of all tensors in the order given, in pieces of any size; finish() checks
// that nothing is missing and makes the file durable. The file must not exist yet.
class SafetensorsWriter {
 public:
  SafetensorsWriter(FileSystem& fs, const std::string& path, const std::vector<SafetensorsInfo>& tensors,
                    const std::map<std::string, std::string>& metadata = {});
  void write(Bytes data);
  void finish();

 private:
  OutputFile file_;
  uint64_t size_;  // of the finished file
};

// "F32" for DType::f32, and back; nothing for those weft does not compute with.
std::string_view safetensors_name_of(DType dtype);
std::optional<DType> safetensors_dtype(std::string_view name);

}  // namespace weft
