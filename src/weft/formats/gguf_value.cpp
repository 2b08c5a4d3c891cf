// Metadata values of GGUF: measured and checked once, then read as views.
#include <cmath>

#include "weft/base/excerpt.h"
#include "weft/formats/gguf_encoding.h"

namespace weft {
namespace {

struct TypeRow {
  std::string_view phrase;
  uint64_t bytes;
};
constexpr TypeRow kValueTypes[] = {
    {"a u8", 1},   {"an i8", 1},    {"a u16", 2},    {"an i16", 2}, {"a u32", 4},  {"an i32", 4}, {"an f32", 4},
    {"a bool", 1}, {"a string", 0}, {"an array", 0}, {"a u64", 8},  {"an i64", 8}, {"an f64", 8},
};

const TypeRow& row_of(GgufType type) { return kValueTypes[size_t(type)]; }

void check_booleans(Bytes bytes, const std::string& where) {
  for (const std::byte b : bytes) {
    if (b > std::byte(1)) throw Error("{} holds {} where only 0 and 1 are booleans", where, int(b));
  }
}

uint64_t encoded_array_size(Bytes rest, const std::string& where, int depth) {
  if (depth >= gguf::kMaxDepth) throw Error("{} has arrays nested deeper than {} levels", where, gguf::kMaxDepth);
  if (rest.size() < gguf::kArrayHeaderBytes) throw Error("{} is an array that was cut short", where);
  const GgufType element = gguf::checked_type(load_le<uint32_t>(rest.data()), where);
  const uint64_t count = load_le<uint64_t>(rest.data() + 4);
  const Bytes content = rest.subspan(gguf::kArrayHeaderBytes);
  const uint64_t fixed = gguf::fixed_size(element);
  const uint64_t least = fixed ? fixed : element == GgufType::string ? 8 : gguf::kArrayHeaderBytes;
  if (count > content.size() / least) {
    throw Error("{} is an array of {} elements, but only {} bytes follow: the file is damaged or was cut short",
                where, count, content.size());
  }
  if (element == GgufType::boolean) check_booleans(content.first(size_t(count)), where);
  if (fixed) return gguf::kArrayHeaderBytes + count * fixed;
  uint64_t at = 0;
  for (uint64_t i = 0; i < count; ++i) {
    at += gguf::encoded_size(element, content.subspan(size_t(at)), where, depth + 1);
  }
  return gguf::kArrayHeaderBytes + at;
}

}  // namespace

uint64_t gguf::fixed_size(GgufType type) { return row_of(type).bytes; }

GgufType gguf::checked_type(uint32_t number, const std::string& where) {
  if (number >= std::size(kValueTypes)) throw Error("{} has the unknown type {}", where, number);
  return GgufType(number);
}

std::string_view gguf::encoded_string(Bytes rest, uint64_t max_bytes, const std::string& where) {
  if (rest.size() < 8) throw Error("{} was cut short", where);
  const uint64_t length = load_le<uint64_t>(rest.data());
  if (length > max_bytes) throw Error("{} would have {} bytes; {} are allowed", where, length, max_bytes);
  if (length > rest.size() - 8) {
    throw Error("{} would have {} bytes, but only {} follow: the file is damaged or was cut short", where, length,
                rest.size() - 8);
  }
  return text_of(rest.subspan(8, size_t(length)));
}

uint64_t gguf::encoded_size(GgufType type, Bytes rest, const std::string& where, int depth) {
  if (type == GgufType::string) return 8 + encoded_string(rest, kMaxStringBytes, where).size();
  if (type == GgufType::array) return encoded_array_size(rest, where, depth);
  const uint64_t size = fixed_size(type);
  if (rest.size() < size) throw Error("{} was cut short", where);
  if (type == GgufType::boolean) check_booleans(rest.first(1), where);
  return size;
}

uint64_t gguf::aligned(uint64_t offset, uint64_t alignment) {
  return (offset + alignment - 1) / alignment * alignment;
}

void GgufValue::wrong_type(std::string_view expected) const {
  throw Error("{} must be {}, but is {}", where_, expected, row_of(type_).phrase);
}

int64_t GgufValue::integer(int64_t min, int64_t max) const {
  const auto as = [&]<class T>(T) -> int64_t { return int64_t(load_le<T>(encoded_.data())); };
  int64_t value = 0;
  switch (type_) {
    case GgufType::u8: value = as(uint8_t()); break;
    case GgufType::i8: value = as(int8_t()); break;
    case GgufType::u16: value = as(uint16_t()); break;
    case GgufType::i16: value = as(int16_t()); break;
    case GgufType::u32: value = as(uint32_t()); break;
    case GgufType::i32: value = as(int32_t()); break;
    case GgufType::i64: value = as(int64_t()); break;
    case GgufType::u64:
      value = as(uint64_t());
      if (value < 0) throw Error("{} is {}, more than 63 bits hold", where_, uint64_t(value));
      break;
    default: wrong_type("an integer");
  }
  if (value < min || value > max) throw Error("{} is {}, but must be from {} to {}", where_, value, min, max);
  return value;
}

double GgufValue::number() const {
  if (type_ == GgufType::f32) return double(load_le<float>(encoded_.data()));
  if (type_ == GgufType::f64) return load_le<double>(encoded_.data());
  if (type_ == GgufType::boolean || type_ == GgufType::string || type_ == GgufType::array) wrong_type("a number");
  return double(integer());
}

bool GgufValue::boolean() const {
  if (type_ != GgufType::boolean) wrong_type("a bool");
  return encoded_[0] != std::byte(0);
}

std::string_view GgufValue::string() const {
  if (type_ != GgufType::string) wrong_type("a string");
  return text_of(encoded_.subspan(8));
}

bool GgufValue::is_array_of(GgufType element) const {
  return type_ == GgufType::array && load_le<uint32_t>(encoded_.data()) == uint32_t(element);
}

uint64_t GgufValue::size() const {
  if (type_ != GgufType::array) wrong_type("an array");
  return load_le<uint64_t>(encoded_.data() + 4);
}

template <class Visit>
void GgufValue::for_each_element(Visit&& visit) const {
  const uint64_t count = size();
  GgufValue element(where_ + ": each element", GgufType(load_le<uint32_t>(encoded_.data())), {});
  Bytes rest = encoded_.subspan(gguf::kArrayHeaderBytes);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t bytes = gguf::encoded_size(element.type_, rest, element.where_, 1);
    element.encoded_ = rest.first(size_t(bytes));
    rest = rest.subspan(size_t(bytes));
    visit(element);
  }
}

std::vector<int64_t> GgufValue::integers() const {
  std::vector<int64_t> values;
  for_each_element([&](const GgufValue& element) { values.push_back(element.integer()); });
  return values;
}

std::vector<double> GgufValue::numbers() const {
  std::vector<double> values;
  for_each_element([&](const GgufValue& element) { values.push_back(element.number()); });
  return values;
}

std::vector<bool> GgufValue::booleans() const {
  std::vector<bool> values;
  for_each_element([&](const GgufValue& element) { values.push_back(element.boolean()); });
  return values;
}

std::vector<std::string_view> GgufValue::strings() const {
  std::vector<std::string_view> values;
  for_each_element([&](const GgufValue& element) { values.push_back(element.string()); });
  return values;
}

std::vector<GgufValue> GgufValue::elements() const {
  std::vector<GgufValue> values;
  for_each_element([&](const GgufValue& element) { values.push_back(element); });
  return values;
}

}  // namespace weft
