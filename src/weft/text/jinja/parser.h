// Parser: the tokens of a template as a tree of statements.
#pragma once
#include <string_view>

#include "weft/text/jinja/statements.h"

namespace weft::jinja {

struct ParsedTemplate {
  Body body;
  bool has_generation_blocks = false;
};

// Throws Error "SOURCE, line N: ..." for what is no template, or uses a part of Jinja that chat templates do not:
// other files ({% include %}, {% import %}, {% extends %}), blocks, translations, recursive loops.
ParsedTemplate parse_template(std::string_view text, std::string_view source);

}  // namespace weft::jinja
