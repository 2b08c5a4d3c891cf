// Random JSON schemas, documents that are valid under them, and a check that follows the schema rather than a
// grammar.
#pragma once
#include <nlohmann/json.hpp>
#include <random>

namespace weft::constrain {

using Json = nlohmann::ordered_json;

inline Json random_schema(std::mt19937& random, int depth) {
  const int kind = int(random() % (depth > 0 ? 8 : 5));
  if (kind == 0) return {{"type", "string"}, {"minLength", random() % 3}, {"maxLength", 3 + random() % 4}};
  if (kind == 1) {
    const int min = int(random() % 300) - 150;
    return {{"type", "integer"}, {"minimum", min}, {"maximum", min + int(random() % 200)}};
  }
  if (kind == 2) return {{"enum", {"red", "green", 3, nullptr}}};
  if (kind == 3) return {{"type", "boolean"}};
  if (kind == 4) return {{"type", "number"}};
  if (kind == 5) return {{"anyOf", {random_schema(random, depth - 1), random_schema(random, depth - 1)}}};
  if (kind == 6)
    return {
        {"type", "array"}, {"items", random_schema(random, depth - 1)}, {"minItems", random() % 2}, {"maxItems", 3}};
  Json schema = {{"type", "object"},
                 {"properties", Json::object()},
                 {"required", Json::array()},
                 {"additionalProperties", false}};
  for (const char* name : {"z", "a", "name with \"quotes\"", "n"}) {
    if (random() % 3 == 0) continue;
    schema["properties"][name] = random_schema(random, depth - 1);
    if (random() % 2) schema["required"].push_back(name);
  }
  return schema;
}

inline Json random_document(const Json& schema, std::mt19937& random) {
  if (schema.contains("anyOf")) return random_document(schema["anyOf"][random() % 2], random);
  if (schema.contains("enum")) return schema["enum"][random() % schema["enum"].size()];
  const std::string type = schema["type"];
  if (type == "boolean") return random() % 2 == 0;
  if (type == "number") return double(int(random() % 20001) - 10000) / 64;
  if (type == "integer") {
    const int min = schema["minimum"], max = schema["maximum"];
    return min + int(random() % unsigned(max - min + 1));
  }
  if (type == "string") {
    const size_t min = schema["minLength"], max = schema["maxLength"];
    static const std::vector<std::string> characters = {"a", "\"", "\\", "\n", "\xC3\xA9", "\xF0\x9F\x98\x80", "/"};
    std::string text;
    for (size_t n = min + random() % (max - min + 1); n > 0; --n) text += characters[random() % characters.size()];
    return text;
  }
  if (type == "array") {
    Json list = Json::array();
    const size_t min = schema["minItems"], max = schema["maxItems"];
    for (size_t n = min + random() % (max - min + 1); n > 0; --n)
      list.push_back(random_document(schema["items"], random));
    return list;
  }
  Json object = Json::object();
  for (const auto& [name, one] : schema["properties"].items()) {
    const Json& required = schema["required"];
    const bool must = std::find(required.begin(), required.end(), name) != required.end();
    if (must || random() % 2) object[name] = random_document(one, random);
  }
  return object;
}

inline size_t num_characters(const std::string& text) {
  return size_t(std::count_if(text.begin(), text.end(), [](char c) { return (uint8_t(c) & 0xC0) != 0x80; }));
}

// Of the schemas above.
inline bool is_valid(const Json& schema, const Json& value) {
  const auto any = [](const Json& list, auto is_true) { return std::any_of(list.begin(), list.end(), is_true); };
  if (schema.contains("anyOf")) return any(schema["anyOf"], [&](const Json& one) { return is_valid(one, value); });
  if (schema.contains("enum")) return any(schema["enum"], [&](const Json& one) { return one == value; });
  const std::string type = schema["type"];
  if (type == "boolean") return value.is_boolean();
  if (type == "number") return value.is_number();
  if (type == "integer") return value.is_number_integer() && value >= schema["minimum"] && value <= schema["maximum"];
  if (type == "string") {
    if (!value.is_string()) return false;
    const size_t n = num_characters(value.get<std::string>());
    return n >= schema["minLength"].get<size_t>() && n <= schema["maxLength"].get<size_t>();
  }
  if (type == "array")
    return value.is_array() && value.size() >= schema["minItems"].get<size_t>() &&
           value.size() <= schema["maxItems"].get<size_t>() &&
           !any(value, [&](const Json& one) { return !is_valid(schema["items"], one); });
  if (!value.is_object()) return false;
  for (const Json& name : schema["required"]) {
    if (!value.contains(name.get<std::string>())) return false;
  }
  for (const auto& [name, one] : value.items()) {
    if (!schema["properties"].contains(name) || !is_valid(schema["properties"][name], one)) return false;
  }
  return true;
}

}  // namespace weft::constrain
