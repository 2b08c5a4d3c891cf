// JSON schemas as grammars of the texts that are valid under them.
#pragma once
#include <string_view>

#include "weft/serve/constrain/grammar_builder.h"

namespace weft::constrain {

// A text that is matched is valid; not every valid text is matched: properties come in the order of the schema, and
// behind them those of patternProperties and additionalProperties, in keys that escape nothing but what they must.
// Where there are `properties` or patternProperties and no additionalProperties, or prefixItems and no `items`, no
// others come; items that must differ come in the order of their enum; keywords of one type without `type` are those
// of this type alone. Maxima of counts are at most GrammarLimits::repeats. White space and digits are bounded
// (JsonText, NumberText). The one looser reading: oneOf is anyOf.
//
// What draft 2020-12 says of pattern, lengths and names at once, and of multiples, is a TextAutomaton; if, not and
// dependents become anyOf (schema_negate.h); formats that regex_of_format() does not have are annotations, as are
// those that make it too large. Throws UsageError that names the place and the keyword when one is not supported that
// would change what is valid.
Element json_schema_element(GrammarBuilder& builder, std::string_view schema);

// The same of an object whose members stand between tags: see SchemaCompiler::tagged().
struct TaggedForm;
Element tagged_schema_element(GrammarBuilder& builder, std::string_view schema, const TaggedForm& form);

}  // namespace weft::constrain
