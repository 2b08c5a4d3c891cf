// Library: the filters, tests, methods and global functions that templates can use, and how their arguments are
// bound.
#pragma once
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "weft/text/jinja/runtime.h"
#include "weft/text/jinja/value.h"

namespace weft::jinja {

// `input | name(arguments)`, `input is name(arguments)`, `input.name(arguments)`.
using Filter = Value (*)(Runtime& runtime, const Value& input, const Arguments& arguments);
using Test = bool (*)(Runtime& runtime, const Value& input, const Arguments& arguments);

// Null for an unknown name.
Filter find_filter(std::string_view name);
Test find_test(std::string_view name);
Filter find_method(const Value& input, std::string_view name);

std::vector<std::string> filter_names();
std::vector<std::string> test_names();

// range, dict, namespace, raise_exception, strftime_now, ...
void define_globals(Scope& scope);

// Arguments by the names of parameters; TemplateError when one is unknown, given twice, too many, or missing.
class Bound {
 public:
  Bound(std::string_view function, const Arguments& arguments, std::initializer_list<std::string_view> names,
        size_t num_required = 0);
  Bound(std::string_view, Arguments&&, std::initializer_list<std::string_view>,
        size_t = 0) = delete;                                     // refers to them
  const Value* operator[](size_t i) const { return values_[i]; }  // null when it is not given
  bool flag(size_t i, bool otherwise) const { return values_[i] ? values_[i]->truthy() : otherwise; }
  int64_t integer(size_t i, int64_t otherwise) const { return values_[i] ? values_[i]->integer() : otherwise; }
  std::string text(Runtime& runtime, size_t i, std::string_view otherwise) const;
  // Nothing when it is not given or None.
  std::optional<std::string_view> optional_text(size_t i) const;

 private:
  std::vector<const Value*> values_;
};

// What a `for` goes through: elements, keys, characters; none of what is undefined. Charges for them.
std::vector<Value> elements_of(Runtime& runtime, const Value& value);

// What `value.name` and `value[key]` are; undefined when there is none.
Value attribute_of(const Value& value, std::string_view name);
Value item_of(const Value& value, const Value& key);
bool contains(Runtime& runtime, const Value& container, const Value& item);  // item in container

int64_t length_of(const Value& value);

// Python's str() of a value, paid for by its size and no longer than the limits allow.
std::string text_of(Runtime& runtime, const Value& value);

// equal() and compare(), paid for by the size of the values.
bool equal(Runtime& runtime, const Value& a, const Value& b);
int compare(Runtime& runtime, const Value& a, const Value& b);

// Python's "..." % value.
std::string format_percent(Runtime& runtime, std::string_view format, const Value& value);
// Python's "...".format(...), without conversions and nested fields.
std::string format_braces(Runtime& runtime, std::string_view format, const Arguments& arguments);

}  // namespace weft::jinja
