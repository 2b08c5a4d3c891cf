// Python arguments: a recursive descent over the literals of Python's grammar. JSON's own words are read too, since
// models write both.
#include "weft/serve/api/python_arguments.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "weft/serve/api/trimmed.h"
#include "weft/text/utf8.h"

namespace weft::api {
namespace {

constexpr int kDeepestLiteral = 64;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || uint8_t(c) >= 0x80; }

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Members of an object by their names, in the order in which these came first.
class Members {
 public:
  void set(std::string name, std::string value) {
    const auto [place, is_new] = places_.try_emplace(std::move(name), all_.size());
    if (is_new)
      all_.emplace_back(place->first, std::move(value));
    else
      all_[place->second].second = std::move(value);
  }
  std::string json() const {
    std::string text = "{";
    for (const auto& [name, value] : all_) {
      if (text.size() > 1) text += ", ";
      text += quoted(name) + ": " + value;
    }
    return text + "}";
  }

 private:
  std::map<std::string, size_t> places_;
  std::vector<std::pair<std::string, std::string>> all_;
};

class LiteralReader {
 public:
  explicit LiteralReader(std::string_view text) : text_(text) {}

  std::optional<std::string> arguments() {
    Members members;
    skip_space();
    while (at_ < text_.size()) {
      const size_t begin = at_;
      while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
      const std::string_view name = text_.substr(begin, at_ - begin);
      skip_space();
      if (!is_python_name(name, false) || !eat('=')) return {};
      std::optional<std::string> value = this->value(0);
      if (!value) return {};
      members.set(std::string(name), std::move(*value));
      if (!eat(',') && at_ < text_.size()) return {};
    }
    return members.json();
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_space() { at_ = std::min(text_.find_first_not_of(kSpace, at_), text_.size()); }
  bool eat(char c) {  // and the space behind it
    skip_space();
    if (peek() != c || at_ == text_.size()) return false;
    ++at_;
    skip_space();
    return true;
  }

  std::optional<std::string> value(int depth) {
    if (depth > kDeepestLiteral) return {};
    skip_space();
    std::optional<std::string> found;
    if (peek() == '"' || peek() == '\'') {
      const std::optional<std::string> text = string();
      if (text) found = quoted(*text);
    } else if (peek() == '[' || peek() == '(') {
      found = list(peek() == '[' ? ']' : ')', depth);
    } else if (peek() == '{') {
      found = dict(depth);
    } else if (is_letter(peek())) {
      found = word();
    } else {
      found = number();
    }
    skip_space();
    return found;
  }

  std::optional<std::string> word() {
    constexpr std::pair<std::string_view, const char*> kWords[] = {{"True", "true"},   {"False", "false"},
                                                                   {"None", "null"},   {"true", "true"},
                                                                   {"false", "false"}, {"null", "null"}};
    const size_t begin = at_;
    while (is_letter(peek()) || is_digit(peek())) ++at_;
    for (const auto& [python, in_json] : kWords)
      if (text_.substr(begin, at_ - begin) == python) return in_json;
    return {};
  }

  std::optional<std::string> list(char close, int depth) {
    const bool is_tuple = close == ')';
    eat(peek());
    std::string all = "[";
    bool has_comma = false;
    for (size_t count = 0; !eat(close); ++count) {
      if (count > 0 && !has_comma) return {};
      const std::optional<std::string> one = value(depth + 1);
      if (!one) return {};
      all += (count > 0 ? ", " : "") + *one;
      has_comma = eat(',');
      if (is_tuple && count == 0 && !has_comma && eat(close)) return one;  // (1) is 1
    }
    return all + "]";
  }

  std::optional<std::string> dict(int depth) {
    eat('{');
    Members members;
    bool may_follow = true;
    while (!eat('}')) {
      if (!may_follow) return {};
      const bool is_text = peek() == '"' || peek() == '\'';
      std::optional<std::string> key = is_text ? string() : value(depth + 1);
      if (!key || (!is_text && (key->starts_with('[') || key->starts_with('{'))) || !eat(':')) return {};
      std::optional<std::string> one = value(depth + 1);
      if (!one) return {};
      members.set(std::move(*key), std::move(*one));
      may_follow = eat(',');
    }
    return members.json();
  }

  // As JSON writes it.
  std::optional<std::string> number() {
    std::string sign;
    if (peek() == '-' || peek() == '+') sign = text_[at_++] == '-' ? "-" : "";
    if (peek() == '0' && at_ + 1 < text_.size() && (text_[at_ + 1] | 0x20) == 'x') return hexadecimal(sign);
    const std::string whole = digits();
    std::string rest;
    if (peek() == '.') {
      ++at_;
      const std::string fraction = digits();
      if (whole.empty() && fraction.empty()) return {};
      rest = "." + (fraction.empty() ? "0" : fraction);
    }
    if (whole.empty() && rest.empty()) return {};
    if (whole.size() > 1 && whole[0] == '0' && rest.empty()) return {};
    if ((peek() | 0x20) == 'e') {
      ++at_;
      rest += 'e';
      if (peek() == '-' || peek() == '+') rest += text_[at_++];
      const std::string exponent = digits();
      if (exponent.empty()) return {};
      rest += exponent;
    }
    const size_t first = whole.find_first_not_of('0');
    return sign + (first == std::string::npos ? "0" : whole.substr(first)) + rest;
  }
  std::string digits() {
    std::string found;
    while (is_digit(peek()) ||
           (peek() == '_' && !found.empty() && at_ + 1 < text_.size() && is_digit(text_[at_ + 1]))) {
      if (text_[at_] != '_') found += text_[at_];
      ++at_;
    }
    return found;
  }
  std::optional<std::string> hexadecimal(const std::string& sign) {
    at_ += 2;
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value, 16);
    if (error != std::errc()) return {};
    at_ = size_t(end - text_.data());
    return sign + std::to_string(value);
  }

  std::optional<std::string> string() {
    const char quote = text_[at_++];
    std::string out;
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == quote) return out;
      if (c != '\\')
        out += c;
      else if (at_ == text_.size() || !escape(out))
        return {};
    }
    return {};
  }

  bool escape(std::string& out) {
    constexpr std::string_view kNames = "\\'\"/ntrabfv", kValues = "\\'\"/\n\t\r\a\b\f\v";
    const char c = text_[at_++];
    if (c == '\n') return true;  // the line goes on
    if (const size_t known = kNames.find(c); known != std::string_view::npos) {
      out += kValues[known];
      return true;
    }
    if (c == 'x' || c == 'u' || c == 'U') return code_point(c == 'x' ? 2 : c == 'u' ? 4 : 8, out);
    if (c >= '0' && c <= '7') {
      char32_t value = char32_t(c - '0');
      for (int i = 0; i < 2 && peek() >= '0' && peek() <= '7'; ++i) value = value * 8 + char32_t(text_[at_++] - '0');
      append_utf8(value, out);
      return true;
    }
    out += '\\';  // Python keeps it
    out += c;
    return true;
  }

  std::optional<char32_t> hex(size_t digits) {
    uint32_t value = 0;
    if (text_.size() - at_ < digits) return {};
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + at_ + digits, value, 16);
    if (error != std::errc() || end != text_.data() + at_ + digits) return {};
    at_ += digits;
    return char32_t(value);
  }
  // Halves of a character beyond 16 bits may come as JSON has them.
  bool code_point(size_t digits, std::string& out) {
    std::optional<char32_t> value = hex(digits);
    if (!value) return false;
    const auto is_half = [](char32_t c, char32_t first) { return c >= first && c < first + 0x400; };
    if (is_half(*value, 0xD800) && text_.substr(at_).starts_with("\\u")) {
      const size_t before = at_;
      at_ += 2;
      const std::optional<char32_t> low = hex(4);
      if (low && is_half(*low, 0xDC00))
        value = 0x10000 + ((*value - 0xD800) << 10) + (*low - 0xDC00);
      else
        at_ = before;
    }
    const bool is_character = *value <= 0x10FFFF && !(*value >= 0xD800 && *value < 0xE000);
    append_utf8(is_character ? *value : 0xFFFD, out);
    return true;
  }

  const std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

bool is_python_name(std::string_view name, bool of_function) {
  if (name.empty() || !is_letter(name[0])) return false;
  return std::all_of(name.begin(), name.end(),
                     [&](char c) { return is_letter(c) || is_digit(c) || (of_function && (c == '.' || c == '-')); });
}

std::optional<std::string> json_of_python_arguments(std::string_view text) { return LiteralReader(text).arguments(); }

}  // namespace weft::api
