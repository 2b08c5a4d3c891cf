// Methods of strings, lists and dicts. Those that would change a value do not exist: values cannot be changed.
#include "weft/text/jinja/library.h"
#include "weft/text/jinja/python_text.h"

namespace weft::jinja {
namespace {

// Before a search from the end, or among a set of characters, which has no fast way.
void pay_for_slow_search(Runtime& runtime, std::string_view text, std::string_view part) {
  runtime.charge(text.size() * part.size() / 1024);
}

// Before a method that writes up to `bytes` of text.
void pay_for_text(Runtime& runtime, uint64_t bytes) {
  runtime.require_text_size(bytes);
  runtime.charge(bytes / 16);
}

Value list_of(std::vector<std::string> texts) {
  std::vector<Value> values;
  for (std::string& text : texts) values.emplace_back(std::move(text));
  return Value::list(std::move(values));
}

template <Side side>
Value strip(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound("strip", arguments, {"chars"});
  const auto characters = bound.optional_text(0);
  runtime.charge(self.text().size() / 16);
  if (characters) pay_for_slow_search(runtime, self.text(), *characters);
  return stripped(self.text(), side, characters);
}

template <bool from_right>
Value split(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound("split", arguments, {"sep", "maxsplit"});
  const auto separator = bound.optional_text(0);
  if (separator && separator->empty()) throw TemplateError("split: the separator is empty");
  if (separator && from_right) pay_for_slow_search(runtime, self.text(), *separator);
  std::vector<std::string> parts = split_text(self.text(), separator, bound.integer(1, -1), from_right);
  runtime.charge(self.text().size() / 16 + parts.size());
  return list_of(std::move(parts));
}

Value split_lines_of(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound("splitlines", arguments, {"keepends"});
  std::vector<std::string> lines = split_lines(self.text(), bound.flag(0, false));
  runtime.charge(self.text().size() / 16 + lines.size());
  return list_of(std::move(lines));
}

// Of startswith and endswith: a string or a tuple of them.
template <bool at_end>
Value has_affix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(at_end ? "endswith" : "startswith", arguments, {"text"}, 1);
  const auto fits = [&](const Value& affix) {
    return at_end ? self.text().ends_with(affix.text()) : self.text().starts_with(affix.text());
  };
  if (!bound[0]->is_tuple()) return fits(*bound[0]);
  runtime.charge(bound[0]->items().size());
  return std::any_of(bound[0]->items().begin(), bound[0]->items().end(), fits);
}

template <bool at_end>
Value remove_affix(Runtime&, const Value& self, const Arguments& arguments) {
  const Bound bound(at_end ? "removesuffix" : "removeprefix", arguments, {"text"}, 1);
  const std::string &text = self.text(), &affix = bound[0]->text();
  if (at_end ? !text.ends_with(affix) : !text.starts_with(affix)) return self;
  return text.substr(at_end ? 0 : affix.size(), text.size() - affix.size());
}

template <std::string change(std::string_view)>
Value changed(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound("a method that takes nothing", arguments, {});
  runtime.charge(self.text().size() / 16);
  return change(self.text());
}

Value replace(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  const std::string &text = self.text(), &from = bound[0]->text(), &to = bound[1]->text();
  pay_for_text(runtime, text.size() + uint64_t(count_of(text, from)) * to.size());
  return replaced(text, from, to, bound.integer(2, -1));
}

template <bool from_right>
Value find(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound("find", arguments, {"text"}, 1);
  runtime.charge(self.text().size() / 16);
  if (from_right) pay_for_slow_search(runtime, self.text(), bound[0]->text());
  return find_text(self.text(), bound[0]->text(), from_right);
}

Value index(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound("index", arguments, {"value"}, 1);
  if (self.is_text()) {
    const int64_t at = find_text(self.text(), bound[0]->text(), false);
    if (at < 0) throw TemplateError("index: the text is not in the string");
    return at;
  }
  for (size_t i = 0; i < self.items().size(); ++i) {
    if (equal(runtime, self.items()[i], *bound[0])) return int64_t(i);
  }
  throw TemplateError("index: the value is not in the list");
}

Value count(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound("count", arguments, {"value"}, 1);
  runtime.charge(self.weight());
  if (self.is_text()) return count_of(self.text(), bound[0]->text());
  const auto& items = self.items();
  return int64_t(
      std::count_if(items.begin(), items.end(), [&](const Value& item) { return equal(runtime, item, *bound[0]); }));
}

Value join(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound("join", arguments, {"items"}, 1);
  std::string text;
  bool is_first = true;
  for (const Value& item : elements_of(runtime, *bound[0])) {
    if (!std::exchange(is_first, false)) text += self.text();
    text += item.text();
    runtime.require_text_size(text.size());
  }
  return text;
}

Value format(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return format_braces(runtime, self.text(), arguments);
}

template <bool from_right>
Value partition(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound("partition", arguments, {"sep"}, 1);
  const std::string &text = self.text(), &separator = bound[0]->text();
  if (separator.empty()) throw TemplateError("partition: the separator is empty");
  if (from_right) pay_for_slow_search(runtime, text, separator);
  const size_t at = from_right ? text.rfind(separator) : find_bytes(text, separator);
  if (at == text.npos) {
    return from_right ? Value::tuple({Value(""), Value(""), self}) : Value::tuple({self, Value(""), Value("")});
  }
  return Value::tuple({text.substr(0, at), separator, text.substr(at + separator.size())});
}

enum class Place { left, right, center };
// ljust, rjust, center and zfill.
Value padded(Runtime& runtime, const Value& self, int64_t width, std::string_view fill, Place place) {
  const int64_t missing = width - length_of(self);
  if (missing <= 0) return self;
  if (fill.empty() || fill.size() != read_utf8(fill).length)
    throw TemplateError("one character was expected to fill with");
  pay_for_text(runtime, uint64_t(missing));
  pay_for_text(runtime, uint64_t(missing) * fill.size() + self.text().size());
  // Python puts the odd one on the right side, unless the width is odd as well.
  const int64_t left = place == Place::left    ? 0
                       : place == Place::right ? missing
                                               : missing / 2 + (missing & width & 1);
  std::string text;
  for (int64_t i = 0; i < left; ++i) text += fill;
  text += self.text();
  for (int64_t i = left; i < missing; ++i) text += fill;
  return text;
}

template <Place place>
Value justified(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound("a method that justifies", arguments, {"width", "fillchar"}, 1);
  return padded(runtime, self, bound.integer(0, 0), bound.text(runtime, 1, " "), place);
}

Value zero_filled(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound("zfill", arguments, {"width"}, 1);
  const std::string& text = self.text();
  const bool has_sign = text.starts_with('-') || text.starts_with('+');
  const Value digits = text.substr(has_sign);
  return text.substr(0, has_sign) + padded(runtime, digits, bound.integer(0, 0) - has_sign, "0", Place::right).text();
}

bool is_letter_or_number(char32_t c) { return is_letter(c) || is_number(c); }

// Not empty, and all of its characters are of a kind.
template <bool is_kind(char32_t)>
Value is_all(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound("a method that takes nothing", arguments, {});
  runtime.charge(self.text().size() / 16);
  bool all = !self.text().empty();
  for_each_code_point(self.text(), [&](char32_t c, std::string_view) { all = all && is_kind(c); });
  return all;
}

// isupper and islower: has letters, and changing them changes nothing.
template <std::string change(std::string_view), std::string other(std::string_view)>
Value is_case(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound("a method that takes nothing", arguments, {});
  runtime.charge(self.text().size() / 16);
  return change(self.text()) == self.text() && other(self.text()) != self.text();
}

Value items(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound("items", arguments, {});
  std::vector<Value> pairs;
  runtime.charge(self.dict().entries().size());
  for (const auto& [key, value] : self.dict().entries()) pairs.push_back(Value::tuple({key, value}));
  return Value::list(std::move(pairs));
}

Value keys(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound("keys", arguments, {});
  return Value::list(elements_of(runtime, self));
}

Value values(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound("values", arguments, {});
  std::vector<Value> values;
  runtime.charge(self.dict().entries().size());
  for (const auto& [key, value] : self.dict().entries()) values.push_back(value);
  return Value::list(std::move(values));
}

Value get(Runtime&, const Value& self, const Arguments& arguments) {
  const Bound bound("get", arguments, {"key", "default"}, 1);
  if (const Value* value = self.dict().find(*bound[0])) return *value;
  return bound[1] ? *bound[1] : Value(nullptr);
}

Value copy(Runtime&, const Value& self, const Arguments& arguments) {
  const Bound bound("copy", arguments, {});
  return self;
}

struct Row {
  std::string_view name;
  Filter method;
};
constexpr Row kTextMethods[] = {
    {"strip", strip<Side::both>},
    {"lstrip", strip<Side::left>},
    {"rstrip", strip<Side::right>},
    {"split", split<false>},
    {"rsplit", split<true>},
    {"splitlines", split_lines_of},
    {"startswith", has_affix<false>},
    {"endswith", has_affix<true>},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"upper", changed<upper_case>},
    {"lower", changed<lower_case>},
    {"title", changed<titled>},
    {"capitalize", changed<capitalized>},
    {"replace", replace},
    {"find", find<false>},
    {"rfind", find<true>},
    {"index", index},
    {"count", count},
    {"join", join},
    {"format", format},
    {"partition", partition<false>},
    {"rpartition", partition<true>},
    {"ljust", justified<Place::left>},
    {"rjust", justified<Place::right>},
    {"center", justified<Place::center>},
    {"zfill", zero_filled},
    {"isdigit", is_all<is_digit>},
    {"isnumeric", is_all<is_number>},
    {"isdecimal", is_all<is_decimal_digit>},
    {"isalpha", is_all<is_letter>},
    {"isalnum", is_all<is_letter_or_number>},
    {"isspace", is_all<is_space>},
    {"isupper", is_case<upper_case, lower_case>},
    {"islower", is_case<lower_case, upper_case>},
};
constexpr Row kListMethods[] = {{"index", index}, {"count", count}, {"copy", copy}};
constexpr Row kDictMethods[] = {{"items", items}, {"keys", keys}, {"values", values}, {"get", get}, {"copy", copy}};

template <size_t n>
Filter find_row(const Row (&rows)[n], std::string_view name) {
  for (const Row& row : rows) {
    if (row.name == name) return row.method;
  }
  return nullptr;
}

}  // namespace

Filter find_method(const Value& input, std::string_view name) {
  if (input.is_text()) return find_row(kTextMethods, name);
  if (input.is_list()) return find_row(kListMethods, name);
  return input.is_dict() ? find_row(kDictMethods, name) : nullptr;
}

}  // namespace weft::jinja
