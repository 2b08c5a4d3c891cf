// Lexer: a template's text as tokens: what stands between the tags, and the names, numbers and signs inside them.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "weft/text/jinja/value.h"

namespace weft::jinja {

enum class TokenKind { data, block_begin, block_end, print_begin, print_end, name, sign, literal, end };

struct Token {
  TokenKind kind = TokenKind::end;
  int line = 0;
  std::string text;  // of data (with white space already removed), names and signs
  Value value;       // of literals: text, integers, floats
};

// The tokens of a template, ended by one of kind `end`. White space around tags is treated as Hugging Face sets Jinja
// up: a tag's line gives up its indentation and its line break (trim_blocks, lstrip_blocks), and the template its
// last line break. Throws Error "SOURCE, line N: ..." for text that is no template.
std::vector<Token> tokenize_template(std::string_view text, std::string_view source);

}  // namespace weft::jinja
