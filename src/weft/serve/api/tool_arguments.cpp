// Tagged arguments: a value is of the types that its schema allows, a text where it is of none of them.
#include "weft/serve/api/tool_arguments.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/percent.h"
#include "weft/serve/api/trimmed.h"

namespace weft::api {
namespace {

using nlohmann::ordered_json;

constexpr JsonLimits kValueLimits{.max_bytes = 1 << 20, .max_depth = 64, .max_values = 1 << 16};
constexpr int kDeepestSchema = 16;  // of references and choices, until types are found

std::optional<ordered_json> read_json(std::string_view text) {
  try {
    return parse_ordered_json(text, "an argument", kValueLimits);
  } catch (const Error&) {
    return {};
  }
}

std::string type_of(const ordered_json& value) {
  if (value.is_number_integer()) return "integer";
  return value.is_boolean() ? "boolean" : value.type_name();
}

// What may be allowed; empty: anything.
class AllowedTypes {
 public:
  AllowedTypes(const ordered_json& root, const ordered_json& schema) : root_(root) { add(schema, 0); }

  bool only_text() const { return !is_any_ && types_ == std::set<std::string>{"string"}; }
  bool allow(const std::string& type) const {
    return is_any_ || types_.contains(type) || (type == "integer" && types_.contains("number"));
  }

 private:
  void add(const ordered_json& schema, int depth) {
    if (!schema.is_object() || depth > kDeepestSchema) {
      is_any_ = true;
      return;
    }
    const auto add_all = [&](const ordered_json& list) {
      for (const ordered_json& one : list) add(one, depth + 1);
    };
    if (schema.contains("enum") && schema["enum"].is_array()) {
      for (const ordered_json& value : schema["enum"]) types_.insert(type_of(value));
    } else if (schema.contains("const")) {
      types_.insert(type_of(schema["const"]));
    } else if (schema.contains("type") && schema["type"].is_string()) {
      types_.insert(schema["type"].get<std::string>());
    } else if (schema.contains("type") && schema["type"].is_array()) {
      for (const ordered_json& type : schema["type"])
        if (type.is_string()) types_.insert(type.get<std::string>());
    } else if (schema.contains("anyOf") && schema["anyOf"].is_array()) {
      add_all(schema["anyOf"]);
    } else if (schema.contains("oneOf") && schema["oneOf"].is_array()) {
      add_all(schema["oneOf"]);
    } else if (schema.contains("$ref") && schema["$ref"].is_string()) {
      add(target(schema["$ref"].get<std::string>()), depth + 1);
    } else if (schema.contains("pattern") || schema.contains("minLength") || schema.contains("maxLength")) {
      types_.insert("string");
    } else {
      is_any_ = true;
    }
  }
  ordered_json target(const std::string& reference) const {
    const auto fragment = percent_decoded(std::string_view(reference).substr(std::min<size_t>(1, reference.size())));
    if (!fragment || !reference.starts_with('#')) return {};
    try {
      const ordered_json::json_pointer place(*fragment);
      if (root_.contains(place)) return root_.at(place);
    } catch (const nlohmann::json::exception&) {  // no pointer
    }
    return {};
  }

  const ordered_json& root_;
  std::set<std::string> types_;
  bool is_any_ = false;
};

std::string text_as_json(const std::string& text) {
  return ordered_json(text).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string value_as_json(const std::string& text, const AllowedTypes& types) {
  if (types.only_text()) return text_as_json(text);
  std::string word(trimmed(text));
  // Some templates write these words as Python does, and models learn it.
  if (word == "True") word = "true";
  if (word == "False") word = "false";
  if (word == "None") word = "null";
  const std::optional<ordered_json> value = read_json(word);
  if (!value || value->is_string() || !types.allow(type_of(*value))) return text_as_json(text);
  return word;
}

std::string told_as_json(const std::string& text, bool is_text) {
  const std::string word(trimmed(text));
  return is_text || !read_json(word) ? text_as_json(text) : word;
}

}  // namespace

std::string json_of_arguments(const TaggedArguments& arguments, std::string_view schema) {
  const ordered_json root = read_json(schema).value_or(ordered_json());
  const bool has_properties = root.is_object() && root.contains("properties") && root["properties"].is_object();
  std::vector<std::pair<std::string, std::string>> members;
  for (const auto& [name, text, is_text] : arguments) {
    const bool is_known = has_properties && root["properties"].contains(name);
    const ordered_json own = is_known ? root["properties"][name] : ordered_json();
    const std::string value = is_text ? told_as_json(text, *is_text) : value_as_json(text, {root, own});
    const auto same = std::find_if(members.begin(), members.end(), [&](const auto& m) { return m.first == name; });
    if (same == members.end())
      members.emplace_back(name, value);
    else
      same->second = value;
  }
  std::string object = "{";
  for (const auto& [name, value] : members)
    object += fmt::format("{}{}:{}", object.size() > 1 ? "," : "", text_as_json(name), value);
  return object + "}";
}

}  // namespace weft::api
