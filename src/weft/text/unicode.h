// Unicode: the properties, normal forms and text boundaries that tokenizers ask for, by ICU.
#pragma once
#include <string>
#include <string_view>

#include "weft/base/function_ref.h"

namespace weft {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

// Texts are UTF-8; bytes that are not become U+FFFD.
std::string normalized(std::string_view text, NormalForm form);
void append_lowercase(char32_t code_point, std::string& text);  // without regard to what stands around it
// Calls visit with each extended grapheme cluster.
void for_each_grapheme(std::string_view text, FunctionRef<void(std::string_view)> visit);

bool is_white_space(char32_t c);      // the property White_Space
bool is_word(char32_t c);             // \w of Unicode technical standard 18: alphabetic, marks, digits, connectors, joiners
bool is_mark(char32_t c);             // categories Mn, Mc, Me
bool is_nonspacing_mark(char32_t c);  // Mn
bool is_number(char32_t c);           // Nd, Nl, No
bool is_punctuation(char32_t c);      // P, and every ASCII character that is neither letter, digit, space nor control
bool is_other(char32_t c);            // Cc, Cf, Co, Cs: but not what is unassigned

}  // namespace weft
