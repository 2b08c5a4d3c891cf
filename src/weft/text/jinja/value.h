// Value: what templates compute with: Python's None, booleans, numbers, text, lists, tuples, dicts and callables.
#pragma once
#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "weft/base/error.h"

namespace weft::jinja {

class Runtime;
class Value;

// What is wrong while a template is read or rendered, without its name and line: Template adds those.
class TemplateError : public Error {
 public:
  using Error::Error;
};

// The arguments of a call: f(1, 2, width=3).
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// A value with behaviour: a function, a macro, a namespace, `loop`.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string describe() const = 0;                               // "a macro"
  virtual std::optional<Value> attribute(std::string_view name);          // nothing when there is none
  virtual Value call(Runtime& runtime, const Arguments& arguments);       // throws unless it can be called
  virtual bool set_attribute(std::string_view name, const Value& value);  // false when it cannot be
  virtual bool is_callable() const { return false; }
};

class List;
class Dict;

// Immutable, and cheap to copy: text, lists and dicts are shared.
class Value {
 public:
  Value() = default;  // undefined: prints as nothing, is false and empty; whatever else is done with it is an error
  Value(std::nullptr_t) : data_(nullptr) {}
  template <std::same_as<bool> T>
  Value(T value) : data_(value) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) Value(T value) : data_(int64_t(value)) {}
  Value(double value) : data_(value) {}
  Value(std::string text) : data_(std::make_shared<const std::string>(std::move(text))) {}
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(std::shared_ptr<const List> list) : data_(std::move(list)) {}
  Value(std::shared_ptr<const Dict> dict) : data_(std::move(dict)) {}
  Value(std::shared_ptr<Object> object) : data_(std::move(object)) {}
  static Value undefined(std::string why);  // `why`: "'x' is undefined"
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  static Value dict(std::vector<std::pair<Value, Value>> entries);  // of equal keys the last value counts
  static Value from_json(const nlohmann::ordered_json& json);
  static Value from_json(const nlohmann::json& json);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<std::nullptr_t>(data_); }
  bool is_boolean() const { return std::holds_alternative<bool>(data_); }
  bool is_integer() const { return std::holds_alternative<int64_t>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_number() const { return is_integer() || is_float() || is_boolean(); }  // True is 1, as in Python
  bool is_text() const { return std::holds_alternative<Text>(data_); }
  bool is_list() const { return std::holds_alternative<std::shared_ptr<const List>>(data_); }  // or a tuple
  bool is_tuple() const;
  bool is_dict() const { return std::holds_alternative<std::shared_ptr<const Dict>>(data_); }
  bool is_object() const { return std::holds_alternative<std::shared_ptr<Object>>(data_); }

  // Of values of the kind; the others throw TemplateError naming what was expected and what is there.
  const std::string& text() const;
  const std::vector<Value>& items() const;
  const Dict& dict() const;
  Object& object() const;
  std::shared_ptr<Object> shared_object() const { return std::get<std::shared_ptr<Object>>(data_); }
  int64_t integer() const;  // a boolean is one too
  double number() const;    // of any number

  bool truthy() const;
  std::string why_undefined() const;
  std::string describe() const;  // "a string", "None", "undefined"
  void require_defined() const;  // TemplateError saying why it is undefined

  // Levels of lists and dicts, and how many values there are in all when none are shared (text counts by its size):
  // what it costs to walk through. Both are limited when lists and dicts are made.
  int depth() const;
  uint64_t weight() const;

 private:
  using Text = std::shared_ptr<const std::string>;
  struct Undefined {
    Text why;
  };
  [[noreturn]] void wrong_kind(std::string_view expected) const;
  friend bool equal(const Value& a, const Value& b);

  std::variant<Undefined, std::nullptr_t, bool, int64_t, double, Text, std::shared_ptr<const List>,
               std::shared_ptr<const Dict>, std::shared_ptr<Object>>
      data_;
};

class List {
 public:
  List(std::vector<Value> items, bool is_tuple);
  std::vector<Value> items;
  bool is_tuple;
  int depth = 1;
  uint64_t weight = 1;
};

// In the order in which keys were first seen.
class Dict {
 public:
  explicit Dict(std::vector<std::pair<Value, Value>> entries);
  const std::vector<std::pair<Value, Value>>& entries() const { return entries_; }
  const Value* find(const Value& key) const;  // null when there is none
  const Value* find(std::string_view key) const;
  int depth = 1;
  uint64_t weight = 1;

 private:
  std::optional<size_t> position_of(const Value& key) const;

  std::vector<std::pair<Value, Value>> entries_;
  std::map<std::string, size_t, std::less<>> index_;  // of text keys
  std::vector<size_t> others_;                        // entries with other keys
};

bool equal(const Value& a, const Value& b);
// Negative, 0 or positive; TemplateError when the two have no order.
int compare(const Value& a, const Value& b);

// Python's str() and repr(); TemplateError when they become longer than `max_bytes`.
std::string to_text(const Value& value, uint64_t max_bytes = UINT64_MAX);
std::string repr(const Value& value, uint64_t max_bytes = UINT64_MAX);
std::string float_text(double value);  // Python's repr() of a float

struct JsonStyle {
  int indent = -1;  // < 0: one line
  std::string item_separator = ", ", key_separator = ": ";
  bool sort_keys = false, ensure_ascii = false;
  uint64_t max_bytes = UINT64_MAX;
};
// As Python's json.dumps writes it.
std::string to_json(const Value& value, const JsonStyle& style = {});

}  // namespace weft::jinja
