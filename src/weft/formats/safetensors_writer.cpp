// Writing safetensors: the header from the list of tensors, then their bytes.
#include <nlohmann/json.hpp>

#include <set>

#include "weft/base/json.h"
#include "weft/formats/safetensors.h"

namespace weft {
namespace {

constexpr size_t kDataAlignment = 64;  // the format asks for 8; a cache line suits mapped weights

}  // namespace

std::string safetensors_header(const std::vector<SafetensorsInfo>& tensors,
                               const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  const auto add = [&](const std::string& key, const nlohmann::json& value) {
    text += fmt::format("{}{}:{}", text.size() > 1 ? "," : "", to_json_text(key), to_json_text(value));
  };
  if (!metadata.empty()) add("__metadata__", metadata);
  std::set<std::string_view> names{"__metadata__"};
  uint64_t at = 0;
  for (const SafetensorsInfo& tensor : tensors) {
    check(names.insert(tensor.name).second, "two tensors of one file are named '{}'", tensor.name);
    const auto dims = tensor.shape.dims();
    nlohmann::json value;
    value["dtype"] = tensor.dtype_name.empty() ? safetensors_name_of(tensor.dtype) : tensor.dtype_name;
    value["shape"] = std::vector<int64_t>(dims.begin(), dims.end());
    value["data_offsets"] = {at, at + tensor.bytes()};
    add(tensor.name, value);
    at += tensor.bytes();
  }
  text += '}';
  while ((8 + text.size()) % kDataAlignment != 0) text += ' ';
  std::string size(8, '\0');
  store_le(std::as_writable_bytes(std::span(size)).data(), uint64_t(text.size()));
  return size + text;
}

SafetensorsWriter::SafetensorsWriter(FileSystem& fs, const std::string& path,
                                     const std::vector<SafetensorsInfo>& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : file_(fs, path) {
  const std::string header = safetensors_header(tensors, metadata);
  size_ = header.size();
  for (const SafetensorsInfo& tensor : tensors) size_ += tensor.bytes();
  file_.reserve(size_);
  file_.write(bytes_of(header));
}

void SafetensorsWriter::write(Bytes data) {
  const uint64_t left = size_ - file_.size();
  check(data.size() <= left, "{}: {} bytes more than its tensors have", file_.path(), data.size() - left);
  file_.write(data);
}

void SafetensorsWriter::finish() {
  check(file_.size() == size_, "{}: {} bytes of its tensors are missing", file_.path(), size_ - file_.size());
  file_.sync();
  file_.close();
}

}  // namespace weft
