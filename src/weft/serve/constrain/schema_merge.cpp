// Merging of JSON schemas: what cannot be decided here, such as two schemas of one property, becomes an allOf below.
#include "weft/serve/constrain/schema_merge.h"

#include <algorithm>
#include <set>

#include "weft/base/error.h"

namespace weft::constrain {
namespace {

constexpr size_t kMostWays = 256;  // of two lists of schemas that are joined

Schema both(const Schema& a, const Schema& b) { return {{"allOf", Schema::array({a, b})}}; }

bool contains(const Schema& list, const Schema& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

Schema as_list(const Schema& value) { return value.is_array() ? value : Schema::array({value}); }

Schema common_types(const Schema& a, const Schema& b) {
  Schema types = Schema::array();
  for (const Schema& type : as_list(a)) {
    if (contains(as_list(b), type) || (type == "integer" && contains(as_list(b), "number")))
      types.push_back(type);
    else if (type == "number" && contains(as_list(b), "integer"))
      types.push_back("integer");
  }
  return types;
}

Schema common(const Schema& a, const Schema& b) {
  Schema values = Schema::array();
  for (const Schema& value : as_list(a)) {
    if (contains(as_list(b), value)) values.push_back(value);
  }
  return values;
}

Schema joined(const std::string& key, const Schema& a, const Schema& b, const std::string& path) {
  static const std::set<std::string> lower = {"minimum",  "exclusiveMinimum", "minLength",
                                              "minItems", "minProperties",    "minContains"};
  static const std::set<std::string> upper = {"maximum", "exclusiveMaximum", "maxLength", "maxItems",
                                              "maxProperties"};
  if (lower.contains(key) && a.is_number() && b.is_number()) return std::max(a, b);
  if (upper.contains(key) && a.is_number() && b.is_number()) return std::min(a, b);
  if (key == "type") return common_types(a, b);
  if (key == "enum") return common(a, b);
  if (key == "const") return Schema();  // they differ; see merge_schemas
  if (key == "items" || key == "additionalProperties" || key == "propertyNames") return both(a, b);
  if (key == "uniqueItems") return true;
  if (key == "not") return {{"anyOf", Schema::array({a, b})}};
  Schema result = a;
  if (key == "pattern") {
    result = as_list(a);
    for (const Schema& one : as_list(b)) result.push_back(one);
    return result;
  }
  if (key == "required" && a.is_array() && b.is_array()) {
    for (const Schema& name : b) {
      if (!contains(a, name)) result.push_back(name);
    }
    return result;
  }
  if ((key == "properties" || key == "patternProperties") && a.is_object() && b.is_object()) {
    for (const auto& [name, schema] : b.items()) result[name] = a.contains(name) ? both(a[name], schema) : schema;
    return result;
  }
  if ((key == "anyOf" || key == "oneOf") && a.is_array() && b.is_array()) {
    if (a.size() * b.size() > kMostWays) throw UsageError("{}: joined, {} has over {} schemas", path, key, kMostWays);
    result = Schema::array();
    for (const Schema& one : a) {
      for (const Schema& other : b) result.push_back(both(one, other));
    }
    return result;
  }
  throw UsageError("{}: two schemas with {} cannot be joined", path, key);
}

// `other` with its properties that `closed` does not declare under the additionalProperties of that one; also those
// that its patterns have, which asks for more than it does.
Schema within(const Schema& closed, Schema other) {
  if (!closed.contains("additionalProperties") || closed["additionalProperties"] == true) return other;
  const Schema& more = closed["additionalProperties"];
  for (const char* key : {"properties", "patternProperties"}) {
    if (!other.contains(key) || !other[key].is_object()) continue;
    for (const auto& [name, schema] : other[key].items()) {
      if (closed.contains(key) && closed[key].contains(name)) continue;
      schema = more == false ? more : both(schema, more);
    }
  }
  return other;
}

}  // namespace

bool is_annotation(const std::string& keyword) {
  static const std::set<std::string> words = {
      "title",           "description", "default",      "examples", "example", "deprecated",  "readOnly",
      "writeOnly",       "$schema",     "$id",          "$comment", "$defs",   "$anchor",     "contentMediaType",
      "definitions",     "strict",      "id",           "format",   "name",    "$vocabulary", "discriminator",
      "contentEncoding", "nullable",    "externalDocs", "xml"};
  return words.contains(keyword) || keyword.starts_with("x-");
}

Schema merge_schemas(const Schema& a, const Schema& b, const std::string& path) {
  if (b.is_boolean()) return b.get<bool>() ? a : b;
  if (a.is_boolean()) return a.get<bool>() ? b : a;
  if (!a.is_object() || !b.is_object()) throw UsageError("{}: a schema is an object, true or false", path);
  Schema result = within(b, a);
  const Schema other = within(a, b);
  for (const auto& [key, value] : other.items()) {
    if (!result.contains(key))
      result[key] = value;
    else if (result[key] != value && key == "const")
      return false;
    else if (result[key] != value && !is_annotation(key))
      result[key] = joined(key, result[key], value, path);
  }
  return result;
}

}  // namespace weft::constrain
