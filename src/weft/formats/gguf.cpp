// The header of a GGUF file, distrusted.
#include "weft/formats/gguf.h"

#include <numeric>

#include "weft/base/excerpt.h"
#include "weft/base/nearest.h"
#include "weft/formats/gguf_encoding.h"

namespace weft {

// Reads the header from front to back; every read is checked against what is left.
class GgufHeaderReader {
 public:
  GgufHeaderReader(const std::string& path, Bytes header) : path_(path), rest_(header), size_(header.size()) {}

  template <class T>
  T number(std::string_view what) {
    return load_le<T>(take(sizeof(T), what).data());
  }
  std::string_view string(uint64_t max_bytes, std::string_view what) {
    const std::string_view text = gguf::encoded_string(rest_, max_bytes, fmt::format("{}: {}", path_, what));
    rest_ = rest_.subspan(8 + text.size());
    return text;
  }
  Bytes value(GgufType type, const std::string& where) {
    return take(gguf::encoded_size(type, rest_, where), "a value");
  }
  // A number of things of which each takes at least `least` bytes.
  uint64_t count(uint64_t max, uint64_t least, std::string_view what) {
    const uint64_t n = number<uint64_t>(what);
    if (n > max) throw Error("{}: {} is {}; at most {} are read", path_, what, n, max);
    if (n > size_ / least) throw Error("{}: {} is {}, more than {} bytes can hold", path_, what, n, size_);
    return n;
  }
  uint64_t at() const { return size_ - rest_.size(); }

 private:
  Bytes take(uint64_t size, std::string_view what) {
    const auto taken = subrange(rest_, 0, size);
    if (!taken) throw Error("{}: it ends within {}: it is damaged or was cut short", path_, what);
    rest_ = rest_.subspan(size_t(size));
    return *taken;
  }

  const std::string& path_;
  Bytes rest_;
  uint64_t size_;
};

namespace {

void check_printable(const std::string& path, std::string_view kind, std::string_view name) {
  const bool is_printable = std::none_of(name.begin(), name.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7f;
  });
  if (name.empty()) throw Error("{}: a {} has no name", path, kind);
  if (!is_printable) throw Error("{}: the {} '{}' has a control character in its name", path, kind, excerpt(name));
}

uint32_t checked_version(const std::string& path, uint32_t version) {
  if (version == 2 || version == 3) return version;
  if (version != 0 && (version & 0xffff) == 0) {
    throw Error("{} is a big-endian GGUF file; convert it on the machine it was made for", path);
  }
  throw Error("{} is GGUF of version {}; versions 2 and 3 are read: convert it with a newer llama.cpp", path,
              version);
}

GgufTensor read_tensor(GgufHeaderReader& header, const std::string& path) {
  GgufTensor tensor{.name = std::string(header.string(gguf::kMaxNameBytes, "a tensor's name"))};
  check_printable(path, "tensor", tensor.name);
  const std::string where = fmt::format("{}: tensor '{}'", path, excerpt(tensor.name));
  const uint32_t rank = header.number<uint32_t>("a tensor's dims");
  if (rank > gguf::kMaxDims) throw Error("{} has {} dims; at most {} are read", where, rank, gguf::kMaxDims);
  std::optional<uint64_t> numel = 1;
  for (uint32_t i = 0; i < rank; ++i) {
    const uint64_t dim = header.number<uint64_t>("a tensor's dims");
    // Also when another dim is 0, so that every product of dims is a number of 63 bits.
    if (dim > uint64_t(INT64_MAX)) numel.reset();
    if (numel) numel = checked_mul(*numel, std::max<uint64_t>(dim, 1));
    tensor.dims.push_back(int64_t(dim));
  }
  const uint32_t type = header.number<uint32_t>("a tensor's type");
  const GgmlTypeInfo* info = find_ggml_type(type);
  if (!info) throw Error("{} has the unknown ggml type {}", where, type);
  tensor.type = info->type;
  const uint64_t row = tensor.dims.empty() ? 1 : uint64_t(tensor.dims[0]);
  if (row % info->block != 0) {
    throw Error("{} has rows of {} elements, but {} comes in blocks of {}", where, row, info->name, info->block);
  }
  const auto limit = numel && *numel <= uint64_t(INT64_MAX) ? ggml_bytes(info->type, *numel) : std::nullopt;
  if (!limit || *limit > uint64_t(INT64_MAX)) throw Error("{} has more bytes than 63 bits can count", where);
  tensor.size = *ggml_bytes(info->type, uint64_t(tensor.numel()));
  tensor.begin = header.number<uint64_t>("a tensor's offset");
  return tensor;
}

// The order of `items` by name; Error when two have the same.
template <class Items, class Name>
std::vector<size_t> order_by_name(const Items& items, Name&& name, const std::string& path, std::string_view kind) {
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return name(items[a]) < name(items[b]); });
  for (size_t i = 1; i < order.size(); ++i) {
    if (name(items[order[i]]) == name(items[order[i - 1]])) {
      throw Error("{}: the {} '{}' appears twice", path, kind, excerpt(name(items[order[i]])));
    }
  }
  return order;
}

template <class Items, class Name>
auto find_by_name(const Items& items, const std::vector<size_t>& order, Name&& name, std::string_view wanted)
    -> decltype(items.data()) {
  const auto found = std::lower_bound(order.begin(), order.end(), wanted,
                                      [&](size_t i, std::string_view text) { return name(items[i]) < text; });
  return found != order.end() && name(items[*found]) == wanted ? &items[*found] : nullptr;
}

constexpr auto kKeyOf = [](const auto& entry) { return entry.key; };
constexpr auto kNameOf = [](const GgufTensor& tensor) { return std::string_view(tensor.name); };

}  // namespace

int64_t GgufTensor::numel() const {
  int64_t n = 1;
  for (const int64_t dim : dims) n *= dim;
  return n;
}

Shape GgufTensor::shape() const { return Shape(std::vector<int64_t>(dims.rbegin(), dims.rend())); }

GgufFile::GgufFile(const std::string& path, FileSystem& fs) : file_(path, fs) {
  if (!text_of(file_.bytes()).starts_with(gguf::kMagic)) {
    throw Error("{} does not start with '{}': this is not a GGUF file", path, gguf::kMagic);
  }
  const uint64_t header_bytes = std::min<uint64_t>(file_.bytes().size(), gguf::kMaxHeaderBytes);
  GgufHeaderReader header(path, file_.bytes().first(size_t(header_bytes)));
  header.number<uint32_t>("the magic bytes");
  version_ = checked_version(path, header.number<uint32_t>("the version"));
  constexpr uint64_t kLeastTensor = 8 + 4 + 4 + 8, kLeastKey = 8 + 4 + 1;
  const uint64_t num_tensors = header.count(gguf::kMaxTensors, kLeastTensor, "the number of tensors");
  const uint64_t num_keys = header.count(gguf::kMaxKeys, kLeastKey, "the number of keys");
  read_metadata(header, num_keys);
  read_tensors(header, num_tensors);
  data_begin_ = gguf::aligned(header.at(), alignment_);
  check_layout();
}

void GgufFile::read_metadata(GgufHeaderReader& header, uint64_t num_keys) {
  for (uint64_t i = 0; i < num_keys; ++i) {
    const std::string_view key = header.string(gguf::kMaxKeyBytes, "the name of a key");
    check_printable(path(), "key", key);
    const std::string where = fmt::format("{}: key '{}'", path(), excerpt(key));
    const GgufType type = gguf::checked_type(header.number<uint32_t>("the type of a key"), where);
    entries_.push_back({key, type, header.value(type, where)});
  }
  keys_by_name_ = order_by_name(entries_, kKeyOf, path(), "key");
  const int64_t alignment = integer_or(gguf::kAlignmentKey, gguf::kDefaultAlignment, 1, gguf::kMaxAlignment);
  if ((alignment & (alignment - 1)) != 0) {
    throw Error("{}: {} is {}, but must be a power of two", path(), gguf::kAlignmentKey, alignment);
  }
  alignment_ = uint32_t(alignment);
}

void GgufFile::read_tensors(GgufHeaderReader& header, uint64_t num_tensors) {
  for (uint64_t i = 0; i < num_tensors; ++i) tensors_.push_back(read_tensor(header, path()));
  tensors_by_name_ = order_by_name(tensors_, kNameOf, path(), "tensor");
}

void GgufFile::check_layout() const {
  const uint64_t file_bytes = file_.bytes().size();
  const uint64_t available = file_bytes - std::min(file_bytes, data_begin_);
  std::vector<const GgufTensor*> order;
  for (const GgufTensor& tensor : tensors_) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const GgufTensor* a, const GgufTensor* b) {
    return std::tie(a->begin, a->size) < std::tie(b->begin, b->size);
  });
  uint64_t end = 0;
  for (const GgufTensor* tensor : order) {
    const auto problem = [&](const std::string& what) {
      throw Error("{}: tensor '{}' begins at byte {} of the data, {}", path(), excerpt(tensor->name), tensor->begin,
                  what);
    };
    if (tensor->begin % alignment_ != 0) problem(fmt::format("which is no multiple of {}", alignment_));
    if (tensor->begin < end) problem(fmt::format("but the one before it ends at {}: they overlap", end));
    if (tensor->begin > available || tensor->size > available - tensor->begin) {
      problem(fmt::format("and has {} bytes, but the file holds only {} bytes of data: it was cut short",
                          tensor->size, available));
    }
    end = tensor->begin + tensor->size;
  }
}

std::vector<std::string> GgufFile::keys() const {
  std::vector<std::string> keys;
  for (const Entry& entry : entries_) keys.emplace_back(entry.key);
  return keys;
}

const GgufFile::Entry* GgufFile::find_key(std::string_view key) const {
  return find_by_name(entries_, keys_by_name_, kKeyOf, key);
}

GgufValue GgufFile::value_of(const Entry& entry) const {
  return GgufValue(fmt::format("{}: key '{}'", path(), excerpt(entry.key)), entry.type, entry.encoded);
}

GgufValue GgufFile::at(std::string_view key) const {
  if (const Entry* entry = find_key(key)) return value_of(*entry);
  throw Error("{} has no key '{}'{}", path(), key, did_you_mean(key, keys()));
}

int64_t GgufFile::integer_or(std::string_view key, int64_t otherwise, int64_t min, int64_t max) const {
  const Entry* entry = find_key(key);
  return entry ? value_of(*entry).integer(min, max) : otherwise;
}

double GgufFile::number_or(std::string_view key, double otherwise) const {
  const Entry* entry = find_key(key);
  return entry ? value_of(*entry).number() : otherwise;
}

bool GgufFile::boolean_or(std::string_view key, bool otherwise) const {
  const Entry* entry = find_key(key);
  return entry ? value_of(*entry).boolean() : otherwise;
}

std::string GgufFile::string_or(std::string_view key, std::string_view otherwise) const {
  const Entry* entry = find_key(key);
  return std::string(entry ? value_of(*entry).string() : otherwise);
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  return find_by_name(tensors_, tensors_by_name_, kNameOf, name);
}

const GgufTensor& GgufFile::tensor(std::string_view name) const {
  if (const GgufTensor* found = find_tensor(name)) return *found;
  std::vector<std::string> names;
  for (const GgufTensor& candidate : tensors_) names.push_back(candidate.name);
  throw Error("{} has no tensor '{}'{}", path(), name, did_you_mean(name, names));
}

Bytes GgufFile::bytes(const GgufTensor& tensor) const {
  if (tensor.size == 0) return {};  // its place may be the end of a file without padding
  return file_.range(data_begin_ + tensor.begin, tensor.size, tensor.name);
}

}  // namespace weft
