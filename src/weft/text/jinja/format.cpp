// Python's two ways to put values into a text: "%s" % x and "{}".format(x).
#include "weft/text/jinja/library.h"
#include "weft/text/jinja/python_text.h"

namespace weft::jinja {
namespace {

constexpr int kMaxWidth = 1 << 16;

// Digits at `at`, as a width or precision.
int read_width(std::string_view format, size_t& at) {
  int width = 0;
  for (; at < format.size() && format[at] >= '0' && format[at] <= '9'; ++at) {
    width = width * 10 + (format[at] - '0');
    if (width > kMaxWidth) throw TemplateError("a format has a width of more than {}", kMaxWidth);
  }
  return width;
}

// What stands between '%' and the letter, or behind ':' in braces.
struct Spec {
  char align = 0, sign = 0, type = 0;
  bool zero = false;
  std::string fill = " ";
  int width = 0, precision = -1;
};

std::string digits_of(Runtime& runtime, const Value& value, const Spec& spec) {
  switch (spec.type) {
    case 'd':
    case 'i':
    case 'u':
      if (value.is_float()) return fmt::format("{:.0f}", std::trunc(value.number()));
      return fmt::format("{}", value.integer());
    case 'x': return fmt::format("{:x}", value.integer());
    case 'X': return fmt::format("{:X}", value.integer());
    case 'o': return fmt::format("{:o}", value.integer());
    case 'b': return fmt::format("{:b}", value.integer());
    case 'f':
    case 'F': return fmt::format("{:.{}f}", value.number(), spec.precision < 0 ? 6 : spec.precision);
    case 'e': return fmt::format("{:.{}e}", value.number(), spec.precision < 0 ? 6 : spec.precision);
    case 'g': return fmt::format("{:.{}g}", value.number(), spec.precision < 0 ? 6 : spec.precision);
    case 'r':
    case 'a': runtime.charge(value.weight()); return repr(value, runtime.limits().max_text_bytes);
    case 's':
    case 0: break;
    default: throw TemplateError("a format has the type '{}', which weft's templates do not know", spec.type);
  }
  const std::string text = text_of(runtime, value);
  return spec.precision < 0 ? text : slice_text(text, 0, spec.precision, 1);
}

std::string formatted(Runtime& runtime, const Value& value, const Spec& spec) {
  value.require_defined();
  std::string text = digits_of(runtime, value, spec);
  const bool is_number = value.is_number() && spec.type != 's' && spec.type != 'r';
  if (is_number && (spec.sign == '+' || spec.sign == ' ') && !text.starts_with('-')) text.insert(0, 1, spec.sign);
  const int64_t missing = spec.width - length_of(std::string_view(text));
  if (missing <= 0) return text;
  std::string filling;
  for (int64_t i = 0; i < missing; ++i) filling += spec.zero && is_number ? "0" : spec.fill;
  if (spec.zero && is_number) {
    const size_t sign = text.starts_with('-') || text.starts_with('+') || text.starts_with(' ');
    return text.insert(sign, filling);
  }
  const char align = spec.align ? spec.align : is_number ? '>' : '<';
  if (align == '<') return text + filling;
  if (align == '>') return filling + text;
  const size_t half = size_t(missing / 2) * spec.fill.size();
  return filling.substr(0, half) + text + filling.substr(half);
}

// Takes a "%..." after the '%'.
Spec read_percent_spec(std::string_view format, size_t& at) {
  Spec spec{.align = '>'};
  for (; at < format.size(); ++at) {
    const char flag = format[at];
    if (flag == '-') {
      spec.align = '<';
    } else if (flag == '0') {
      spec.zero = true;
    } else if (flag == '+' || flag == ' ') {
      spec.sign = flag;
    } else if (flag != '#') {
      break;
    }
  }
  spec.width = read_width(format, at);
  if (at < format.size() && format[at] == '.') spec.precision = read_width(format, ++at);
  if (at == format.size()) throw TemplateError("a format ends after '%'");
  spec.type = format[at++];
  if (spec.align == '<') spec.zero = false;
  return spec;
}

// [[fill]align][sign][0][width][.precision][type]
Spec read_brace_spec(std::string_view text) {
  Spec spec;
  size_t at = 0;
  const auto is_align = [&](size_t i) {
    return i < text.size() && std::string_view("<>^").find(text[i]) != size_t(-1);
  };
  const size_t fill_size = text.empty() ? 0 : read_utf8(text).length;
  if (is_align(fill_size)) {
    spec.fill = text.substr(0, fill_size), spec.align = text[fill_size], at = fill_size + 1;
  } else if (is_align(0)) {
    spec.align = text[0], at = 1;
  }
  if (at < text.size() && (text[at] == '+' || text[at] == '-' || text[at] == ' ')) spec.sign = text[at++];
  if (at < text.size() && text[at] == '0') spec.zero = spec.align == 0, ++at;
  spec.width = read_width(text, at);
  if (at < text.size() && text[at] == '.') spec.precision = read_width(text, ++at);
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) throw TemplateError("the format '{}' has more than weft's templates know", text);
  return spec;
}

const Value& argument_named(const Arguments& arguments, std::string_view name, size_t& next) {
  if (name.empty() || (name[0] >= '0' && name[0] <= '9')) {
    size_t at = 0;
    const size_t position = name.empty() ? next++ : size_t(read_width(name, at));
    if (at != name.size() || position >= arguments.positional.size())
      throw TemplateError("format: there is no argument '{}'", name);
    return arguments.positional[position];
  }
  for (const auto& [known, value] : arguments.named) {
    if (known == name) return value;
  }
  throw TemplateError("format: there is no argument '{}'", name);
}

}  // namespace

std::string format_percent(Runtime& runtime, std::string_view format, const Value& value) {
  const std::vector<Value> one{value};
  const std::vector<Value>& values = value.is_tuple() ? value.items() : one;
  std::string text;
  size_t next = 0;
  for (size_t at = 0; at < format.size();) {
    const size_t percent = std::min(format.find('%', at), format.size());
    text += format.substr(at, percent - at);
    at = percent + 1;
    if (percent == format.size()) break;
    const Value* named = nullptr;
    if (at < format.size() && format[at] == '(') {
      const size_t end = format.find(')', at);
      if (end == format.npos) throw TemplateError("a format has no ')'");
      named = value.dict().find(format.substr(at + 1, end - at - 1));
      if (!named) throw TemplateError("format: there is no argument '{}'", format.substr(at + 1, end - at - 1));
      at = end + 1;
    }
    const Spec spec = read_percent_spec(format, at);
    if (spec.type == '%') {
      text += '%';
    } else {
      if (!named && next >= values.size()) throw TemplateError("a format has more places than there are values");
      text += formatted(runtime, named ? *named : values[next++], spec);
    }
    runtime.charge(1);
    runtime.require_text_size(text.size());
  }
  if (next < values.size() && !value.is_dict())
    throw TemplateError("a format has fewer places than there are values");
  return text;
}

std::string format_braces(Runtime& runtime, std::string_view format, const Arguments& arguments) {
  std::string text;
  size_t next = 0;
  for (size_t at = 0; at < format.size();) {
    const size_t brace = std::min(format.find_first_of("{}", at), format.size());
    text += format.substr(at, brace - at);
    at = brace + 1;
    if (brace == format.size()) break;
    if (at < format.size() && format[at] == format[brace]) {  // {{ and }} stand for one
      text += format[at++];
      continue;
    }
    const size_t end = format.find('}', at);
    if (format[brace] == '}' || end == format.npos)
      throw TemplateError("format: a brace stands alone; write it twice");
    const std::string_view field = format.substr(at, end - at);
    const size_t colon = std::min(field.find(':'), field.size());
    const Value& value = argument_named(arguments, field.substr(0, colon), next);
    text += formatted(runtime, value, read_brace_spec(field.substr(std::min(colon + 1, field.size()))));
    at = end + 1;
    runtime.charge(1);
    runtime.require_text_size(text.size());
  }
  return text;
}

}  // namespace weft::jinja
