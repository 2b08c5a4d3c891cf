// Values as text: what Python's str(), repr() and json.dumps() write.
#include <charconv>
#include <cmath>

#include "weft/text/jinja/python_text.h"
#include "weft/text/jinja/value.h"
#include "weft/text/utf8.h"

namespace weft::jinja {
namespace {

// A backslash and what follows it; empty for characters that stand for themselves.
std::string escape_of(char32_t c, char quote) {
  if (c == U'\\') return "\\\\";
  if (c == U'\n') return "\\n";
  if (c == U'\r') return "\\r";
  if (c == U'\t') return "\\t";
  if (c == char32_t(static_cast<unsigned char>(quote))) return std::string("\\") + quote;
  if (is_printable(c)) return "";
  if (c < 0x100) return fmt::format("\\x{:02x}", uint32_t(c));
  if (c < 0x10000) return fmt::format("\\u{:04x}", uint32_t(c));
  return fmt::format("\\U{:08x}", uint32_t(c));
}

std::string in_quotes(std::string_view text) {
  const bool has_single = text.find('\'') != text.npos, has_double = text.find('"') != text.npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string result(1, quote);
  for_each_code_point(text, [&](char32_t c, std::string_view bytes) {
    const std::string escape = escape_of(c, quote);
    result += escape.empty() ? bytes : std::string_view(escape);
  });
  return result += quote;
}

void require_size(const std::string& text, uint64_t max_bytes) {
  if (text.size() > max_bytes) throw TemplateError("it makes a text of more than {} bytes", max_bytes);
}

void append_repr(const Value& value, std::string& text, uint64_t max_bytes) {
  require_size(text, max_bytes);
  if (value.is_text()) {
    text += in_quotes(value.text());
  } else if (value.is_list()) {
    const auto& items = value.items();
    text += value.is_tuple() ? '(' : '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) text += ", ";
      append_repr(items[i], text, max_bytes);
    }
    if (value.is_tuple() && items.size() == 1) text += ',';
    text += value.is_tuple() ? ')' : ']';
  } else if (value.is_dict()) {
    text += '{';
    bool is_first = true;
    for (const auto& [key, item] : value.dict().entries()) {
      if (!std::exchange(is_first, false)) text += ", ";
      append_repr(key, text, max_bytes);
      text += ": ";
      append_repr(item, text, max_bytes);
    }
    text += '}';
  } else if (value.is_undefined()) {
    text += "Undefined";
  } else {
    text += to_text(value);
  }
}

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, std::string& text) : style_(style), text_(text) {}

  void write(const Value& value) {
    require_size(text_, style_.max_bytes);
    if (value.is_none()) {
      text_ += "null";
    } else if (value.is_boolean()) {
      text_ += value.truthy() ? "true" : "false";
    } else if (value.is_integer()) {
      text_ += fmt::format("{}", value.integer());
    } else if (value.is_float()) {
      text_ += float_json(value.number());
    } else if (value.is_text()) {
      write_string(value.text());
    } else if (value.is_list()) {
      write_list(value.items());
    } else if (value.is_dict()) {
      write_dict(value.dict());
    } else {
      value.require_defined();
      throw TemplateError("{} cannot be written as JSON", value.describe());
    }
  }

 private:
  static std::string float_json(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return float_text(value);
  }

  void write_string(std::string_view text) {
    text_ += '"';
    for_each_code_point(text, [&](char32_t c, std::string_view bytes) {
      if (c == U'"' || c == U'\\') {
        text_ += '\\';
        text_ += bytes;
      } else if (c < 0x20 || (style_.ensure_ascii && c > 0x7f)) {
        write_escape(c);
      } else {
        text_ += bytes;
      }
    });
    text_ += '"';
  }

  void write_escape(char32_t c) {
    constexpr std::string_view kShort = "\b\f\n\r\t", kLetters = "bfnrt";
    const size_t found = c < 0x20 ? kShort.find(char(c)) : std::string_view::npos;
    if (found != kShort.npos) {
      text_ += {'\\', kLetters[found]};
    } else if (c < 0x10000) {
      text_ += fmt::format("\\u{:04x}", uint32_t(c));
    } else {
      text_ += fmt::format("\\u{:04x}\\u{:04x}", 0xd7c0 + (c >> 10), 0xdc00 + (c & 0x3ff));
    }
  }

  void write_list(const std::vector<Value>& items) {
    text_ += '[';
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      begin_item(i == 0);
      write(items[i]);
    }
    end_items(items.empty(), ']');
  }

  void write_dict(const Dict& dict) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto* a, const auto* b) { return compare(a->first, b->first) < 0; });
    }
    text_ += '{';
    ++level_;
    for (size_t i = 0; i < entries.size(); ++i) {
      begin_item(i == 0);
      write_key(entries[i]->first);
      text_ += style_.key_separator;
      write(entries[i]->second);
    }
    end_items(entries.empty(), '}');
  }

  // Keys are strings in JSON; Python writes numbers, booleans and None as such.
  void write_key(const Value& key) {
    if (key.is_text()) return write_string(key.text());
    if (key.is_list()) throw TemplateError("{} cannot be a key in JSON", key.describe());
    text_ += '"';
    write(key);
    text_ += '"';
  }

  void begin_item(bool is_first) {
    if (!is_first) text_ += style_.item_separator;
    new_line();
  }
  void end_items(bool is_empty, char bracket) {
    --level_;
    if (!is_empty) new_line();
    text_ += bracket;
  }
  void new_line() {
    if (style_.indent >= 0) text_ += "\n" + std::string(size_t(level_ * style_.indent), ' ');
  }

  const JsonStyle& style_;
  std::string& text_;
  int level_ = 0;
};

}  // namespace

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view shortest(buffer, size_t(end - buffer));
  const size_t e = shortest.find('e');
  int exponent = 0;
  std::from_chars(shortest.data() + e + (shortest[e + 1] == '+' ? 2 : 1), end, exponent);
  if (exponent < -4 || exponent >= 16) return std::string(shortest);  // 1e+16, as in Python
  char fixed[64];
  const auto fixed_end = std::to_chars(fixed, fixed + sizeof fixed, value, std::chars_format::fixed).ptr;
  std::string text(fixed, fixed_end);
  return text.find('.') == text.npos ? text + ".0" : text;
}

std::string to_text(const Value& value, uint64_t max_bytes) {
  if (value.is_text()) return value.text();
  if (value.is_undefined()) return "";
  if (value.is_none()) return "None";
  if (value.is_boolean()) return value.truthy() ? "True" : "False";
  if (value.is_integer()) return fmt::format("{}", value.integer());
  if (value.is_float()) return float_text(value.number());
  if (value.is_object()) return fmt::format("<{}>", value.object().describe());
  return repr(value, max_bytes);
}

std::string repr(const Value& value, uint64_t max_bytes) {
  std::string text;
  append_repr(value, text, max_bytes);
  return text;
}

std::string to_json(const Value& value, const JsonStyle& style) {
  std::string text;
  JsonWriter(style, text).write(value);
  return text;
}

}  // namespace weft::jinja
