// JsonText: the pieces of JSON as grammar, as answers write them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "weft/serve/constrain/grammar_builder.h"
#include "weft/serve/constrain/text_automaton.h"

namespace weft::constrain {

// White space between tokens is nothing, a space, or a line's end with up to 20 spaces or tabs behind it, so that an
// answer cannot go on with it for ever.
class JsonText {
 public:
  explicit JsonText(GrammarBuilder& builder) : builder_(builder) {}

  Element value();                           // any
  Element object();                          // any
  Element array();                           // any
  Element string(int64_t min, int64_t max);  // of so many code points; max kUnbounded
  Element string_of(std::string_view regex, bool searches);
  Element string_of(const TextAutomaton& texts);  // escaped where that must be
  // true, false or null; once it is asked for, also as Python has it.
  Element word(std::string_view json);
  void write_python_words() { has_python_words_ = true; }
  Element space();
  Sequence punctuation(char c);  // with white space behind it

 private:
  Element character();                          // of a string
  Element character_of(const CodePoints& set);  // one of these, as it is or escaped
  std::vector<Sequence> escapes(uint8_t c);     // of what cannot stand as it is; else none
  Element rule_named(const char* name, std::optional<Element>& known, void (JsonText::*make)(RuleId));
  void make_value(RuleId rule);
  void make_object(RuleId rule);
  void make_array(RuleId rule);
  void make_character(RuleId rule);
  void make_space(RuleId rule);

  GrammarBuilder& builder_;
  bool has_python_words_ = false;
  std::optional<Element> value_, object_, array_, character_, space_;
};

}  // namespace weft::constrain
