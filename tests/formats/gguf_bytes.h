// GgufBytes: GGUF files put together value by value, so that tests can make each of them wrong.
#pragma once
#include <string>
#include <string_view>

#include "weft/formats/gguf.h"

namespace weft {

class GgufBytes {
 public:
  GgufBytes() = default;
  explicit GgufBytes(uint64_t num_tensors, uint64_t num_keys, uint32_t version = 3) {
    raw("GGUF").number(version).number(num_tensors).number(num_keys);
  }

  GgufBytes& raw(std::string_view text) {
    bytes_ += text;
    return *this;
  }
  template <class T>
  GgufBytes& number(T value) {
    std::string text(sizeof value, '\0');
    store_le(std::as_writable_bytes(std::span(text)).data(), value);
    return raw(text);
  }
  GgufBytes& string(std::string_view text) { return number(uint64_t(text.size())).raw(text); }

  GgufBytes& key(std::string_view name, GgufType type) { return string(name).number(uint32_t(type)); }
  template <class T>
  GgufBytes& key(std::string_view name, GgufType type, T value) {
    return key(name, type).number(value);
  }
  GgufBytes& string_key(std::string_view name, std::string_view value) {
    return key(name, GgufType::string).string(value);
  }
  GgufBytes& array(GgufType type, uint64_t count) { return number(uint32_t(type)).number(count); }
  GgufBytes& tensor(std::string_view name, std::vector<uint64_t> dims, uint32_t type, uint64_t offset) {
    string(name).number(uint32_t(dims.size()));
    for (const uint64_t dim : dims) number(dim);
    return number(type).number(offset);
  }
  GgufBytes& tensor(std::string_view name, std::vector<uint64_t> dims, GgmlType type, uint64_t offset) {
    return tensor(name, std::move(dims), uint32_t(type), offset);
  }
  // Zeros to the next multiple of `alignment`, then `count` bytes.
  GgufBytes& data(size_t count, size_t alignment = 32, char fill = 'x') {
    while (bytes_.size() % alignment != 0) bytes_ += '\0';
    bytes_ += std::string(count, fill);
    return *this;
  }

  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace weft
