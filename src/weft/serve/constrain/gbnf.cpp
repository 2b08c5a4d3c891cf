// GBNF: a recursive descent; a rule that is named before it is written exists from then on.
#include "weft/serve/constrain/gbnf.h"

#include <algorithm>
#include <map>
#include <set>

#include "weft/base/excerpt.h"
#include "weft/serve/constrain/cursor.h"
#include "weft/serve/constrain/grammar_builder.h"

namespace weft::constrain {
namespace {

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

class GbnfParser {
 public:
  GbnfParser(GrammarBuilder& builder, std::string_view text) : builder_(builder), cursor_(text) {}

  Element parse() {
    for (skip_space(true); !cursor_.is_at_end(); skip_space(true)) parse_rule();
    for (const auto& [name, rule] : rules_) {
      if (!is_written_.contains(name)) throw UsageError("the grammar has no rule {}", excerpt(name, 60));
    }
    const auto root = rules_.find("root");
    if (root == rules_.end()) throw UsageError("the grammar has no rule root, where it begins");
    return GrammarBuilder::rule(root->second);
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    const std::string_view read = cursor_.read();
    throw UsageError("line {} of the grammar: {}", std::count(read.begin(), read.end(), '\n') + 1, what);
  }

  void skip_space(bool over_lines) {
    for (;;) {
      const char c = cursor_.peek();
      if (c == '#') {
        cursor_.skip(std::min(cursor_.rest().find('\n'), cursor_.rest().size()));
      } else if (!cursor_.is_at_end() && (c == ' ' || c == '\t' || (over_lines && (c == '\n' || c == '\r')))) {
        cursor_.skip(1);
      } else {
        return;
      }
    }
  }

  std::string name() {
    const std::string_view rest = cursor_.rest();
    const auto end = std::find_if_not(rest.begin(), rest.end(), is_name_character);
    const std::string found(rest.begin(), end);
    if (found.empty()) fail("the name of a rule is missing");
    cursor_.skip(found.size());
    return found;
  }
  RuleId rule_of(const std::string& name) {
    const auto [entry, is_new] = rules_.try_emplace(name, 0);
    if (is_new) entry->second = builder_.add_rule(excerpt(name, 60));
    return entry->second;
  }

  void parse_rule() {
    const std::string rule = name();
    skip_space(false);
    if (!cursor_.eat("::=")) fail("::= is missing behind the name of a rule");
    if (!is_written_.insert(rule).second) fail(fmt::format("there is a rule {} already", excerpt(rule, 60)));
    skip_space(true);
    builder_.add_alternative(rule_of(rule), {alternatives(0)});
    if (!cursor_.is_at_end() && cursor_.peek() != '\n' && cursor_.peek() != '\r')
      fail(fmt::format("'{}' cannot stand here", excerpt(cursor_.rest(), 1)));
  }

  Element alternatives(int depth) {
    std::vector<Sequence> all{sequence(depth)};
    while (cursor_.eat("|")) {
      skip_space(true);
      all.push_back(sequence(depth));
    }
    return builder_.one_of(all);
  }

  Sequence sequence(int depth) {
    Sequence out;
    for (;;) {
      skip_space(depth > 0);
      const std::optional<Sequence> one = item(depth);
      if (!one) return out;
      skip_space(depth > 0);
      const std::optional<Repeats> repeats = read_repeats(cursor_);
      if (repeats)
        out.push_back(builder_.repeat(*one, repeats->min, repeats->max));
      else
        out.insert(out.end(), one->begin(), one->end());
    }
  }

  std::optional<Sequence> item(int depth) {
    if (cursor_.eat("\"")) return literal();
    if (cursor_.eat("[")) return Sequence{builder_.code_points(bracketed())};
    if (cursor_.eat(".")) return Sequence{builder_.code_points(complement({}))};
    if (cursor_.eat("(")) {
      if (depth >= kDeepest) fail("groups are nested too deep");
      skip_space(true);
      const Element inside = alternatives(depth + 1);
      skip_space(true);
      if (!cursor_.eat(")")) fail("a ( has no )");
      return Sequence{inside};
    }
    if (!is_name_character(cursor_.peek())) return {};
    return Sequence{GrammarBuilder::rule(rule_of(name()))};
  }

  char32_t character() {
    if (cursor_.is_at_end() || cursor_.peek() == '\n') fail("a literal or class has no end in its line");
    if (!cursor_.eat("\\")) return cursor_.take();
    if (cursor_.is_at_end()) fail("it ends with a backslash");
    const char32_t c = cursor_.take();
    switch (c) {
      case 'n': return '\n';
      case 't': return '\t';
      case 'r': return '\r';
      case '\\':
      case '"':
      case '[':
      case ']':
      case '^':
      case '-': return c;
      default: break;
    }
    std::optional<char32_t> value;
    if (c == 'x') value = cursor_.hex(2);
    if (c == 'u') value = cursor_.hex(4);
    if (c == 'U') value = cursor_.hex(8);
    if (!value || *value > 0x10FFFF || (*value >= 0xD800 && *value < 0xE000))
      fail("an escape is none of \\n \\t \\r \\\\ \\\" \\[ \\] \\xHH \\uHHHH \\UHHHHHHHH");
    return *value;
  }

  Sequence literal() {
    std::string text;
    while (!cursor_.eat("\"")) append_utf8(character(), text);
    return builder_.literal(text);
  }

  CodePoints bracketed() {
    const bool is_negated = cursor_.eat("^");
    CodePoints set;
    while (!cursor_.eat("]")) {
      const char32_t first = character();
      char32_t last = first;
      if (cursor_.looks_at("-") && !cursor_.looks_at("-]")) {
        cursor_.skip(1);
        last = character();
        if (last < first) fail("a range in a class ends before it begins");
      }
      set.push_back({first, last});
    }
    return is_negated ? complement(set) : set;
  }

  GrammarBuilder& builder_;
  Cursor cursor_;
  std::map<std::string, RuleId> rules_;
  std::set<std::string> is_written_;
};

}  // namespace

Element gbnf_element(GrammarBuilder& builder, std::string_view text) { return GbnfParser(builder, text).parse(); }

}  // namespace weft::constrain
