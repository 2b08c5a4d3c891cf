// JsonText: rules that are made when first asked for, since values hold values.
#include "weft/serve/constrain/json_text.h"

#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/serve/api/marked_arguments.h"
#include "weft/serve/constrain/control_marks.h"
#include "weft/serve/constrain/number_text.h"
#include "weft/serve/constrain/regex_grammar.h"

namespace weft::constrain {
namespace {

// What stands in a string as it is.
CodePoints plain_characters() { return complement({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}); }

constexpr const char* kMarkPattern = "<\\|\"\\|>";
constexpr const char* kNotBare = "^$|[,:{}\\[\\]<\\s]";  // what api::is_bare_name refuses

std::vector<Sequence> not_escaped(uint8_t) { return {}; }

}  // namespace

Element JsonText::rule_named(const char* name, std::optional<Element>& known, void (JsonText::*make)(RuleId)) {
  if (!known) {
    const RuleId rule = builder_.add_rule(name);
    known = GrammarBuilder::rule(rule);
    (this->*make)(rule);
  }
  return *known;
}

Element JsonText::value() { return rule_named("value", value_, &JsonText::make_value); }
Element JsonText::object() { return rule_named("object", object_, &JsonText::make_object); }
Element JsonText::array() { return rule_named("array", array_, &JsonText::make_array); }
Element JsonText::character() { return rule_named("character", character_, &JsonText::make_character); }
Element JsonText::space() { return rule_named("space", space_, &JsonText::make_space); }

void JsonText::make_value(RuleId rule) {
  for (const Element& one : {object(), array(), string(0, kUnbounded), NumberText(builder_).number({})})
    builder_.add_alternative(rule, {one});
  for (const char* one : {"true", "false", "null"}) builder_.add_alternative(rule, {word(one)});
}

Element JsonText::word(std::string_view json) {
  const char* const python = json == "true" ? "True" : json == "false" ? "False" : "None";
  std::vector<Sequence> ways{builder_.literal(json)};
  if (has_python_words_) ways.push_back(builder_.literal(python));
  return builder_.one_of(ways);
}

Sequence JsonText::punctuation(char c) { return builder_.literal(std::string_view(&c, 1)) + Sequence{space()}; }

void JsonText::make_object(RuleId rule) {
  const Sequence member = Sequence{name(), space()} + punctuation(':') + Sequence{value(), space()};
  const Element more = builder_.repeat(punctuation(',') + member, 0, kUnbounded);
  builder_.add_alternative(
      rule, punctuation('{') + Sequence{builder_.optional(member + Sequence{more})} + builder_.literal("}"));
}

void JsonText::make_array(RuleId rule) {
  const Sequence item{value(), space()};
  const Element more = builder_.repeat(punctuation(',') + item, 0, kUnbounded);
  builder_.add_alternative(
      rule, punctuation('[') + Sequence{builder_.optional(item + Sequence{more})} + builder_.literal("]"));
}

void JsonText::make_space(RuleId rule) {
  builder_.add_alternative(rule, {});
  builder_.add_alternative(rule, builder_.literal(" "));
  builder_.add_alternative(
      rule,
      builder_.literal("\n") + Sequence{builder_.repeat({builder_.bytes(ByteSet().set(' ').set('\t'))}, 0, 20)});
}

void JsonText::make_character(RuleId rule) {
  builder_.add_alternative(rule, {builder_.code_points(plain_characters())});
  const auto one_of = [&](std::string_view bytes) {
    ByteSet set;
    for (const char c : bytes) set.set(uint8_t(c));
    return builder_.bytes(set);
  };
  const Element hex = one_of("0123456789abcdefABCDEF"), u = one_of("u"), backslash = one_of("\\"), d = one_of("dD");
  builder_.add_alternative(rule, {backslash, one_of("\"\\/bfnrt")});
  builder_.add_alternative(rule, {backslash, u, one_of("0123456789abcefABCEF"), hex, hex, hex});
  builder_.add_alternative(rule, {backslash, u, d, one_of("01234567"), hex, hex});
  // A pair of surrogates is one character.
  builder_.add_alternative(
      rule, {backslash, u, d, one_of("89abAB"), hex, hex, backslash, u, d, one_of("cdefCDEF"), hex, hex});
}

Sequence JsonText::quote() {
  return has_marks_ ? Sequence{mark_element(builder_, api::kTextMark)} : builder_.literal("\"");
}

// Of texts that have marks around them, those of limited lengths have no '<', with which a mark begins.
Element JsonText::string(int64_t min, int64_t max) {
  if (has_marks_ && min == 0 && max == kUnbounded) {
    if (!marked_text_)
      marked_text_ = builder_.one_of({quote() + Sequence{text_without(builder_, kMarkPattern)} + quote()});
    return *marked_text_;
  }
  const Element one = has_marks_ ? builder_.code_points(complement({{'<', '<'}})) : character();
  return builder_.one_of({quote() + Sequence{builder_.repeat({one}, min, max)} + quote()});
}

Element JsonText::name() {
  if (!has_marks_) return string(0, kUnbounded);
  if (!bare_name_) bare_name_ = text_without(builder_, kNotBare);
  return *bare_name_;
}

Element JsonText::name_of(const TextAutomaton& names) {
  if (!has_marks_) return string_of(names);
  return (names - TextAutomaton::of_regex(kNotBare)).element(builder_, not_escaped);
}

Sequence JsonText::name_of(std::string_view name) {
  return has_marks_ && api::is_bare_name(name) ? builder_.literal(name) : string_of(name);
}

Sequence JsonText::string_of(std::string_view text) {
  if (has_marks_) return quote() + builder_.literal(text) + quote();
  using Json = nlohmann::ordered_json;
  return builder_.literal(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::vector<Sequence> JsonText::escapes(uint8_t c) {
  static constexpr std::pair<char, char> kShort[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                                     {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};
  std::vector<Sequence> ways;
  for (const auto& [plain, letter] : kShort) {
    if (c == uint8_t(plain)) ways.push_back(builder_.literal(fmt::format("\\{}", letter)));
  }
  if (c < 0x20) ways.push_back(builder_.literal(fmt::format("\\u{:04x}", c)));
  return ways;
}

Element JsonText::character_of(const CodePoints& set) {
  std::vector<Sequence> ways{{builder_.code_points(intersection(set, plain_characters()))}};
  for (const CodePointRange& range : intersection(set, {{0, 0x7F}})) {
    for (char32_t c = range.first; c <= range.last; ++c) {
      for (const Sequence& way : escapes(uint8_t(c))) ways.push_back(way);
    }
  }
  return builder_.one_of(ways);
}

Element JsonText::string_of(std::string_view regex, bool searches) {
  if (has_marks_) return string_of(TextAutomaton::of_regex(searches ? regex : fmt::format("^(?:{})$", regex)));
  const Element inside = regex_element(
      builder_, regex, {.searches = searches, .character = [this](GrammarBuilder&, const CodePoints& set) {
                          return character_of(set);
                        }});
  return builder_.one_of({quote() + Sequence{inside} + quote()});
}

Element JsonText::string_of(const TextAutomaton& texts) {
  const Element inside = has_marks_ ? (texts - TextAutomaton::of_regex(kMarkPattern)).element(builder_, not_escaped)
                                    : texts.element(builder_, [this](uint8_t c) { return escapes(c); });
  return builder_.one_of({quote() + Sequence{inside} + quote()});
}

}  // namespace weft::constrain
