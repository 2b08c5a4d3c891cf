// Values: their kinds, truth, equality and order, as Python has them.
#include "weft/text/jinja/value.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace weft::jinja {
namespace {

constexpr int kMaxDepth = 100;
constexpr uint64_t kMaxWeight = uint64_t(16) << 20;
constexpr uint64_t kBytesPerWeight = 32;

void grow(int& depth, uint64_t& weight, const Value& part) {
  depth = std::max(depth, 1 + part.depth());
  weight += part.weight();
  if (depth > kMaxDepth) throw TemplateError("a value is nested deeper than {} levels", kMaxDepth);
  if (weight > kMaxWeight) throw TemplateError("a value holds more than {} values", kMaxWeight);
}

template <class Json>
Value value_of(const Json& json) {
  switch (json.type()) {
    case Json::value_t::boolean: return json.template get<bool>();
    case Json::value_t::number_integer: return json.template get<int64_t>();
    case Json::value_t::number_unsigned: {
      const uint64_t value = json.template get<uint64_t>();
      if (value > uint64_t(INT64_MAX)) throw TemplateError("the number {} is larger than templates can hold", value);
      return int64_t(value);
    }
    case Json::value_t::number_float: return json.template get<double>();
    case Json::value_t::string: return json.template get<std::string>();
    case Json::value_t::array: {
      std::vector<Value> items;
      for (const Json& item : json) items.push_back(value_of(item));
      return Value::list(std::move(items));
    }
    case Json::value_t::object: {
      std::vector<std::pair<Value, Value>> entries;
      for (const auto& [key, value] : json.items()) entries.emplace_back(key, value_of(value));
      return Value::dict(std::move(entries));
    }
    default: return nullptr;
  }
}

// Negative, 0 or positive; 1 when one of them is not a number.
int compare_numbers(const Value& a, const Value& b) {
  if (a.is_float() || b.is_float()) {
    const double x = a.number(), y = b.number();
    return x < y ? -1 : x == y ? 0 : 1;
  }
  const int64_t x = a.integer(), y = b.integer();
  return x < y ? -1 : x == y ? 0 : 1;
}

bool equal_dicts(const Dict& a, const Dict& b) {
  if (a.entries().size() != b.entries().size()) return false;
  for (const auto& [key, value] : a.entries()) {
    const Value* other = b.find(key);
    if (!other || !equal(value, *other)) return false;
  }
  return true;
}

}  // namespace

std::optional<Value> Object::attribute(std::string_view) { return {}; }
bool Object::set_attribute(std::string_view, const Value&) { return false; }
Value Object::call(Runtime&, const Arguments&) { throw TemplateError("{} cannot be called", describe()); }

Value Value::undefined(std::string why) {
  Value value;
  value.data_ = Undefined{std::make_shared<const std::string>(std::move(why))};
  return value;
}

Value Value::list(std::vector<Value> items) { return std::make_shared<const List>(std::move(items), false); }
Value Value::tuple(std::vector<Value> items) { return std::make_shared<const List>(std::move(items), true); }
Value Value::dict(std::vector<std::pair<Value, Value>> entries) {
  return std::make_shared<const Dict>(std::move(entries));
}
Value Value::from_json(const nlohmann::ordered_json& json) { return value_of(json); }
Value Value::from_json(const nlohmann::json& json) { return value_of(json); }

List::List(std::vector<Value> values, bool tuple) : items(std::move(values)), is_tuple(tuple) {
  for (const Value& item : items) grow(depth, weight, item);
}

Dict::Dict(std::vector<std::pair<Value, Value>> entries) {
  for (auto& [key, value] : entries) {
    if (key.is_dict() || (key.is_list() && !key.is_tuple()) || key.is_undefined()) {
      throw TemplateError("{} cannot be the key of a dict", key.describe());
    }
    if (const auto known = position_of(key)) {
      entries_[*known].second = std::move(value);
      continue;
    }
    if (key.is_text()) {
      index_[key.text()] = entries_.size();
    } else {
      others_.push_back(entries_.size());
    }
    entries_.emplace_back(std::move(key), std::move(value));
  }
  for (const auto& [key, value] : entries_) grow(depth, weight, key), grow(depth, weight, value);
}

const Value* Dict::find(std::string_view key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &entries_[found->second].second;
}

const Value* Dict::find(const Value& key) const {
  const auto position = position_of(key);
  return position ? &entries_[*position].second : nullptr;
}

std::optional<size_t> Dict::position_of(const Value& key) const {
  if (key.is_text()) {
    const auto found = index_.find(key.text());
    return found == index_.end() ? std::nullopt : std::optional(found->second);
  }
  for (const size_t i : others_) {
    if (equal(entries_[i].first, key)) return i;
  }
  return {};
}

bool Value::is_tuple() const { return is_list() && std::get<std::shared_ptr<const List>>(data_)->is_tuple; }

void Value::wrong_kind(std::string_view expected) const {
  require_defined();
  throw TemplateError("{} was expected, but there is {}", expected, describe());
}

const std::string& Value::text() const {
  if (!is_text()) wrong_kind("a string");
  return *std::get<Text>(data_);
}

const std::vector<Value>& Value::items() const {
  if (!is_list()) wrong_kind("a list");
  return std::get<std::shared_ptr<const List>>(data_)->items;
}

const Dict& Value::dict() const {
  if (!is_dict()) wrong_kind("a dict");
  return *std::get<std::shared_ptr<const Dict>>(data_);
}

Object& Value::object() const {
  if (!is_object()) wrong_kind("an object");
  return *std::get<std::shared_ptr<Object>>(data_);
}

int64_t Value::integer() const {
  if (is_boolean()) return std::get<bool>(data_);
  if (!is_integer()) wrong_kind("an integer");
  return std::get<int64_t>(data_);
}

double Value::number() const {
  if (is_float()) return std::get<double>(data_);
  if (!is_number()) wrong_kind("a number");
  return double(integer());
}

bool Value::truthy() const {
  if (is_boolean()) return std::get<bool>(data_);
  if (is_number()) return number() != 0;
  if (is_text()) return !text().empty();
  if (is_list()) return !items().empty();
  if (is_dict()) return !dict().entries().empty();
  return is_object();
}

std::string Value::why_undefined() const {
  const Undefined& undefined = std::get<Undefined>(data_);
  return undefined.why ? *undefined.why : "a value is undefined";
}

void Value::require_defined() const {
  if (is_undefined()) throw TemplateError("{}", why_undefined());
}

std::string Value::describe() const {
  if (is_undefined()) return "an undefined value";
  if (is_none()) return "None";
  if (is_boolean()) return "a boolean";
  if (is_integer()) return "an integer";
  if (is_float()) return "a float";
  if (is_text()) return "a string";
  if (is_list()) return is_tuple() ? "a tuple" : "a list";
  if (is_dict()) return "a dict";
  return object().describe();
}

int Value::depth() const {
  if (is_list()) return std::get<std::shared_ptr<const List>>(data_)->depth;
  return is_dict() ? dict().depth : 0;
}

uint64_t Value::weight() const {
  if (is_text()) return 1 + text().size() / kBytesPerWeight;
  if (is_list()) return std::get<std::shared_ptr<const List>>(data_)->weight;
  return is_dict() ? dict().weight : 1;
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.data_.index() != b.data_.index()) return false;
  if (a.is_text()) return a.text() == b.text();
  if (a.is_list()) {
    const auto &x = a.items(), &y = b.items();
    return a.is_tuple() == b.is_tuple() && x.size() == y.size() &&
           std::equal(x.begin(), x.end(), y.begin(), [](const Value& l, const Value& r) { return equal(l, r); });
  }
  if (a.is_dict()) return equal_dicts(a.dict(), b.dict());
  return !a.is_object() || &a.object() == &b.object();
}

int compare(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return compare_numbers(a, b);
  if (a.is_text() && b.is_text()) return a.text().compare(b.text());  // of UTF-8: the order of code points
  a.require_defined();
  b.require_defined();
  if (!a.is_list() || !b.is_list() || a.is_tuple() != b.is_tuple()) {
    throw TemplateError("{} and {} cannot be ordered", a.describe(), b.describe());
  }
  const auto &x = a.items(), &y = b.items();
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (!equal(x[i], y[i])) return compare(x[i], y[i]);
  }
  return x.size() < y.size() ? -1 : x.size() > y.size();
}

}  // namespace weft::jinja
