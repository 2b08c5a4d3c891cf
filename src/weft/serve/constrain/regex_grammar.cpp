// Regular expressions: a recursive descent that makes a rule of each group and quantifier.
#include "weft/serve/constrain/regex_grammar.h"

#include <algorithm>

#include "weft/serve/constrain/cursor.h"

namespace weft::constrain {
namespace {

const CodePoints kDigits{{'0', '9'}};
const CodePoints kWord{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CodePoints kSpace{{'\t', '\r'}, {' ', ' '}};
const CodePoints kNewline{{'\n', '\n'}};

class RegexParser {
 public:
  RegexParser(GrammarBuilder& builder, std::string_view text, const RegexOptions& options)
      : builder_(builder), cursor_(text), options_(options) {}

  Element parse() {
    const Element all = alternatives(0);
    if (!cursor_.is_at_end()) fail("there is a ) without its (");
    return all;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw UsageError("the regular expression, at byte {}: {}", cursor_.at(), what);
  }
  Element character(const CodePoints& set) const { return options_.character(builder_, set); }
  Element anything() const { return builder_.repeat({character(complement({}))}, 0, kUnbounded); }

  Element alternatives(int depth) {
    std::vector<Sequence> all;
    do {
      Sequence one;
      const bool is_outermost = depth == 0;
      const bool begins = is_outermost && cursor_.eat("^");
      if (is_outermost && options_.searches && !begins) one.push_back(anything());
      sequence(depth, one);
      const bool ends = is_outermost && cursor_.eat("$");
      if (ends && !cursor_.is_at_end() && cursor_.peek() != '|') fail("$ stands at the end only");
      if (is_outermost && options_.searches && !ends) one.push_back(anything());
      all.push_back(std::move(one));
    } while (cursor_.eat("|"));
    return builder_.one_of(all);
  }

  void sequence(int depth, Sequence& out) {
    while (!cursor_.is_at_end() && cursor_.peek() != '|' && cursor_.peek() != ')') {
      if (cursor_.peek() == '$' && depth == 0) return;
      const Element one = atom(depth);
      const std::optional<Repeats> repeats = read_repeats(cursor_);
      if (repeats && !cursor_.eat("?") && cursor_.peek() == '+') fail("possessive quantifiers are not supported");
      out.push_back(repeats ? builder_.repeat({one}, repeats->min, repeats->max) : one);
    }
  }

  Element atom(int depth) {
    switch (cursor_.peek()) {
      case '(': return group(depth);
      case '[': cursor_.skip(1); return character(bracketed());
      case '.': cursor_.skip(1); return character(complement(kNewline));
      case '\\': cursor_.skip(1); return character(escape());
      case '*':
      case '+':
      case '?': fail("there is nothing to repeat");
      case '^':
      case '$': fail("^ and $ are supported at the ends of the expression only");
      default: break;
    }
    if (read_braces(cursor_)) fail("there is nothing to repeat");
    const char32_t c = cursor_.take();
    return character({{c, c}});
  }

  Element group(int depth) {
    if (depth >= kDeepest) fail("groups are nested too deep");
    cursor_.skip(1);
    if (cursor_.eat("?")) {
      for (const char* look : {"=", "!", "<=", "<!"}) {
        if (cursor_.looks_at(look)) fail("lookaround is not supported");
      }
      if (cursor_.eat("P<") || cursor_.eat("<")) {
        const size_t end = cursor_.rest().find('>');
        if (end == std::string_view::npos) fail("the name of a group has no end");
        cursor_.skip(end + 1);
      } else if (cursor_.looks_at("P=")) {
        fail("backreferences are not supported");
      } else if (!cursor_.eat(":")) {
        fail("flags and other groups with (? are not supported");
      }
    }
    const Element inside = alternatives(depth + 1);
    if (!cursor_.eat(")")) fail("a ( has no )");
    return inside;
  }

  CodePoints escape() {
    if (cursor_.is_at_end()) fail("it ends with a backslash");
    const char32_t c = cursor_.take();
    const auto code = [&](size_t digits) -> CodePoints {
      std::optional<char32_t> value;
      if (cursor_.eat("{")) {
        const size_t end = cursor_.rest().find('}');
        if (end != std::string_view::npos && end > 0 && end <= 6) value = cursor_.hex(end);
        if (value) cursor_.skip(1);
      } else {
        value = cursor_.hex(digits);
      }
      if (!value) fail("a code in hexadecimal has too few digits");
      return {{*value, *value}};
    };
    switch (c) {
      case 'd': return kDigits;
      case 'D': return complement(kDigits);
      case 'w': return kWord;
      case 'W': return complement(kWord);
      case 's': return kSpace;
      case 'S': return complement(kSpace);
      case 'n': return kNewline;
      case 't': return {{'\t', '\t'}};
      case 'r': return {{'\r', '\r'}};
      case 'f': return {{'\f', '\f'}};
      case 'v': return {{'\v', '\v'}};
      case '0': return {{0, 0}};
      case 'x': return code(2);
      case 'u': return code(4);
      case 'b':
      case 'B': fail("word boundaries are not supported");
      case 'p':
      case 'P': fail("properties of Unicode are not supported; write the ranges");
      case 'k': fail("backreferences are not supported");
      default: break;
    }
    if (c >= '1' && c <= '9') fail("backreferences are not supported");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
      fail(fmt::format("the escape \\{} is not supported", char(c)));
    return {{c, c}};
  }

  CodePoints bracketed() {
    const bool is_negated = cursor_.eat("^");
    CodePoints set;
    for (bool is_first = true; is_first || cursor_.peek() != ']'; is_first = false) {
      if (cursor_.is_at_end()) fail("a [ has no ]");
      if (cursor_.looks_at("[:")) fail("named classes are not supported; write the ranges");
      const CodePoints low = member();
      const bool is_one = low.size() == 1 && low[0].first == low[0].last;
      if (!is_one || !cursor_.looks_at("-") || cursor_.looks_at("-]")) {
        set.insert(set.end(), low.begin(), low.end());
        continue;
      }
      cursor_.skip(1);
      if (cursor_.is_at_end()) fail("a [ has no ]");
      const CodePoints high = member();
      if (high.size() != 1 || high[0].first != high[0].last || high[0].first < low[0].first)
        fail("a range in a class ends before it begins");
      set.push_back({low[0].first, high[0].first});
    }
    cursor_.skip(1);
    return is_negated ? complement(set) : set;
  }
  CodePoints member() {
    if (cursor_.eat("\\")) {
      if (cursor_.eat("b")) return {{'\b', '\b'}};
      return escape();
    }
    const char32_t c = cursor_.take();
    return {{c, c}};
  }

  GrammarBuilder& builder_;
  Cursor cursor_;
  const RegexOptions& options_;
};

}  // namespace

Element regex_element(GrammarBuilder& builder, std::string_view expression, const RegexOptions& options) {
  return RegexParser(builder, expression, options).parse();
}

std::string escaped_regex(std::string_view text) {
  std::string expression;
  for (const char c : text)
    expression +=
        fmt::format("{}{}", std::string_view(".*+?()[]{}|^$\\/").find(c) == std::string_view::npos ? "" : "\\", c);
  return expression;
}

}  // namespace weft::constrain
