// The bytes of a GGUF file, in the order of the format.
#include "weft/formats/gguf_writer.h"

#include <bit>

#include "weft/formats/gguf_encoding.h"

namespace weft {
namespace {

constexpr size_t kMaxWrittenNameBytes = 63;  // what ggml reads; its buffer has 64 with a zero

template <class T>
void put(std::string& text, T value) {
  text += text_of(std::as_bytes(std::span(&value, 1)));
}

void put_string(std::string& text, std::string_view value) {
  put(text, uint64_t(value.size()));
  text += value;
}

void check_info(const GgufInfo& info) {
  const GgmlTypeInfo& type = info_of(info.type);
  const int64_t row = info.shape.rank() == 0 ? 1 : info.shape[-1];
  if (row % type.block != 0) {
    throw Error("tensor '{}' of shape {} cannot be stored as {}: its rows must be a multiple of {} long", info.name,
                info.shape, type.name, type.block);
  }
  if (info.name.empty() || info.name.size() > kMaxWrittenNameBytes) {
    throw Error("the tensor name '{}' cannot be stored in a GGUF file: it must have 1 to {} bytes", info.name,
                kMaxWrittenNameBytes);
  }
}

std::string header_of(const std::vector<GgufInfo>& tensors, const GgufMetadata& metadata) {
  std::string text(gguf::kMagic);
  put(text, gguf::kVersion);
  put(text, uint64_t(tensors.size()));
  put(text, metadata.size());
  text += metadata.encoded();
  std::set<std::string_view> names;
  uint64_t at = 0;
  for (const GgufInfo& info : tensors) {
    check_info(info);
    check(names.insert(info.name).second, "two tensors of one file are named '{}'", info.name);
    put_string(text, info.name);
    put(text, uint32_t(info.shape.rank()));
    for (int dim = info.shape.rank() - 1; dim >= 0; --dim) put(text, uint64_t(info.shape[dim]));
    put(text, uint32_t(info.type));
    put(text, at);
    at = gguf::aligned(at + info.bytes(), metadata.alignment());
  }
  if (!tensors.empty()) text.resize(gguf::aligned(text.size(), metadata.alignment()), '\0');
  return text;
}

}  // namespace

void GgufMetadata::set_string(std::string_view key, std::string_view value) {
  std::string encoded;
  put_string(encoded, value);
  add(key, GgufType::string, encoded);
}

void GgufMetadata::set_strings(std::string_view key, std::span<const std::string> values) {
  std::string encoded;
  for (const std::string& value : values) put_string(encoded, value);
  add_array(key, GgufType::string, values.size(), encoded);
}

void GgufMetadata::add_array(std::string_view key, GgufType type, uint64_t count, std::string_view encoded_values) {
  std::string encoded;
  put(encoded, uint32_t(type));
  put(encoded, count);
  add(key, GgufType::array, encoded.append(encoded_values));
}

void GgufMetadata::add(std::string_view key, GgufType type, std::string_view encoded_value) {
  check(!key.empty() && key.size() <= gguf::kMaxKeyBytes, "a key of {} bytes", key.size());
  check(keys_.insert(std::string(key)).second, "the key '{}' is set twice", key);
  if (key == gguf::kAlignmentKey) {
    check(type == GgufType::u32, "{} is a u32", key);
    alignment_ = load_le<uint32_t>(bytes_of(encoded_value).data());
    check(std::has_single_bit(alignment_) && alignment_ <= gguf::kMaxAlignment, "{} is {}", key, alignment_);
  }
  put_string(encoded_, key);
  put(encoded_, uint32_t(type));
  encoded_ += encoded_value;
}

GgufWriter::GgufWriter(FileSystem& fs, const std::string& path, const std::vector<GgufInfo>& tensors,
                       const GgufMetadata& metadata)
    : header_(header_of(tensors, metadata)), file_(fs, path), alignment_(metadata.alignment()) {
  uint64_t at = header_.size();
  for (const GgufInfo& info : tensors) {
    ends_.push_back(at + info.bytes());
    at = gguf::aligned(ends_.back(), alignment_);
  }
  file_.reserve(at);
  file_.write(bytes_of(header_));
  header_ = {};
}

void GgufWriter::write(Bytes data) {
  while (!data.empty()) {
    pass_finished_tensors();
    check(current_ < ends_.size(), "{}: {} bytes more than its tensors have", file_.path(), data.size());
    const size_t now = size_t(std::min<uint64_t>(data.size(), ends_[current_] - file_.size()));
    file_.write(data.first(now));
    data = data.subspan(now);
  }
}

// Also those without elements, which end where they begin.
void GgufWriter::pass_finished_tensors() {
  while (current_ < ends_.size() && file_.size() == ends_[current_]) {
    const std::string padding(size_t(gguf::aligned(file_.size(), alignment_) - file_.size()), '\0');
    file_.write(bytes_of(padding));
    ++current_;
  }
}

void GgufWriter::finish() {
  pass_finished_tensors();
  if (current_ < ends_.size()) {
    throw Error("{}: {} bytes of its tensors are missing", file_.path(), ends_.back() - file_.size());
  }
  file_.sync();
  file_.close();
}

}  // namespace weft
