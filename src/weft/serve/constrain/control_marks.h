// Marks of models in grammars: texts that may also be control tokens.
#pragma once
#include <string>
#include <string_view>

#include "weft/serve/constrain/grammar_builder.h"
#include "weft/serve/constrain/text_automaton.h"

namespace weft::constrain {

// Before the spelling of a control token, where that may stand for the text: no text has this byte, and TokenMasks
// begin the bytes of such tokens with it.
constexpr char kControlByte = char(0xFF);

inline Element mark_element(GrammarBuilder& builder, std::string_view spelling) {
  std::string control(1, kControlByte);
  control += spelling;
  return builder.one_of({builder.literal(spelling), builder.literal(control)});
}

// Any text, and no control token, without what `expression` matches.
inline Element text_without(GrammarBuilder& builder, std::string_view expression) {
  const TextAutomaton texts = TextAutomaton::all() - TextAutomaton::of_regex(expression);
  return texts.element(builder, [](uint8_t) { return std::vector<Sequence>(); });
}

}  // namespace weft::constrain
