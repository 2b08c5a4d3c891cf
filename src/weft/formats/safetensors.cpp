// The header of a safetensors file, distrusted.
#include "weft/formats/safetensors.h"

#include <nlohmann/json.hpp>

#include "weft/base/json.h"
#include "weft/base/nearest.h"

namespace weft {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr size_t kMaxTensors = 1 << 20;
constexpr size_t kMaxDims = 16;
constexpr std::string_view kMetadataKey = "__metadata__";

struct DTypeRow {
  std::string_view name;
  uint64_t bytes;
  std::optional<DType> dtype;
};
// Of the format's dtypes only those below a byte (F4, F6_*) are missing: they are refused.
constexpr DTypeRow kDTypes[] = {
    {"F64", 8, DType::f64}, {"F32", 4, DType::f32}, {"BF16", 2, DType::bf16}, {"F16", 2, DType::f16},
    {"I64", 8, DType::i64}, {"I32", 4, DType::i32}, {"U16", 2, DType::u16},   {"U8", 1, DType::u8},
    {"U64", 8, {}},         {"U32", 4, {}},         {"I16", 2, {}},           {"I8", 1, {}},
    {"BOOL", 1, {}},        {"F8_E4M3", 1, {}},     {"F8_E5M2", 1, {}},       {"F8_E8M0", 1, {}},
    {"F8_E4M3FNUZ", 1, {}}, {"F8_E5M2FNUZ", 1, {}}, {"C64", 8, {}},
};

const DTypeRow* find_dtype(std::string_view name) {
  for (const DTypeRow& row : kDTypes) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

std::string shape_text(const std::vector<int64_t>& dims) {
  std::string text;
  for (const int64_t dim : dims) text += fmt::format("{}{}", text.empty() ? "" : ", ", dim);
  return "[" + text + "]";
}

std::string clipped(const std::string& name) {
  constexpr size_t kLongest = 200;
  return name.size() <= kLongest ? name : name.substr(0, kLongest) + "...";
}

uint64_t unsigned_of(const Json& value, std::string_view where) {
  if (!value.is_number_unsigned()) throw Error("{} must be an integer of at least 0", where);
  return value.get<uint64_t>();
}

SafetensorsEntry parse_entry(const std::string& source, const std::string& name, const Json& value) {
  const std::string where = fmt::format("{}: tensor '{}'", source, clipped(name));
  const auto field = [&](const char* key) -> const Json& {
    const auto found = value.find(key);
    if (found == value.end()) throw Error("{} has no {}", where, key);
    return *found;
  };
  if (!value.is_object() || value.size() != 3) throw Error("{} must have dtype, shape and data_offsets", where);
  const Json &dtype = field("dtype"), &shape = field("shape"), &offsets = field("data_offsets");
  const DTypeRow* row = dtype.is_string() ? find_dtype(dtype.get_ref<const std::string&>()) : nullptr;
  if (!row) throw Error("{} has the dtype {}, which weft cannot read", where, clipped(to_json_text(dtype)));
  if (!shape.is_array() || shape.size() > kMaxDims)
    throw Error("{}: shape must have at most {} dims", where, kMaxDims);
  if (!offsets.is_array() || offsets.size() != 2) throw Error("{}: data_offsets must be [begin, end]", where);

  SafetensorsEntry entry{.name = name, .dtype_name = std::string(row->name)};
  std::optional<uint64_t> bytes = row->bytes;
  for (const Json& dim : shape) {
    const uint64_t size = unsigned_of(dim, where + ": each dim of shape");
    if (size > uint64_t(INT64_MAX)) bytes.reset();
    if (bytes) bytes = checked_mul(*bytes, size);
    entry.dims.push_back(int64_t(size));
  }
  if (!bytes) throw Error("{}: shape {} has more bytes than 64 bits can count", where, clipped(to_json_text(shape)));
  entry.begin = unsigned_of(offsets[0], where + ": data_offsets");
  entry.end = unsigned_of(offsets[1], where + ": data_offsets");
  if (entry.end < entry.begin || entry.end - entry.begin != *bytes) {
    throw Error("{}: {} {} takes {} bytes, but data_offsets are [{}, {}]", where, entry.dtype_name,
                shape_text(entry.dims), *bytes, entry.begin, entry.end);
  }
  return entry;
}

std::map<std::string, std::string> parse_metadata(const std::string& source, const Json& value) {
  std::map<std::string, std::string> metadata;
  if (!value.is_object()) throw Error("{}: {} must be an object of strings", source, kMetadataKey);
  for (const auto& item : value.items()) {
    if (!item.value().is_string()) throw Error("{}: {} must be an object of strings", source, kMetadataKey);
    metadata[item.key()] = item.value().get<std::string>();
  }
  return metadata;
}

}  // namespace

DType SafetensorsEntry::dtype() const {
  const auto found = safetensors_dtype(dtype_name);
  if (!found) throw Error("tensor '{}' has dtype {}, which weft does not compute with", name, dtype_name);
  return *found;
}

Shape SafetensorsEntry::shape() const {
  if (dims.size() > size_t(Shape::kMaxRank)) {
    throw Error("tensor '{}' has shape {}; weft's have at most {} dims", name, shape_text(dims), Shape::kMaxRank);
  }
  return Shape(std::span<const int64_t>(dims));
}

SafetensorsFile::SafetensorsFile(const std::string& path, FileSystem& fs) : file_(path, fs) {
  const uint64_t header_size = load_le<uint64_t>(file_.range(0, 8, "the size of the header").data());
  if (header_size > kMaxHeaderBytes) {
    throw Error("{}: the header would have {} bytes, more than the {} allowed: this is not a safetensors file", path,
                header_size, kMaxHeaderBytes);
  }
  const std::string_view header = text_of(file_.range(8, header_size, "the header"));
  if (!header.starts_with('{')) {
    throw Error("{}: the header does not start with '{{': this is not a safetensors file", path);
  }
  data_begin_ = 8 + header_size;
  const JsonLimits limits{.max_bytes = kMaxHeaderBytes, .max_depth = 8};
  for_each_json_member(header, path, limits, [&](const std::string& name, const Json& value) {
    if (name == kMetadataKey) {
      metadata_ = parse_metadata(path, value);
    } else {
      if (entries_.size() >= kMaxTensors) throw Error("{}: more than {} tensors", path, kMaxTensors);
      entries_.push_back(parse_entry(path, name, value));
    }
  });
  std::sort(entries_.begin(), entries_.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  check_layout();
  for (size_t i = 0; i < entries_.size(); ++i) index_[entries_[i].name] = i;
}

void SafetensorsFile::check_layout() const {
  const uint64_t available = file_.bytes().size() - data_begin_;
  uint64_t at = 0;
  for (const SafetensorsEntry& entry : entries_) {
    if (entry.begin != at) {
      throw Error(
          "{}: tensor '{}' begins at byte {} of the data, but those before it end at {}: tensors may neither "
          "overlap nor leave holes",
          path(), clipped(entry.name), entry.begin, at);
    }
    if (entry.end > available) {
      throw Error("{}: tensor '{}' ends at byte {} of the data, but the file has only {}: it was cut short", path(),
                  clipped(entry.name), entry.end, available);
    }
    at = entry.end;
  }
  if (at != available) throw Error("{}: {} bytes follow the last tensor", path(), available - at);
}

const SafetensorsEntry* SafetensorsFile::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &entries_[found->second];
}

const SafetensorsEntry& SafetensorsFile::at(const std::string& name) const {
  if (const SafetensorsEntry* entry = find(name)) return *entry;
  std::vector<std::string> names;
  for (const SafetensorsEntry& entry : entries_) names.push_back(entry.name);
  throw Error("{} has no tensor '{}'{}", path(), name, did_you_mean(name, names));
}

Bytes SafetensorsFile::bytes(const SafetensorsEntry& entry) const {
  return file_.range(data_begin_ + entry.begin, entry.size(), entry.name);
}

std::string_view safetensors_name_of(DType dtype) {
  for (const DTypeRow& row : kDTypes) {
    if (row.dtype == dtype) return row.name;
  }
  throw Error("no safetensors name for dtype {}", name_of(dtype));
}

std::optional<DType> safetensors_dtype(std::string_view name) {
  const DTypeRow* row = find_dtype(name);
  return row ? row->dtype : std::nullopt;
}

}  // namespace weft
