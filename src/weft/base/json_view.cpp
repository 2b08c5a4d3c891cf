// Typed getters over a parsed document.
#include <nlohmann/json.hpp>

#include "weft/base/file.h"
#include "weft/base/json.h"
#include "weft/base/nearest.h"

namespace weft {
namespace {

using Json = nlohmann::json;

const Json& null_json() {
  static const Json null;
  return null;
}

std::string excerpt(const Json& value) {
  constexpr size_t kLongest = 60;
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  if (value.is_object()) return fmt::format("an object of {}", value.size());
  std::string text = to_json_text(value);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

}  // namespace

bool JsonView::is_null() const { return value_->is_null(); }
bool JsonView::is_object() const { return value_->is_object(); }
bool JsonView::is_array() const { return value_->is_array(); }
bool JsonView::is_string() const { return value_->is_string(); }
bool JsonView::is_number() const { return value_->is_number(); }
bool JsonView::is_bool() const { return value_->is_boolean(); }

const std::string& JsonView::source() const { return document_->source(); }

void JsonView::wrong_type(std::string_view expected) const {
  throw JsonValueError(path_, fmt::format("{}: {} must be {}, but it is {}", document_->source(),
                                          path_.empty() ? "the outermost value" : path_, expected, excerpt(*value_)));
}

int64_t JsonView::size() const {
  if (!is_array() && !is_object()) wrong_type("an array or an object");
  return int64_t(value_->size());
}

bool JsonView::has(std::string_view key) const { return !(*this)[key].is_null(); }

JsonView JsonView::operator[](std::string_view key) const {
  if (!is_object()) wrong_type("an object");
  const auto found = value_->find(key);
  return {*document_, found == value_->end() ? null_json() : *found,
          path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key)};
}

JsonView JsonView::at(std::string_view key) const {
  const JsonView value = (*this)[key];
  if (!value_->contains(key)) {
    throw JsonValueError(
        value.path_, fmt::format("{}: {} is missing{}", document_->source(), value.path_, did_you_mean(key, keys())));
  }
  return value;
}

JsonView JsonView::at(int64_t index) const {
  if (!is_array()) wrong_type("an array");
  if (index < 0 || index >= size()) {
    throw JsonValueError(
        path_, fmt::format("{}: {}[{}] is missing, the array has {}", document_->source(), path_, index, size()));
  }
  return {*document_, (*value_)[size_t(index)], fmt::format("{}[{}]", path_, index)};
}

std::vector<std::string> JsonView::keys() const {
  if (!is_object()) wrong_type("an object");
  std::vector<std::string> names;
  for (const auto& item : value_->items()) names.push_back(item.key());
  return names;
}

int64_t JsonView::integer(int64_t min, int64_t max) const {
  const bool fits = value_->is_number_integer() &&
                    (!value_->is_number_unsigned() || value_->get<uint64_t>() <= uint64_t(INT64_MAX));
  const int64_t value = fits ? value_->get<int64_t>() : 0;
  if (fits && value >= min && value <= max) return value;
  if (min == INT64_MIN && max == INT64_MAX) wrong_type("an integer of 64 bits");
  if (max == INT64_MAX) wrong_type(fmt::format("an integer of at least {}", min));
  wrong_type(fmt::format("an integer from {} to {}", min, max));
}

double JsonView::number() const {
  if (!is_number()) wrong_type("a number");
  return value_->get<double>();
}

bool JsonView::boolean() const {
  if (!is_bool()) wrong_type("true or false");
  return value_->get<bool>();
}

std::string JsonView::string() const {
  if (!is_string()) wrong_type("a string");
  return value_->get<std::string>();
}

int64_t JsonView::integer_or(std::string_view key, int64_t otherwise, int64_t min, int64_t max) const {
  return has(key) ? at(key).integer(min, max) : otherwise;
}
double JsonView::number_or(std::string_view key, double otherwise) const {
  return has(key) ? at(key).number() : otherwise;
}
bool JsonView::boolean_or(std::string_view key, bool otherwise) const {
  return has(key) ? at(key).boolean() : otherwise;
}
std::string JsonView::string_or(std::string_view key, std::string otherwise) const {
  return has(key) ? at(key).string() : otherwise;
}

JsonDocument::JsonDocument(std::string source, std::unique_ptr<Json> value)
    : source_(std::move(source)), value_(std::move(value)) {}
JsonDocument::~JsonDocument() = default;
JsonDocument::JsonDocument(JsonDocument&&) noexcept = default;

JsonDocument JsonDocument::parse(std::string_view text, std::string source, const JsonLimits& limits) {
  auto value = std::make_unique<Json>(parse_json(text, source, limits));
  return {std::move(source), std::move(value)};
}

JsonDocument JsonDocument::load(const std::string& path, const JsonLimits& limits) {
  return parse(read_file(path, limits.max_bytes), path, limits);
}

JsonView JsonDocument::root() const { return {*this, *value_, ""}; }

}  // namespace weft
