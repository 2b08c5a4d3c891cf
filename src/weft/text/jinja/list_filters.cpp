// Filters of lists and dicts: those that choose, order and combine elements.
#include <cmath>

#include "weft/text/jinja/expressions.h"
#include "weft/text/jinja/filters.h"
#include "weft/text/jinja/python_text.h"

namespace weft::jinja {
namespace {

// value.a.b.0, by a text "a.b.0" or a position; `otherwise`, unless null, stands for what is undefined.
Value attribute_path(const Value& value, const Value& path, const Value* otherwise) {
  Value found = value;
  if (path.is_text()) {
    for (const std::string& name : split_text(path.text(), ".", -1, false)) {
      const bool is_position =
          !name.empty() && std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
      found = is_position && name.size() < 10 ? item_of(found, int64_t(std::stoi(name))) : item_of(found, name);
    }
  } else {
    found = item_of(found, path);
  }
  return found.is_undefined() && otherwise ? *otherwise : found;
}

// How elements are compared: by an attribute, and text without regard to case unless that is asked for.
struct Key {
  const Value* attribute = nullptr;
  bool case_sensitive = false;

  Value operator()(Runtime& runtime, const Value& value) const {
    const Value key = attribute && !attribute->is_none() ? attribute_path(value, *attribute, nullptr) : value;
    runtime.charge(1);
    if (case_sensitive || !key.is_text()) return key;
    runtime.charge(key.weight());
    return lower_case(key.text());
  }
};

struct Keyed {
  Value key, value;
};
std::vector<Keyed> keyed(Runtime& runtime, const std::vector<Value>& values, const Key& key) {
  std::vector<Keyed> result;
  for (const Value& value : values) result.push_back({key(runtime, value), value});
  return result;
}

std::vector<Value> sorted_values(Runtime& runtime, const std::vector<Value>& values, const Key& key, bool reverse) {
  std::vector<Keyed> order = keyed(runtime, values, key);
  std::stable_sort(order.begin(), order.end(), [&](const Keyed& a, const Keyed& b) {
    if (equal(runtime, a.key, b.key)) return false;  // also of what has no order
    return reverse ? compare(runtime, b.key, a.key) < 0 : compare(runtime, a.key, b.key) < 0;
  });
  std::vector<Value> result;
  for (Keyed& one : order) result.push_back(std::move(one.value));
  return result;
}

Value list(Runtime& runtime, const Value& input, const Arguments&) {
  return Value::list(elements_of(runtime, input));
}

Value length(Runtime& runtime, const Value& input, const Arguments&) {
  runtime.charge(input.is_text() ? input.weight() : 1);
  return length_of(input);
}

Value first(Runtime& runtime, const Value& input, const Arguments&) {
  const std::vector<Value> values = elements_of(runtime, input);
  return values.empty() ? Value::undefined("there is no first element") : values.front();
}

Value last(Runtime& runtime, const Value& input, const Arguments&) {
  const std::vector<Value> values = elements_of(runtime, input);
  return values.empty() ? Value::undefined("there is no last element") : values.back();
}

Value reverse(Runtime& runtime, const Value& input, const Arguments&) {
  if (input.is_text()) {
    runtime.charge(input.text().size());
    return reversed_text(input.text());
  }
  std::vector<Value> values = elements_of(runtime, input);
  std::reverse(values.begin(), values.end());
  return Value::list(std::move(values));
}

Value join(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("join", arguments, {"d", "attribute"});
  const std::string separator = bound.text(runtime, 0, "");
  std::string text;
  bool is_first = true;
  for (const Value& value : elements_of(runtime, input)) {
    if (!std::exchange(is_first, false)) text += separator;
    const Value part = bound[1] && !bound[1]->is_none() ? attribute_path(value, *bound[1], nullptr) : value;
    text += text_of(runtime, part);
    runtime.require_text_size(text.size());
  }
  return text;
}

Value default_value(Runtime&, const Value& input, const Arguments& arguments) {
  const Bound bound("default", arguments, {"default_value", "boolean"});
  const bool is_missing = input.is_undefined() || (bound.flag(1, false) && !input.truthy());
  return !is_missing ? input : bound[0] ? *bound[0] : Value("");
}

Value items(Runtime& runtime, const Value& input, const Arguments&) {
  if (input.is_undefined()) return Value::list({});
  return find_method(Value::dict({}), "items")(runtime, input, {});
}

Value dict_sort(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = bound.text(runtime, 1, "key");
  if (by != "key" && by != "value") throw TemplateError("dictsort: by must be key or value");
  const Value position = by == "key" ? 0 : 1;
  const Key key{&position, bound.flag(0, false)};
  return Value::list(sorted_values(runtime, items(runtime, input, {}).items(), key, bound.flag(2, false)));
}

Value sort(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const Key key{bound[2], bound.flag(1, false)};
  return Value::list(sorted_values(runtime, elements_of(runtime, input), key, bound.flag(0, false)));
}

Value unique(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("unique", arguments, {"case_sensitive", "attribute"});
  std::vector<Keyed> seen;
  std::vector<Value> result;
  for (Keyed& one : keyed(runtime, elements_of(runtime, input), {bound[1], bound.flag(0, false)})) {
    const auto same = [&](const Keyed& known) { return equal(runtime, known.key, one.key); };
    if (std::any_of(seen.begin(), seen.end(), same)) continue;
    result.push_back(one.value);
    seen.push_back(std::move(one));
  }
  return Value::list(std::move(result));
}

template <bool wants_largest>
Value extreme(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(wants_largest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const std::vector<Keyed> values = keyed(runtime, elements_of(runtime, input), {bound[1], bound.flag(0, false)});
  const Keyed* best = nullptr;
  for (const Keyed& one : values) {
    if (best) {
      const int order = compare(runtime, one.key, best->key);
      if (wants_largest ? order <= 0 : order >= 0) continue;
    }
    best = &one;
  }
  return best ? best->value : Value::undefined("there is no element to choose from");
}

Value sum(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("sum", arguments, {"attribute", "start"});
  Value total = bound[1] ? *bound[1] : Value(0);
  for (const Value& value : elements_of(runtime, input)) {
    const bool has_attribute = bound[0] && !bound[0]->is_none();
    total = arithmetic(runtime, BinaryOperator::add, total,
                       has_attribute ? attribute_path(value, *bound[0], nullptr) : value);
  }
  return total;
}

// The arguments from `begin` on.
Arguments rest_of(const Arguments& arguments, size_t begin) {
  Arguments rest{{}, arguments.named};
  for (size_t i = begin; i < arguments.positional.size(); ++i) rest.positional.push_back(arguments.positional[i]);
  return rest;
}

// map('upper'), map(attribute='name', default='none')
Value map(Runtime& runtime, const Value& input, const Arguments& arguments) {
  std::vector<Value> result;
  if (input.is_none()) return Value::list({});  // as in Jinja
  if (arguments.positional.empty()) {
    const Bound bound("map", arguments, {"attribute", "default"}, 1);
    for (const Value& value : elements_of(runtime, input)) {
      runtime.charge(1);
      result.push_back(attribute_path(value, *bound[0], bound[1]));
    }
    return Value::list(std::move(result));
  }
  const std::string& name = arguments.positional[0].text();
  const Filter filter = find_filter(name);
  if (!filter) throw TemplateError("map: there is no filter '{}'", name);
  const Arguments rest = rest_of(arguments, 1);
  for (const Value& value : elements_of(runtime, input)) {
    runtime.charge(1);
    result.push_back(filter(runtime, value, rest));
  }
  return Value::list(std::move(result));
}

// select('odd'), reject('none'), selectattr('role', 'equalto', 'user'): without a test, what is true.
template <bool wanted, bool by_attribute>
Value choose(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const auto& given = arguments.positional;
  if (by_attribute && given.empty()) throw TemplateError("the name of an attribute was expected");
  Test test = nullptr;
  Arguments rest;
  if (given.size() > by_attribute) {
    const std::string& name = given[by_attribute].text();
    test = find_test(name);
    if (!test) throw TemplateError("there is no test '{}'", name);
    rest = rest_of(arguments, 1 + by_attribute);
  }
  std::vector<Value> result;
  if (input.is_none()) return Value::list({});  // as in Jinja
  for (const Value& value : elements_of(runtime, input)) {
    runtime.charge(1);
    const Value tested = by_attribute ? attribute_path(value, given[0], nullptr) : value;
    if ((test ? test(runtime, tested, rest) : tested.truthy()) == wanted) result.push_back(value);
  }
  return Value::list(std::move(result));
}

// Attributes only: not what a dict holds under the name.
Value attribute(Runtime&, const Value& input, const Arguments& arguments) {
  const Bound bound("attr", arguments, {"name"}, 1);
  const std::string& name = bound[0]->text();
  if (input.is_dict() && !find_method(input, name)) return Value::undefined(fmt::format("a dict has no '{}'", name));
  return attribute_of(input, name);
}

// [[1, 2], [3]] of [1, 2, 3]; the last one filled up when there is something to fill with.
Value batch(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("batch", arguments, {"linecount", "fill_with"}, 1);
  const int64_t size = bound.integer(0, 1);
  if (size < 1) throw TemplateError("batch: the number of elements must be at least 1");
  std::vector<Value> batches, current;
  for (Value& value : elements_of(runtime, input)) {
    if (int64_t(current.size()) == size) batches.push_back(Value::list(std::exchange(current, {})));
    current.push_back(std::move(value));
  }
  if (!current.empty() && bound[1] && !bound[1]->is_none()) {
    runtime.charge(uint64_t(size));
    current.resize(size_t(size), *bound[1]);
  }
  if (!current.empty()) batches.push_back(Value::list(std::move(current)));
  return Value::list(std::move(batches));
}

// [(key, [values])], ordered by key.
Value group_by(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  std::vector<Keyed> values;
  for (const Value& value : elements_of(runtime, input)) {
    runtime.charge(1);
    values.push_back({attribute_path(value, *bound[0], bound[1]), value});
  }
  const bool case_sensitive = bound.flag(2, false);
  const auto order_of = [&](const Value& key) {
    return case_sensitive || !key.is_text() ? key : Value(lower_case(key.text()));
  };
  std::stable_sort(values.begin(), values.end(), [&](const Keyed& a, const Keyed& b) {
    return compare(runtime, order_of(a.key), order_of(b.key)) < 0;
  });
  std::vector<Value> groups, members;
  for (size_t i = 0; i < values.size(); ++i) {
    members.push_back(values[i].value);
    const bool is_last =
        i + 1 == values.size() || !equal(runtime, order_of(values[i].key), order_of(values[i + 1].key));
    if (!is_last) continue;
    const Value& key = values[i + 1 - members.size()].key;
    groups.push_back(Value::tuple({key, Value::list(std::exchange(members, {}))}));
  }
  return Value::list(std::move(groups));
}

constexpr FilterRow kRows[] = {
    {"list", list},
    {"length", length},
    {"count", length},
    {"first", first},
    {"last", last},
    {"reverse", reverse},
    {"join", join},
    {"default", default_value},
    {"d", default_value},
    {"items", items},
    {"dictsort", dict_sort},
    {"sort", sort},
    {"unique", unique},
    {"min", extreme<false>},
    {"max", extreme<true>},
    {"sum", sum},
    {"map", map},
    {"select", choose<true, false>},
    {"reject", choose<false, false>},
    {"selectattr", choose<true, true>},
    {"rejectattr", choose<false, true>},
    {"attr", attribute},
    {"batch", batch},
    {"groupby", group_by},
};

}  // namespace

std::span<const FilterRow> list_filters() { return kRows; }

Filter find_filter(std::string_view name) {
  for (const auto rows : {text_filters(), list_filters()}) {
    for (const FilterRow& row : rows) {
      if (row.name == name) return row.filter;
    }
  }
  return nullptr;
}

std::vector<std::string> filter_names() {
  std::vector<std::string> names;
  for (const auto rows : {text_filters(), list_filters()}) {
    for (const FilterRow& row : rows) names.emplace_back(row.name);
  }
  return names;
}

}  // namespace weft::jinja
