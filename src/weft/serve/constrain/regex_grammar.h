// Regular expressions as grammars.
#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "weft/serve/constrain/grammar_builder.h"

namespace weft::constrain {

struct RegexOptions {
  bool searches = false;  // the match may lie anywhere in the text, where no anchor holds it; else it is the whole
  // How one character of a set is written in the output.
  std::function<Element(GrammarBuilder&, const CodePoints&)> character =
      [](GrammarBuilder& builder, const CodePoints& set) { return builder.code_points(set); };
};

// What `expression` matches: literals, escapes, \d \w \s (of ASCII) and their opposites, classes, groups,
// alternatives, quantifiers (lazy ones too, which match the same), ^ and $ at the ends. Throws UsageError that names
// what else there is: lookaround, backreferences, flags, word boundaries, properties.
Element regex_element(GrammarBuilder& builder, std::string_view expression, const RegexOptions& options = {});

// An expression that matches `text`.
std::string escaped_regex(std::string_view text);

}  // namespace weft::constrain
