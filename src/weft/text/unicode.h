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
// In the language-independent mapping, by which one letter may become several.
std::string upper_case(std::string_view text);
std::string lower_case(std::string_view text);
std::string title_case(char32_t code_point);  // how a word begins with it
// Calls visit with each extended grapheme cluster.
void for_each_grapheme(std::string_view text, FunctionRef<void(std::string_view)> visit);

bool is_white_space(char32_t c);  // the property White_Space
bool is_word(char32_t c);  // \w of Unicode technical standard 18: alphabetic, marks, digits, connectors, joiners
bool is_mark(char32_t c);  // categories Mn, Mc, Me
bool is_nonspacing_mark(char32_t c);  // Mn
bool is_number(char32_t c);           // Nd, Nl, No
bool is_punctuation(char32_t c);      // P, and every ASCII character that is neither letter, digit, space nor control
bool is_letter(char32_t c);           // L
bool is_cased(char32_t c);            // the property Cased: has, or is, an upper or lower case
bool is_decimal_digit(char32_t c);    // Nd
bool is_digit(char32_t c);            // those, and digits such as superscripts
bool is_unassigned(char32_t c);       // Cn
bool is_separator(char32_t c);        // Zs, Zl, Zp
bool is_other(char32_t c);            // Cc, Cf, Co, Cs: but not what is unassigned

}  // namespace weft
