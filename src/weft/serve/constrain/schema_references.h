// References of a JSON schema, made plain.
#pragma once
#include "weft/serve/constrain/schema_merge.h"

namespace weft::constrain {

// The schema with each $ref as "#/...", a pointer from its root: those by $anchor and $id too, and those from within
// a part that has an $id of its own; without the percent-encoding of fragments (RFC 6901, section 6). Throws
// UsageError for a $ref that leads out of the schema.
Schema with_plain_references(Schema root);

}  // namespace weft::constrain
