// JSON schemas of arguments that stand between tags: each by itself, since nothing is written around them all.
#include <algorithm>
#include <set>

#include "weft/base/error.h"
#include "weft/serve/constrain/regex_grammar.h"
#include "weft/serve/constrain/schema_compiler.h"
#include "weft/serve/constrain/schema_formats.h"

namespace weft::constrain {
namespace {

constexpr int64_t kMostOthers = 64;  // arguments that the schema does not name
constexpr int64_t kLongestName = 64;
constexpr const char* kTextKeywords[] = {"pattern", "minLength", "maxLength", "not"};

// That begins and ends tags, or a line.
bool fits_in_tag(const std::string& name) {
  return !name.empty() && name.find_first_of("<>\"\n") == std::string::npos;
}

bool is_any_text(const Schema& schema) {
  return std::none_of(std::begin(kTextKeywords), std::end(kTextKeywords),
                      [&](const char* keyword) { return schema.contains(keyword); });
}

}  // namespace

Element SchemaCompiler::tagged(const Schema& given, const TaggedForm& form, const std::string& path) {
  const Schema schema = flattened(given, path);
  if (schema == false) fail(path, "no arguments are valid");
  if (!schema.is_object() && schema != true) fail(path, "a schema is an object, true or false");
  for (const char* keyword : {"anyOf", "oneOf", "not", "enum", "const", "patternProperties", "propertyNames",
                              "minProperties", "maxProperties"}) {
    if (schema.contains(keyword))
      fail(path,
           fmt::format("{} of all arguments is not supported, since this model writes each by itself", keyword));
  }
  if (schema.contains("type") && schema["type"] != "object") fail(path, "arguments are an object");
  const Schema none = Schema::object(), no_names = Schema::array();
  const Schema& properties = schema.contains("properties") ? schema["properties"] : none;
  const Schema& needed = schema.contains("required") ? schema["required"] : no_names;
  if (!properties.is_object()) fail(path, "properties is an object");
  if (!needed.is_array()) fail(path, "required is a list of names");
  std::set<std::string> required;
  std::vector<std::pair<std::string, Schema>> declared;
  for (const auto& [name, one] : properties.items()) declared.emplace_back(name, one);
  for (const Schema& name : needed) {
    if (!name.is_string()) fail(path, "required is a list of names");
    if (required.insert(name.get<std::string>()).second && !properties.contains(name.get<std::string>()))
      declared.emplace_back(name.get<std::string>(), Schema(true));
  }
  Sequence all;
  for (const auto& [name, one] : declared) {
    if (one == false && !required.contains(name)) continue;
    if (!fits_in_tag(name)) fail(path, fmt::format("the name '{}' does not fit in the tags of this model", name));
    const Sequence argument = form.open + builder_.literal(name) + form.middle +
                              Sequence{tagged_value(one, form, fmt::format("{}/properties/{}", path, name))} +
                              form.close;
    all = all + (required.contains(name) ? argument : Sequence{builder_.optional(argument)});
  }
  const Schema more =
      schema.contains("additionalProperties") ? schema["additionalProperties"] : Schema(declared.empty());
  if (more != false) {
    const Element letter = builder_.code_points({{'-', '-'}, {'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
    const Sequence argument = form.open + Sequence{builder_.repeat({letter}, 1, kLongestName)} + form.middle +
                              Sequence{tagged_value(more, form, fmt::format("{}/additionalProperties", path))} +
                              form.close;
    all.push_back(builder_.repeat(argument, 0, kMostOthers));
  }
  return builder_.one_of({all});
}

Element SchemaCompiler::tagged_value(const Schema& given, const TaggedForm& form, const std::string& path) {
  const Schema schema = flattened(given, path);
  if (schema == true) return plain_text(Schema::object(), form, path);
  if (!schema.is_object()) return compile(schema, path);
  if (++depth_ > kDeepest) fail(path, "the schema is nested too deep");
  std::vector<Sequence> ways;
  const char* const keyword = schema.contains("anyOf") ? "anyOf" : schema.contains("oneOf") ? "oneOf" : nullptr;
  if (keyword) {
    if (!schema[keyword].is_array()) fail(path, fmt::format("{} is a list", keyword));
    Schema rest = schema;
    rest.erase(keyword);
    for (const Schema& part : schema[keyword])
      ways.push_back({tagged_value({{"allOf", Schema::array({rest, part})}}, form, path)});
  } else if (schema.contains("enum") || schema.contains("const")) {
    std::vector<std::string> texts;
    for (const Schema& value : values_of(schema, path)) {
      const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
      if (text.find(form.stop) == std::string::npos) texts.push_back(text);
    }
    ways.push_back({builder_.one_of_texts(texts)});
  } else {
    const std::vector<std::string> allowed = types(schema, path);
    const bool is_text = std::find(allowed.begin(), allowed.end(), "string") != allowed.end();
    if (is_text) ways.push_back({plain_text(schema, form, path)});
    for (const std::string& type : allowed) {
      if (type != "string" && !(is_text && is_any_text(schema))) ways.push_back({of_type(type, schema, path)});
    }
  }
  --depth_;
  return builder_.one_of(ways);
}

// Texts of the schema, as they are.
Element SchemaCompiler::plain_text(const Schema& schema, const TaggedForm& form, const std::string& path) {
  const auto none = [](uint8_t) { return std::vector<Sequence>(); };
  Schema all = schema;
  const bool has_format = schema.contains("format") && schema["format"].is_string();
  if (const char* format = has_format ? regex_of_format(schema["format"].get<std::string>()) : nullptr) {
    all["pattern"] = patterns(schema, path);
    all["pattern"].push_back(fmt::format("^(?:{})$", format));
  }
  const bool is_any = is_any_text(all);
  if (is_any && any_text_) return *any_text_;
  const TextAutomaton texts = texts_of(all, path) - TextAutomaton::of_regex(escaped_regex(form.stop));
  const Element element = texts.element(builder_, none);
  if (is_any) any_text_ = element;
  return element;
}

}  // namespace weft::constrain
