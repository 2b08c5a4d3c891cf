// GBNF: the grammars of llama.cpp.
#pragma once
#include <string_view>

#include "weft/serve/constrain/grammar_builder.h"

namespace weft::constrain {

// Rules `name ::= ...`, one of them `root`: "literals" and [classes] with the escapes \n \t \r \\ \" \[ \] \xHH
// \uHHHH \UHHHHHHHH, the dot for any character, (groups), alternatives with |, the quantifiers * + ? {m} {m,} {m,n},
// and comments from # to the end of the line. A rule goes on in the next line inside parentheses and after ::= or |.
// Throws UsageError with the line.
Element gbnf_element(GrammarBuilder& builder, std::string_view text);

}  // namespace weft::constrain
