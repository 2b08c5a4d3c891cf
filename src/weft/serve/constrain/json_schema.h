// JSON schemas as grammars of the texts that are valid under them.
#pragma once
#include <string_view>

#include "weft/serve/constrain/grammar_builder.h"

namespace weft::constrain {

// A text that is matched is valid; not every valid text is matched: properties come in the order of the schema, those
// that additionalProperties allows behind them, in keys without escapes. Where there are `properties` and no
// additionalProperties, or prefixItems and no `items`, no others come; oneOf is read as anyOf; maxLength and maxItems
// are at most GrammarLimits::repeats. White space and digits are bounded (JsonText).
//
// Throws UsageError that names the place and the keyword when one is not supported that would change what is valid.
Element json_schema_element(GrammarBuilder& builder, std::string_view schema);

}  // namespace weft::constrain
