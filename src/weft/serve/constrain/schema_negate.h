// What JSON schemas forbid and make depend on each other, in terms of what they allow.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "weft/serve/constrain/schema_merge.h"

namespace weft::constrain {

// Values, and patterns of texts, that a `not` forbids.
struct Forbidden {
  std::vector<Schema> values;
  std::vector<std::string> patterns;
  bool has(const Schema& value) const;
};
// Nothing when it forbids something else.
std::optional<Forbidden> forbidden_by(const Schema& schema);

// What is not valid under `schema`, or less. Throws UsageError, naming `path` and the keyword, where that cannot be
// said.
Schema negated(const Schema& schema, const std::string& path);

// The same with `if`, `then`, `else`, dependentRequired, dependentSchemas, dependencies and a `not` that forbids more
// than values and patterns as anyOf below allOf, and the older form of prefixItems as the newer one.
Schema with_plain_conditions(const Schema& schema, const std::string& path);

}  // namespace weft::constrain
