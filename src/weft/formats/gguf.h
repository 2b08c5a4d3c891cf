// GGUF: the metadata and tensors of a llama.cpp model file, read through a mapping after every check.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/file.h"
#include "weft/formats/ggml_type.h"
#include "weft/tensor/shape.h"

namespace weft {

// The types of metadata values; the numbers are those of the file format.
enum class GgufType : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

// A value of the metadata, checked when the file was opened: a view, valid while the file is open. A getter of
// another type throws Error naming the file, the key, what was expected and what is there.
class GgufValue {
 public:
  GgufType type() const { return type_; }
  Bytes encoded() const { return encoded_; }  // as in the file, for writing it again

  int64_t integer(int64_t min = INT64_MIN, int64_t max = INT64_MAX) const;  // of any integer type
  double number() const;                                                    // an integer is one too
  bool boolean() const;
  std::string_view string() const;  // bytes as they are, UTF-8 or not

  // Of arrays; each checks the type of the elements as the getters above do.
  bool is_array_of(GgufType element) const;
  uint64_t size() const;
  std::vector<int64_t> integers() const;
  std::vector<double> numbers() const;
  std::vector<bool> booleans() const;
  std::vector<std::string_view> strings() const;
  std::vector<GgufValue> elements() const;

 private:
  friend class GgufFile;
  GgufValue(std::string where, GgufType type, Bytes encoded)
      : where_(std::move(where)), type_(type), encoded_(encoded) {}
  [[noreturn]] void wrong_type(std::string_view expected) const;
  template <class Visit>
  void for_each_element(Visit&& visit) const;

  std::string where_;  // "model.gguf: key 'general.name'"
  GgufType type_;
  Bytes encoded_;
};

// One tensor of a file.
struct GgufTensor {
  std::string name;
  GgmlType type = GgmlType::f32;
  std::vector<int64_t> dims;  // ggml's order: the dim of consecutive elements comes first
  uint64_t begin = 0;         // bytes, from the start of the data
  uint64_t size = 0;          // bytes

  int64_t numel() const;
  Shape shape() const;  // row-major, as weft and PyTorch write it: the reverse of dims
};

// An open file of version 2 or 3, little-endian. Opening checks all of it that can be checked without reading the
// data: counts, sizes and depth of the metadata are limited, no key or name appears twice, and every tensor lies
// inside the file, aligned, and overlaps no other. Throws Error naming the file, the key or tensor, and what is
// wrong.
class GgufFile {
 public:
  explicit GgufFile(const std::string& path, FileSystem& fs = FileSystem::real());

  const std::string& path() const { return file_.path(); }
  uint32_t version() const { return version_; }
  uint32_t alignment() const { return alignment_; }

  std::vector<std::string> keys() const;  // in the file's order
  bool has(std::string_view key) const { return find_key(key) != nullptr; }
  GgufValue at(std::string_view key) const;  // Error naming the nearest when absent
  // The key's value, or `otherwise` when it is absent.
  int64_t integer_or(std::string_view key, int64_t otherwise, int64_t min = INT64_MIN, int64_t max = INT64_MAX) const;
  double number_or(std::string_view key, double otherwise) const;
  bool boolean_or(std::string_view key, bool otherwise) const;
  std::string string_or(std::string_view key, std::string_view otherwise) const;

  const std::vector<GgufTensor>& tensors() const { return tensors_; }  // in the file's order
  const GgufTensor* find_tensor(std::string_view name) const;
  const GgufTensor& tensor(std::string_view name) const;  // Error naming the nearest when absent
  Bytes bytes(const GgufTensor& tensor) const;            // valid while the file is open

 private:
  struct Entry {
    std::string_view key;  // in the mapping
    GgufType type;
    Bytes encoded;
  };
  const Entry* find_key(std::string_view key) const;
  GgufValue value_of(const Entry& entry) const;
  void read_metadata(class GgufHeaderReader& header, uint64_t num_keys);
  void read_tensors(class GgufHeaderReader& header, uint64_t num_tensors);
  void check_layout() const;

  MappedFile file_;
  uint32_t version_ = 0, alignment_ = 0;
  std::vector<Entry> entries_;
  std::vector<GgufTensor> tensors_;
  std::vector<size_t> keys_by_name_, tensors_by_name_;
  uint64_t data_begin_ = 0;
};

}  // namespace weft
