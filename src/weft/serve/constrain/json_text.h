// JsonText: the pieces of JSON as grammar, as answers write them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "weft/serve/constrain/grammar_builder.h"
#include "weft/serve/constrain/text_automaton.h"

namespace weft::constrain {

// Or of what is JSON but for its texts, which stand as they are between marks, and its names, which stand bare
// (api/marked_arguments.h). White space between tokens is nothing, a space, or a line's end with up to 20 spaces or
// tabs behind it, so that an answer cannot go on with it for ever.
class JsonText {
 public:
  explicit JsonText(GrammarBuilder& builder) : builder_(builder) {}

  Element value();                           // any
  Element object();                          // any
  Element array();                           // any
  Element string(int64_t min, int64_t max);  // of so many code points; max kUnbounded
  Element string_of(std::string_view regex, bool searches);
  Element string_of(const TextAutomaton& texts);  // escaped where that must be
  Sequence string_of(std::string_view text);
  Element name();  // of a member: any
  Element name_of(const TextAutomaton& names);
  Sequence name_of(std::string_view name);
  // true, false or null; once it is asked for, also as Python has it.
  Element word(std::string_view json);
  void write_python_words() { has_python_words_ = true; }
  // Before anything is asked for.
  void write_marked_texts() { has_marks_ = true; }
  bool has_marks() const { return has_marks_; }
  Element space();
  Sequence punctuation(char c);  // with white space behind it

 private:
  Sequence quote();
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
  bool has_python_words_ = false, has_marks_ = false;
  std::optional<Element> value_, object_, array_, character_, space_, marked_text_, bare_name_;
};

}  // namespace weft::constrain
