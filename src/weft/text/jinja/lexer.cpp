// The lexer: data up to the next tag, then the inside of the tag.
#include "weft/text/jinja/lexer.h"

#include <charconv>

#include "weft/base/excerpt.h"
#include "weft/text/jinja/python_text.h"
#include "weft/text/utf8.h"

namespace weft::jinja {
namespace {

constexpr size_t kMaxTemplateBytes = 1 << 20;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80) != 0; }
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }

std::string with_plain_line_breaks(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    result += text[i] == '\r' ? '\n' : text[i];
  }
  if (result.ends_with('\n')) result.pop_back();
  return result;
}

class Lexer {
 public:
  Lexer(std::string text, std::string_view source) : text_(std::move(text)), source_(source) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) read_data_and_tag();
    push(TokenKind::end);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw Error("{}, line {}: {}", source_, line_, what); }

  bool starts(std::string_view part) const { return std::string_view(text_).substr(at_).starts_with(part); }
  void advance(size_t count) {
    line_ += int(std::count(text_.begin() + ptrdiff_t(at_), text_.begin() + ptrdiff_t(at_ + count), '\n'));
    at_ += count;
  }
  bool skip(std::string_view part) {
    if (!starts(part)) return false;
    advance(part.size());
    return true;
  }
  void skip_spaces() {
    while (at_ < text_.size()) {
      const Utf8CodePoint point = read_utf8(std::string_view(text_).substr(at_));
      if (!is_space(point.value)) return;
      advance(point.length);
    }
  }

  Token& push(TokenKind kind, std::string text = {}) {
    return tokens_.emplace_back(Token{.kind = kind, .line = line_, .text = std::move(text)});
  }

  // The next "{{", "{%" or "{#", or the end.
  size_t next_tag(size_t from) const {
    for (size_t at = text_.find('{', from); at != text_.npos; at = text_.find('{', at + 1)) {
      if (at + 1 < text_.size() && std::string_view("{%#").find(text_[at + 1]) != std::string_view::npos) return at;
    }
    return text_.size();
  }

  void read_data_and_tag() {
    const size_t tag = next_tag(at_);
    const std::string_view data = std::string_view(text_).substr(at_, tag - at_);
    const bool is_print = tag < text_.size() && text_[tag + 1] == '{';
    const char sign = tag + 2 < text_.size() ? text_[tag + 2] : ' ';
    push_data(without_indent(data, tag < text_.size() ? sign : '+', is_print));
    advance(tag - at_);
    if (at_ == text_.size()) return;
    const char kind = text_[at_ + 1];
    advance(2);
    if (sign == '-' || sign == '+') advance(1);
    if (kind == '#') {
      read_comment();
    } else if (kind == '{') {
      push(TokenKind::print_begin);
      read_inside("}}", TokenKind::print_end);
    } else if (!read_raw()) {
      push(TokenKind::block_begin);
      read_inside("%}", TokenKind::block_end);
    }
  }

  void push_data(std::string_view data) {
    if (!data.empty()) push(TokenKind::data, std::string(data));
  }

  // Data before a tag: "-" takes all white space; else blocks and comments take what stands before them on a line
  // of their own, unless "+" forbids it.
  std::string_view without_indent(std::string_view data, char sign, bool is_print) const {
    if (sign == '-') return data.substr(0, stripped(data, Side::right).size());
    if (sign == '+' || is_print) return data;
    const size_t line_begin = data.rfind('\n') + 1;  // npos + 1 == 0
    const bool is_whole_line = line_begin > 0 || at_line_begin_;
    return is_whole_line && stripped(data.substr(line_begin), Side::both).empty() ? data.substr(0, line_begin) : data;
  }

  // What follows a tag's end: "-" takes all white space, a block or comment its line break unless "+" forbids it.
  void skip_after_tag(char sign, bool is_print) {
    at_line_begin_ = false;
    if (sign == '-') {
      const size_t before = at_;
      skip_spaces();
      at_line_begin_ = at_ > before && text_[at_ - 1] == '\n';
    } else if (sign != '+' && !is_print) {
      at_line_begin_ = skip("\n");
    }
  }

  // "-%}", "+%}" or "%}": skips it and gives the sign, or 0.
  char skip_end(std::string_view end, bool allows_plus) {
    const bool has_sign = at_ < text_.size() && (text_[at_] == '-' || (allows_plus && text_[at_] == '+'));
    const char sign = has_sign ? text_[at_] : ' ';
    if (!std::string_view(text_).substr(at_ + has_sign).starts_with(end)) return 0;
    advance(end.size() + has_sign);
    return sign;
  }

  void read_comment() {
    const size_t end = text_.find("#}", at_);
    if (end == text_.npos) fail("a comment is not closed; write #}");
    const char sign = end > at_ ? text_[end - 1] : ' ';
    advance(end + 2 - at_);
    skip_after_tag(sign == '-' || sign == '+' ? sign : ' ', false);
  }

  // {% raw %}...{% endraw %}, of which all is data; false when the tag is another.
  bool read_raw() {
    const size_t begin = at_;
    const int begin_line = line_;
    const auto is_other = [&] {
      at_ = begin, line_ = begin_line;
      return false;
    };
    skip_spaces();
    if (!skip("raw")) return is_other();
    skip_spaces();
    const char sign = skip_end("%}", false);
    if (sign == 0) return is_other();
    skip_after_tag(sign, true);  // keeps the line break after it
    for (size_t tag = text_.find("{%", at_); tag != text_.npos; tag = text_.find("{%", tag + 2)) {
      if (read_end_of_raw(tag)) return true;
    }
    fail("a raw block is not closed; write {% endraw %}");
  }

  bool read_end_of_raw(size_t tag) {
    const size_t data_begin = at_;
    const int data_line = line_;
    const char sign = tag + 2 < text_.size() ? text_[tag + 2] : ' ';
    at_ = tag + 2 + (sign == '-' || sign == '+');  // lines are counted once it is the end
    skip_spaces();
    const bool is_end = skip("endraw");
    skip_spaces();
    const char end_sign = is_end ? skip_end("%}", true) : 0;
    if (end_sign == 0) {
      at_ = data_begin, line_ = data_line;
      return false;
    }
    const std::string_view data = std::string_view(text_).substr(data_begin, tag - data_begin);
    const int tag_lines = std::exchange(line_, data_line) - data_line;
    push_data(without_indent(data, sign, false));
    line_ += tag_lines + int(std::count(data.begin(), data.end(), '\n'));
    skip_after_tag(end_sign, false);
    return true;
  }

  // The inside of a tag, up to its end outside of all brackets.
  void read_inside(std::string_view end, TokenKind end_kind) {
    const bool is_print = end_kind == TokenKind::print_end;
    std::string brackets;  // that are to be closed
    for (;;) {
      skip_spaces();
      if (at_ == text_.size()) fail(fmt::format("a tag is not closed; write {}", end));
      if (brackets.empty()) {
        if (const char sign = skip_end(end, !is_print)) {
          push(end_kind);
          skip_after_tag(sign, is_print);
          return;
        }
      }
      read_token(brackets);
    }
  }

  void read_token(std::string& brackets) {
    const char c = text_[at_];
    if (is_name_start(c)) {
      size_t end = at_;
      while (end < text_.size() && is_name_part(text_[end])) ++end;
      constexpr size_t kMaxNameBytes = 255;
      if (end - at_ > kMaxNameBytes) fail(fmt::format("a name has more than {} bytes", kMaxNameBytes));
      push(TokenKind::name, text_.substr(at_, end - at_));
      advance(end - at_);
    } else if (is_digit(c)) {
      read_number();
    } else if (c == '\'' || c == '"') {
      read_string(c);
    } else {
      read_sign(brackets);
    }
  }

  void read_sign(std::string& brackets) {
    constexpr std::string_view kSigns[] = {"**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<",
                                           ">",  "=",  "(",  ")",  "[",  "]",  "{", "}", ".", ":", "|", ","};
    const auto sign = std::find_if(std::begin(kSigns), std::end(kSigns), [&](auto s) { return starts(s); });
    if (sign == std::end(kSigns)) fail(fmt::format("'{}' has no meaning in a tag", excerpt(text_.substr(at_, 1))));
    constexpr std::string_view kOpening = "([{", kClosing = ")]}";
    if (const size_t opening = kOpening.find((*sign)[0]); opening != kOpening.npos) brackets += kClosing[opening];
    if (kClosing.find((*sign)[0]) != kClosing.npos) {
      if (brackets.empty()) fail(fmt::format("'{}' closes nothing", *sign));
      if (brackets.back() != (*sign)[0]) fail(fmt::format("'{}' where '{}' was expected", *sign, brackets.back()));
      brackets.pop_back();
    }
    push(TokenKind::sign, std::string(*sign));
    advance(sign->size());
  }

  // Python's numbers, without imaginary ones: 1_000, 0xff, 1.5, 1e-3.
  void read_number() {
    const size_t begin = at_;
    size_t end = at_;
    const auto skip_digits = [&] {
      while (end < text_.size() && (is_digit(text_[end]) || (text_[end] == '_' && end > begin))) ++end;
    };
    int base = 10;
    if (text_[at_] == '0' && at_ + 1 < text_.size()) {
      const char letter = char(text_[at_ + 1] | 0x20);
      base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
    }
    bool is_float = false;
    if (base != 10) {
      end += 2;
      while (end < text_.size() && is_name_part(text_[end])) ++end;
    } else {
      skip_digits();
      const bool follows_point = begin > 0 && text_[begin - 1] == '.';  // value.0.1 has two positions
      if (!follows_point && end + 1 < text_.size() && text_[end] == '.' && is_digit(text_[end + 1])) {
        is_float = true, ++end, skip_digits();
      }
      const size_t sign = end + 1 < text_.size() && (text_[end + 1] == '-' || text_[end + 1] == '+') ? 1 : 0;
      if (end + 1 + sign < text_.size() && (text_[end] | 0x20) == 'e' && is_digit(text_[end + 1 + sign])) {
        is_float = true, end += 1 + sign, skip_digits();
      }
    }
    std::string digits = text_.substr(begin + (base == 10 ? 0 : 2), end - begin - (base == 10 ? 0 : 2));
    std::erase(digits, '_');
    Token& token = push(TokenKind::literal);
    token.value = is_float ? parsed<double>(digits) : Value(parsed<int64_t>(digits, base));
    advance(end - begin);
  }

  template <class T, class... Base>
  T parsed(const std::string& digits, Base... base) const {
    T value{};
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base...);
    if (error != std::errc() || end != digits.data() + digits.size()) {
      fail(fmt::format("'{}' is no number that templates can hold", excerpt(digits, 40)));
    }
    return value;
  }

  void read_string(char quote) {
    Token token{.kind = TokenKind::literal, .line = line_};
    advance(1);
    std::string text;
    while (at_ < text_.size() && text_[at_] != quote) {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) {
        read_escape(text);
      } else {
        text += text_[at_];
        advance(1);
      }
    }
    if (at_ == text_.size()) fail("a string is not closed");
    advance(1);
    token.value = std::move(text);
    tokens_.push_back(std::move(token));
  }

  // A backslash and what follows, as in Python's strings; unknown ones stay as they are.
  void read_escape(std::string& text) {
    constexpr std::string_view kLetters = "abfnrtv\\'\"", kMeanings = "\a\b\f\n\r\t\v\\'\"";
    const char letter = text_[at_ + 1];
    const size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    if (const size_t known = kLetters.find(letter); known != kLetters.npos) {
      text += kMeanings[known];
      advance(2);
    } else if (letter == '\n') {
      advance(2);
    } else if (digits > 0) {
      advance(2);
      append_utf8(read_code_point(digits), text);
    } else if (letter >= '0' && letter <= '7') {
      char32_t value = 0;
      size_t count = 0;
      for (; count < 3 && at_ + 1 + count < text_.size(); ++count) {
        const char digit = text_[at_ + 1 + count];
        if (digit < '0' || digit > '7') break;
        value = value * 8 + char32_t(digit - '0');
      }
      advance(1 + count);
      append_utf8(value, text);
    } else {
      text += '\\';
      advance(1);
    }
  }

  char32_t read_code_point(size_t digits) {
    const std::string hex = text_.substr(at_, digits);
    uint32_t value = 0;
    const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
    const bool is_valid = error == std::errc() && hex.size() == digits && end == hex.data() + digits &&
                          value <= 0x10ffff && (value < 0xd800 || value > 0xdfff);
    if (!is_valid) fail(fmt::format("'{}' is not the number of a character", excerpt(hex)));
    advance(digits);
    return value;
  }

  std::string text_;
  std::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
  bool at_line_begin_ = true;  // of what follows the last tag
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize_template(std::string_view text, std::string_view source) {
  if (text.size() > kMaxTemplateBytes) {
    throw Error("{}: a template of {} bytes; at most {} are read", source, text.size(), kMaxTemplateBytes);
  }
  return Lexer(with_plain_line_breaks(text), source).run();
}

}  // namespace weft::jinja
