// Cursor: reads an expression or grammar a code point at a time.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

#include "weft/base/error.h"
#include "weft/text/utf8.h"

namespace weft::constrain {

class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {
    if (valid_utf8_prefix(text) != text.size()) throw UsageError("the form is not UTF-8");
  }

  bool is_at_end() const { return at_ == text_.size(); }
  size_t at() const { return at_; }
  std::string_view rest() const { return text_.substr(at_); }
  std::string_view read() const { return text_.substr(0, at_); }
  char peek() const { return is_at_end() ? '\0' : text_[at_]; }
  bool looks_at(std::string_view what) const { return rest().starts_with(what); }
  bool eat(std::string_view what) {
    if (!looks_at(what)) return false;
    at_ += what.size();
    return true;
  }
  void skip(size_t num_bytes) { at_ += num_bytes; }
  char32_t take() {  // not at the end
    const CodePoint next = first_code_point(rest());
    at_ += next.length;
    return next.value;
  }

  // Exactly `digits` hexadecimal digits; nothing, and nothing read, when there are fewer.
  std::optional<char32_t> hex(size_t digits) {
    char32_t value = 0;
    if (rest().size() < digits) return {};
    for (const char c : rest().substr(0, digits)) {
      const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c - 'A' + 10;
      if (digit < 0 || digit > 15 || (digit > 9 && !((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')))) return {};
      value = value * 16 + char32_t(digit);
    }
    at_ += digits;
    return value;
  }
  // Decimal digits; large numbers become one that no limit allows.
  std::optional<int64_t> number() {
    if (peek() < '0' || peek() > '9') return {};
    int64_t value = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at_) value = std::min<int64_t>(value * 10 + (peek() - '0'), 1 << 30);
    return value;
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

// How often something repeats: {m}, {m,}, {m,n}. Nothing, and nothing read, for another text.
struct Repeats {
  int64_t min = 1, max = 1;  // max -1: any number
};
inline std::optional<Repeats> read_braces(Cursor& cursor) {
  Cursor ahead = cursor;
  const auto spaces = [&] {
    while (ahead.eat(" ")) {
    }
  };
  if (!ahead.eat("{")) return {};
  spaces();
  const std::optional<int64_t> min = ahead.number();
  if (!min) return {};
  Repeats repeats{*min, *min};
  spaces();
  if (ahead.eat(",")) {
    spaces();
    repeats.max = ahead.number().value_or(-1);
    spaces();
  }
  if (!ahead.eat("}")) return {};
  cursor = ahead;
  return repeats;
}
// The same, or what * + ? say.
inline std::optional<Repeats> read_repeats(Cursor& cursor) {
  if (cursor.eat("*")) return Repeats{0, -1};
  if (cursor.eat("+")) return Repeats{1, -1};
  if (cursor.eat("?")) return Repeats{0, 1};
  return read_braces(cursor);
}

}  // namespace weft::constrain
