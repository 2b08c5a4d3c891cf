// GGUF written as a stream: metadata and the table of tensors at once, then their data in order.
#pragma once
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/file.h"
#include "weft/formats/gguf.h"

namespace weft {

// The GgufType of a C++ type.
template <class T>
constexpr GgufType gguf_type_of() {
  if constexpr (std::is_same_v<T, bool>) return GgufType::boolean;
  if constexpr (std::is_same_v<T, float>) return GgufType::f32;
  if constexpr (std::is_same_v<T, double>) return GgufType::f64;
  if constexpr (std::is_same_v<T, uint8_t>) return GgufType::u8;
  if constexpr (std::is_same_v<T, int8_t>) return GgufType::i8;
  if constexpr (std::is_same_v<T, uint16_t>) return GgufType::u16;
  if constexpr (std::is_same_v<T, int16_t>) return GgufType::i16;
  if constexpr (std::is_same_v<T, uint32_t>) return GgufType::u32;
  if constexpr (std::is_same_v<T, int32_t>) return GgufType::i32;
  if constexpr (std::is_same_v<T, uint64_t>) return GgufType::u64;
  if constexpr (std::is_same_v<T, int64_t>) return GgufType::i64;
}

// The metadata of a file to be written, in the order in which it is set. Each key is set once.
class GgufMetadata {
 public:
  // The type is written out at the call, since it decides what is in the file: set<uint32_t>("llama.block_count", 5).
  template <class T>
  void set(std::string_view key, std::type_identity_t<T> value) {
    add(key, gguf_type_of<T>(), encoded_bytes(std::span<const T>(&value, 1)));
  }
  template <class T>
  void set_array(std::string_view key, std::span<const std::type_identity_t<T>> values) {
    add_array(key, gguf_type_of<T>(), values.size(), encoded_bytes(values));
  }
  void set_string(std::string_view key, std::string_view value);
  void set_strings(std::string_view key, std::span<const std::string> values);
  void set_copy(std::string_view key, const GgufValue& value) { add(key, value.type(), text_of(value.encoded())); }

  uint64_t size() const { return keys_.size(); }
  bool has(std::string_view key) const { return keys_.contains(key); }
  uint32_t alignment() const { return alignment_; }        // of the data: general.alignment, or 32
  const std::string& encoded() const { return encoded_; }  // as it will be in the file

 private:
  template <class T>
  static std::string encoded_bytes(std::span<const T> values) {
    return std::string(text_of(std::as_bytes(values)));
  }
  void add(std::string_view key, GgufType type, std::string_view encoded_value);
  void add_array(std::string_view key, GgufType type, uint64_t count, std::string_view encoded_values);

  std::string encoded_;
  std::set<std::string, std::less<>> keys_;
  uint32_t alignment_ = 32;
};

// What a file will hold, before its data exists.
struct GgufInfo {
  std::string name;
  GgmlType type = GgmlType::f32;
  Shape shape;  // row-major
  uint64_t bytes() const { return *ggml_bytes(type, uint64_t(shape.numel())); }
};

// Writes the header at once, then the data of all tensors in the order given, in pieces of any size: what is needed
// to align them is put between. finish() checks that nothing is missing and makes the file durable. The file must not
// exist yet.
class GgufWriter {
 public:
  GgufWriter(FileSystem& fs, const std::string& path, const std::vector<GgufInfo>& tensors,
             const GgufMetadata& metadata);
  void write(Bytes data);
  void finish();

 private:
  void pass_finished_tensors();

  std::string header_;  // made, and with it all checked, before there is a file
  OutputFile file_;
  uint32_t alignment_;
  std::vector<uint64_t> ends_;  // of tensors, in the file
  size_t current_ = 0;          // the tensor being written
};

}  // namespace weft
