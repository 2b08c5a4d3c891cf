// Filters that make text or numbers.
#include <charconv>
#include <cmath>

#include "weft/text/jinja/filters.h"
#include "weft/text/jinja/python_text.h"

namespace weft::jinja {
namespace {

template <std::string change(std::string_view)>
Value changed(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("a filter that takes nothing", arguments, {});
  return change(text_of(runtime, input));
}

Value trim(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("trim", arguments, {"chars"});
  const Value text = text_of(runtime, input);
  Arguments forwarded;
  if (bound[0]) forwarded.positional.push_back(*bound[0]);
  return find_method(text, "strip")(runtime, text, forwarded);
}

Value string(Runtime& runtime, const Value& input, const Arguments&) { return text_of(runtime, input); }

Value replace(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  const Value text = text_of(runtime, input), from = bound.text(runtime, 0, ""), to = bound.text(runtime, 1, "");
  Arguments forwarded{{from, to}, {}};
  if (bound[2] && !bound[2]->is_none()) forwarded.positional.push_back(*bound[2]);
  return find_method(text, "replace")(runtime, text, forwarded);
}

Value escape(Runtime& runtime, const Value& input, const Arguments&) {
  std::string text;
  for (const char c : text_of(runtime, input)) {
    switch (c) {
      case '&': text += "&amp;"; break;
      case '<': text += "&lt;"; break;
      case '>': text += "&gt;"; break;
      case '"': text += "&#34;"; break;
      case '\'': text += "&#39;"; break;
      default: text += c;
    }
  }
  return text;
}

// indent(width=4, first=false, blank=false): every line but the first, and those without text, are moved in.
Value indent(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("indent", arguments, {"width", "first", "blank"});
  std::string margin;
  if (bound[0] && bound[0]->is_text()) {
    margin = bound[0]->text();
  } else {
    const int64_t width = bound.integer(0, 4);
    runtime.require_text_size(uint64_t(std::max<int64_t>(width, 0)));
    margin.assign(size_t(std::max<int64_t>(width, 0)), ' ');
  }
  const bool moves_first = bound.flag(1, false), moves_blank = bound.flag(2, false);
  const std::vector<std::string> lines = split_lines(text_of(runtime, input) + "\n", false);
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) text += '\n';
    if (i == 0 ? moves_first : moves_blank || !lines[i].empty()) text += margin;
    text += lines[i];
    runtime.require_text_size(text.size());
  }
  runtime.charge(text.size() / 16);
  return text;
}

Value center(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("center", arguments, {"width"});
  const Value text = text_of(runtime, input);
  return find_method(text, "center")(runtime, text, {{bound.integer(0, 80)}, {}});
}

Value format(Runtime& runtime, const Value& input, const Arguments& arguments) {
  if (!arguments.named.empty() && !arguments.positional.empty()) {
    throw TemplateError("format takes arguments with names or without, not both");
  }
  if (arguments.named.empty())
    return format_percent(runtime, text_of(runtime, input), Value::tuple(arguments.positional));
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [name, value] : arguments.named) entries.emplace_back(name, value);
  return format_percent(runtime, text_of(runtime, input), Value::dict(std::move(entries)));
}

Value word_count(Runtime& runtime, const Value& input, const Arguments&) {
  return int64_t(split_text(text_of(runtime, input), {}, -1, false).size());
}

// As Hugging Face defines it: Python's json.dumps without escapes of what is not ASCII.
Value to_json_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  // Jinja's own filter has the indent first: tojson(2).
  const bool has_indent_first = bound[0] && bound[0]->is_integer();
  const Value* indent = has_indent_first ? bound[0] : bound[1];
  JsonStyle style{.sort_keys = bound.flag(3, false), .ensure_ascii = !has_indent_first && bound.flag(0, false)};
  if (indent && !indent->is_none()) {
    constexpr int64_t kMaxIndent = 32;
    style.indent = int(std::clamp<int64_t>(indent->integer(), 0, kMaxIndent));
    style.item_separator = ",";
  }
  if (bound[2] && !bound[2]->is_none()) {
    const auto& separators = bound[2]->items();
    if (separators.size() != 2) throw TemplateError("tojson: separators must be two strings");
    style.item_separator = separators[0].text(), style.key_separator = separators[1].text();
  }
  runtime.charge(input.weight() * 2);
  style.max_bytes = runtime.limits().max_text_bytes;
  return to_json(input, style);
}

std::optional<int64_t> parsed_integer(std::string text, int base) {
  text = stripped(text, Side::both);
  const bool has_plus = text.starts_with('+');
  std::erase(text, '_');
  const std::string_view prefix = base == 16 ? "0x" : base == 8 ? "0o" : base == 2 ? "0b" : "";
  if (!prefix.empty() && text.starts_with(prefix)) text.erase(0, 2);
  int64_t value = 0;
  const char* begin = text.data() + has_plus;
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

std::optional<double> parsed_float(std::string text) {
  text = stripped(text, Side::both);
  const bool has_plus = text.starts_with('+');
  double value = 0;
  const auto [end, error] = std::from_chars(text.data() + has_plus, text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

Value to_integer(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("int", arguments, {"default", "base"});
  const Value otherwise = bound[0] ? *bound[0] : Value(0);
  input.require_defined();
  std::optional<double> number;
  if (input.is_integer() || input.is_boolean()) return input.integer();
  if (input.is_float()) number = input.number();
  if (input.is_text()) {
    const int64_t base = bound.integer(1, 10);
    if (base < 2 || base > 36) throw TemplateError("int: the base must be from 2 to 36");
    const std::string text = text_of(runtime, input);
    if (const auto value = parsed_integer(text, int(base))) return *value;
    number = parsed_float(text);
  }
  constexpr double kLimit = 9223372036854774784.0;  // the largest double below 2^63
  if (!number || !(std::abs(*number) <= kLimit)) return otherwise;
  return int64_t(*number);
}

Value to_float(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("float", arguments, {"default"});
  input.require_defined();
  if (input.is_number()) return input.number();
  if (input.is_text()) {
    if (const auto value = parsed_float(text_of(runtime, input))) return *value;
  }
  return bound[0] ? *bound[0] : Value(0.0);
}

Value absolute(Runtime&, const Value& input, const Arguments&) {
  if (input.is_float()) return std::abs(input.number());
  const int64_t value = input.integer();
  if (value == INT64_MIN) throw TemplateError("abs: an integer becomes larger than 64 bits hold");
  return std::abs(value);
}

Value round(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("round", arguments, {"precision", "method"});
  const int64_t precision = bound.integer(0, 0);
  const std::string method = bound.text(runtime, 1, "common");
  constexpr int64_t kMaxPrecision = 300;
  if (std::abs(precision) > kMaxPrecision) throw TemplateError("round: the precision is {}", precision);
  if (method == "common" && precision >= 0 && !input.is_float()) return input.integer();
  const double value = input.number(), scale = std::pow(10.0, double(precision));
  if (method == "ceil") return std::ceil(value * scale) / scale;
  if (method == "floor") return std::floor(value * scale) / scale;
  if (method != "common") throw TemplateError("round: the method must be common, ceil or floor");
  if (!std::isfinite(value)) return value;
  if (precision < 0) return std::nearbyint(value * scale) / scale;
  return *parsed_float(fmt::format("{:.{}f}", value, precision));  // rounds the decimal digits, as Python does
}

constexpr FilterRow kRows[] = {
    {"trim", trim},
    {"string", string},
    {"safe", string},
    {"upper", changed<upper_case>},
    {"lower", changed<lower_case>},
    {"capitalize", changed<capitalized>},
    {"title", changed<title_filtered>},
    {"replace", replace},
    {"escape", escape},
    {"e", escape},
    {"forceescape", escape},
    {"indent", indent},
    {"center", center},
    {"format", format},
    {"wordcount", word_count},
    {"tojson", to_json_filter},
    {"int", to_integer},
    {"float", to_float},
    {"abs", absolute},
    {"round", round},
};

}  // namespace

std::span<const FilterRow> text_filters() { return kRows; }

}  // namespace weft::jinja
