// HfFields: reading and writing of single keys.
#include "weft/pretrained/hf_fields.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/pretrained/python_json.h"

namespace weft {
namespace {

constexpr int64_t kMostOfField = int64_t(1) << 24;
constexpr double kLargest = 1e12;

// What Python writes for Infinity and NaN (python_json.h) is an object to JSON.
JsonView number_at(const JsonView& at, const char* key) {
  const JsonView value = at.at(key);
  if (value.is_object() && value.has(kPythonNumber))
    throw Error("{}: {} = {} is no number: write one", at.source(), value.path(), value.at(kPythonNumber).string());
  return value;
}

int64_t size_at(const JsonView& at, const char* key) { return number_at(at, key).integer(0, kMostOfField); }

double finite(const JsonView& at, const char* key) {
  const double value = number_at(at, key).number();
  if (!(std::abs(value) <= kLargest)) throw Error("{}: {} = {} is out of range", at.source(), at[key].path(), value);
  return value;
}

// As people write it: 1e-05, not 9.999999747378752e-06.
double shortest(float value) { return std::strtod(fmt::format("{}", value).c_str(), nullptr); }

}  // namespace

void HfFields::size(const char* key, int64_t& value) {
  if (to_)
    (*to_)[key] = value;
  else
    note(key, &value), value = size_at(*from_, key);
}

void HfFields::size(const char* key, int64_t& value, int64_t otherwise) {
  if (to_)
    (*to_)[key] = value;
  else
    note(key, &value), value = from_->has(key) ? size_at(*from_, key) : otherwise;
}

void HfFields::number(const char* key, float& value, double otherwise) {
  if (to_)
    (*to_)[key] = shortest(value);
  else
    note(key, &value), value = float(from_->has(key) ? finite(*from_, key) : otherwise);
}

void HfFields::number(const char* key, double& value, double otherwise) {
  if (to_)
    (*to_)[key] = value;
  else
    note(key, &value), value = from_->has(key) ? finite(*from_, key) : otherwise;
}

void HfFields::numbers(const char* key, std::vector<double>& values) {
  if (to_) {
    (*to_)[key] = values;
    return;
  }
  constexpr int64_t kMost = 1 << 16;
  const JsonView array = from_->at(key);
  if (array.size() > kMost) throw Error("{}: {} has more than {} numbers", array.source(), array.path(), kMost);
  note(key, &values), values.clear();
  for (int64_t i = 0; i < array.size(); ++i) values.push_back(array.at(i).number());
}

void HfFields::flag(const char* key, bool& value, bool otherwise) {
  if (to_)
    (*to_)[key] = value;
  else
    note(key, &value), value = from_->boolean_or(key, otherwise);
}

void HfFields::only(const char* key, bool value) {
  if (to_)
    (*to_)[key] = value;
  else if (from_->boolean_or(key, value) != value)
    refuse(key, fmt::format("only {} is", value));
}

void HfFields::only(const char* key, int64_t value) {
  if (to_)
    (*to_)[key] = value;
  else if (from_->integer_or(key, value) != value)
    refuse(key, fmt::format("only {} is", value));
}

void HfFields::only(const char* key, std::string_view value) {
  if (to_)
    (*to_)[key] = value;
  else if (from_->string_or(key, std::string(value)) != value)
    refuse(key, fmt::format("only {} is", value));
}

void HfFields::only_null(const char* key) {
  if (to_)
    (*to_)[key] = nullptr;
  else if (from_->has(key))
    refuse(key, "only null is");
}

bool HfFields::is_null(const char* key) const {
  return from_ && from_->is_object() && !from_->has(key) && from_->raw().contains(key);
}

const char* HfFields::key_of(const void* value) const {
  for (const auto& [place, key] : places_)
    if (place == value) return key.c_str();
  return nullptr;
}

void HfFields::add_keys_of(const HfFields& inner) {
  places_.insert(places_.end(), inner.places_.begin(), inner.places_.end());
}

std::string HfFields::text_or(const char* key, std::string_view otherwise) const {
  return from_->string_or(key, std::string(otherwise));
}

void HfFields::write(const char* key, std::string_view value) { (*to_)[key] = value; }

void HfFields::refuse(const char* key, std::string_view what) const {
  if (!from_) cannot_write(key);
  throw Error("{}: {} = {} is not supported; {}", from_->source(), path_of(key), to_json_text((*from_)[key].raw()),
              what);
}

void HfFields::refuse(const char* key, const std::string& value, const std::vector<std::string_view>& known) const {
  throw Error("{}: {} = \"{}\" is not supported; there are {}", from_->source(), path_of(key), value,
              fmt::join(known, ", "));
}

void HfFields::cannot_write(const char* key) { throw Error("the model's {} has no name in config.json", key); }

}  // namespace weft
