// JsonText: the pieces of JSON as grammar, as answers write them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "weft/serve/constrain/grammar_builder.h"

namespace weft::constrain {

// Bounds of a number; absent: none.
struct NumberBounds {
  std::optional<int64_t> min, max;
  bool excludes_min = false, excludes_max = false;
};

// White space between tokens is nothing, a space, or a line's end with up to 20 spaces or tabs behind it, so that an
// answer cannot go on with it for ever. Numbers have up to 18 digits before the point, 17 behind it, and an exponent
// of two.
class JsonText {
 public:
  explicit JsonText(GrammarBuilder& builder) : builder_(builder) {}

  Element value();                           // any
  Element object();                          // any
  Element array();                           // any
  Element string(int64_t min, int64_t max);  // of so many code points; max kUnbounded
  Element string_of(std::string_view regex, bool searches);
  Element string_but(std::vector<std::string> texts);  // none of these, and without escapes
  Element number(const NumberBounds& bounds);
  Element integer(const NumberBounds& bounds);
  Element space();
  Sequence punctuation(char c);  // with white space behind it

 private:
  Element character();                          // of a string
  Element character_of(const CodePoints& set);  // one of these, as it is or escaped
  Element rule_named(const char* name, std::optional<Element>& known, void (JsonText::*make)(RuleId));
  void make_value(RuleId rule);
  void make_object(RuleId rule);
  void make_array(RuleId rule);
  void make_character(RuleId rule);
  void make_space(RuleId rule);
  Element digits(int64_t min, int64_t max);
  Element natural(uint64_t min, uint64_t max);  // without leading zeros; both are in it
  Element same_length(std::string_view low, std::string_view high);
  void add_reals(std::string_view sign, const NumberBounds& bounds, std::vector<Sequence>& out);
  RuleId anything_but(const std::vector<std::string>& texts, size_t begin, size_t end, size_t depth);

  GrammarBuilder& builder_;
  std::optional<Element> value_, object_, array_, character_, space_;
};

}  // namespace weft::constrain
