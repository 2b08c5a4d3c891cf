// Negation of schemas: a keyword's opposite is that of the type it speaks of, since others pass it.
#include "weft/serve/constrain/schema_negate.h"

#include <algorithm>
#include <map>
#include <set>

#include "weft/base/error.h"

namespace weft::constrain {
namespace {

Schema list_of(const Schema& value) { return value.is_array() ? value : Schema::array({value}); }

Schema other_types(const Schema& type) {
  const Schema given = list_of(type);
  Schema others = Schema::array();
  for (const char* name : {"object", "array", "string", "number", "boolean", "null"}) {
    const bool is_part =
        std::string_view(name) == "number" && std::find(given.begin(), given.end(), "integer") != given.end();
    if (!is_part && std::find(given.begin(), given.end(), name) == given.end()) others.push_back(name);
  }
  return {{"type", others}};
}

// Of "minLength": 3 it is "maxLength": 2, of texts.
std::optional<Schema> opposite_bound(const std::string& key, const Schema& value) {
  struct Opposite {
    const char *type, *key;
    int step;
  };
  static const std::map<std::string, Opposite> opposites = {{"minimum", {"number", "exclusiveMaximum", 0}},
                                                            {"maximum", {"number", "exclusiveMinimum", 0}},
                                                            {"exclusiveMinimum", {"number", "maximum", 0}},
                                                            {"exclusiveMaximum", {"number", "minimum", 0}},
                                                            {"minLength", {"string", "maxLength", -1}},
                                                            {"maxLength", {"string", "minLength", 1}},
                                                            {"minItems", {"array", "maxItems", -1}},
                                                            {"maxItems", {"array", "minItems", 1}},
                                                            {"minProperties", {"object", "maxProperties", -1}},
                                                            {"maxProperties", {"object", "minProperties", 1}}};
  const auto found = opposites.find(key);
  if (found == opposites.end() || !value.is_number()) return {};
  const auto& [type, other, step] = found->second;
  if (step < 0 && value <= 0) return Schema(false);
  Schema result = {{"type", type}};
  if (step == 0)
    result[other] = value;
  else
    result[other] = value.get<double>() + step;
  return result;
}

Schema opposite(const std::string& key, const Schema& value, const std::string& path) {
  if (auto bound = opposite_bound(key, value)) return *bound;
  if (key == "type") return other_types(value);
  if (key == "const") return {{"not", {{"enum", Schema::array({value})}}}};
  if (key == "enum") return {{"not", {{"enum", value}}}};
  if (key == "pattern") return {{"type", "string"}, {"not", {{"pattern", value}}}};
  if (key == "not") return value;
  Schema ways = Schema::array();
  if (key == "required" && value.is_array()) {
    for (const Schema& name : value) {
      if (name.is_string()) ways.push_back({{"type", "object"}, {"properties", {{name.get<std::string>(), false}}}});
    }
    return {{"anyOf", ways}};
  }
  if (key == "properties" && value.is_object()) {
    for (const auto& [name, one] : value.items()) {
      Schema way = {{"type", "object"}, {"properties", {{name, negated(one, path)}}}};
      way["required"] = Schema::array({name});
      ways.push_back(way);
    }
    return {{"anyOf", ways}};
  }
  if ((key == "anyOf" || key == "allOf") && value.is_array()) {
    for (const Schema& one : value) ways.push_back(negated(one, path));
    return {{key == "anyOf" ? "allOf" : "anyOf", ways}};
  }
  throw UsageError("{}: the opposite of {} is not supported", path, key);
}

}  // namespace

bool Forbidden::has(const Schema& value) const {
  return std::find(values.begin(), values.end(), value) != values.end();
}

std::optional<Forbidden> forbidden_by(const Schema& schema) {
  if (!schema.is_object()) return {};
  Forbidden result;
  size_t num_keywords = 0;
  for (const auto& [key, value] : schema.items()) {
    if (is_annotation(key) && key != "format") continue;
    ++num_keywords;
    if (key == "const") {
      result.values.push_back(value);
    } else if (key == "enum" && value.is_array()) {
      result.values.insert(result.values.end(), value.begin(), value.end());
    } else if (key == "pattern" && value.is_string()) {
      result.patterns.push_back(value.get<std::string>());
    } else if (key == "anyOf" && value.is_array()) {
      for (const Schema& one : value) {
        const auto part = forbidden_by(one);
        if (!part) return {};
        result.values.insert(result.values.end(), part->values.begin(), part->values.end());
        result.patterns.insert(result.patterns.end(), part->patterns.begin(), part->patterns.end());
      }
    } else {
      return {};
    }
  }
  return num_keywords == 1 ? std::optional(result) : std::nullopt;
}

Schema negated(const Schema& schema, const std::string& path) {
  if (schema.is_boolean()) return !schema.get<bool>();
  if (!schema.is_object()) throw UsageError("{}: a schema is an object, true or false", path);
  Schema ways = Schema::array();
  for (const auto& [key, value] : schema.items()) {
    if (!is_annotation(key) || key == "format") ways.push_back(opposite(key, value, path));
  }
  if (ways.empty()) return false;
  return ways.size() == 1 ? ways[0] : Schema({{"anyOf", ways}});
}

Schema with_plain_conditions(const Schema& schema, const std::string& path) {
  if (!schema.is_object()) return schema;
  Schema rest = schema, parts = Schema::array();
  const auto taken = [&](const char* key) {
    Schema value = rest.contains(key) ? rest[key] : Schema(true);
    rest.erase(key);
    return value;
  };
  const auto all = [](const Schema& a, const Schema& b) { return Schema({{"allOf", Schema::array({a, b})}}); };
  const auto either = [&](const Schema& a, const Schema& b) { parts.push_back({{"anyOf", Schema::array({a, b})}}); };
  if (schema.contains("if")) {
    const Schema condition = taken("if"), yes = taken("then"), no = taken("else");
    if (yes != true || no != true) either(all(condition, yes), all(negated(condition, path), no));
  }
  taken("then"), taken("else");  // without an `if` they say nothing
  for (const char* key : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    const Schema dependents = taken(key);
    if (dependents != true && !dependents.is_object()) throw UsageError("{}: {} is an object", path, key);
    if (!dependents.is_object()) continue;
    for (const auto& [name, needed] : dependents.items()) {
      const Schema has = {{"required", Schema::array({name})}};
      const Schema then = needed.is_array() ? Schema({{"required", needed}}) : needed;
      either({{"properties", {{name, false}}}}, all(has, then));
    }
  }
  if (rest.contains("not") && !forbidden_by(rest["not"])) parts.push_back(negated(taken("not"), path));
  if (rest.contains("items") && rest["items"].is_array()) {
    rest["prefixItems"] = taken("items");
    if (rest.contains("additionalItems")) rest["items"] = taken("additionalItems");
  }
  if (parts.empty()) return rest;
  if (rest.contains("allOf") && rest["allOf"].is_array())
    for (const Schema& part : rest["allOf"]) parts.push_back(part);
  rest["allOf"] = parts;
  return rest;
}

}  // namespace weft::constrain
