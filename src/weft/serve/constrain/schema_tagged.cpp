// JSON schemas of arguments that stand between tags: each by itself, since nothing is written around them all.
#include <algorithm>
#include <set>

#include "weft/base/error.h"
#include "weft/serve/api/marked_arguments.h"
#include "weft/serve/api/python_arguments.h"
#include "weft/serve/constrain/regex_grammar.h"
#include "weft/serve/constrain/schema_compiler.h"
#include "weft/serve/constrain/schema_formats.h"

namespace weft::constrain {
namespace {

constexpr int64_t kMostOthers = 64;  // arguments that the schema does not name
constexpr int64_t kLongestName = 64;
constexpr const char* kTextKeywords[] = {"pattern", "minLength", "maxLength", "not"};

// That begins and ends tags, or a line.
bool fits(const std::string& name, const TaggedForm& form) {
  if (form.is_python) return api::is_python_name(name, false);
  if (form.is_marked) return api::is_bare_name(name);
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
  if (form.is_python) json_.write_python_words();
  if (form.is_marked) json_.write_marked_texts();
  const auto argument = [&](const Sequence& name, const Schema& one, const std::string& where) {
    if (form.is_python || form.is_marked) return name + form.middle + Sequence{compile(one, where)};
    if (!form.json_middle.empty()) return form.open + name + Sequence{marked_value(one, form, where)} + form.close;
    return form.open + name + form.middle + Sequence{tagged_value(one, form, where)} + form.close;
  };
  std::vector<Member> arguments;
  for (const auto& [name, one] : declared) {
    if (one == false && !required.contains(name)) continue;
    if (!fits(name, form)) fail(path, fmt::format("the name '{}' does not fit in the calls of this model", name));
    arguments.push_back({argument(builder_.literal(name), one, fmt::format("{}/properties/{}", path, name)),
                         required.contains(name)});
  }
  const Schema more =
      schema.contains("additionalProperties") ? schema["additionalProperties"] : Schema(declared.empty());
  Sequence other;
  if (more != false) {
    const CodePoints begins{{'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    CodePoints goes_on{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    if (!form.is_python) goes_on.insert(goes_on.begin(), {'-', '-'});
    const Element first = builder_.code_points(form.is_python ? begins : goes_on);
    const Sequence name{first, builder_.repeat({builder_.code_points(goes_on)}, 0, kLongestName - 1)};
    other = argument(name, more, fmt::format("{}/additionalProperties", path));
  }
  return separated(arguments, other, form.separator);
}

// In this order, those that are required and any of the rest, then up to 64 others where there are some.
Element SchemaCompiler::separated(const std::vector<Member>& arguments, const Sequence& more,
                                  const Sequence& separator) {
  Sequence later, first;  // what may follow when an argument came, and when none did
  if (!more.empty()) {
    later = {builder_.repeat(separator + more, 0, kMostOthers)};
    first = {builder_.optional(more + later)};
  }
  for (size_t i = arguments.size(); i-- > 0;) {
    const Sequence with = arguments[i].text + later;
    first = {arguments[i].is_required ? builder_.one_of({with}) : builder_.one_of({with, first})};
    later = {arguments[i].is_required ? builder_.one_of({separator + with})
                                      : builder_.one_of({separator + with, later})};
  }
  return builder_.one_of({first});
}

// Behind tags that say whether the value is a text: as it is, or as JSON.
Element SchemaCompiler::marked_value(const Schema& given, const TaggedForm& form, const std::string& path) {
  const Schema schema = flattened(given, path);
  const auto text = [&](const Schema& one) { return form.middle + Sequence{tagged_value(one, form, path)}; };
  const auto json = [&](const Schema& one) { return form.json_middle + Sequence{compile(one, path)}; };
  if (!schema.is_object()) return builder_.one_of({schema == true ? text(schema) : json(schema), json(schema)});
  if (schema.contains("anyOf") || schema.contains("oneOf")) return builder_.one_of({json(schema)});
  if (schema.contains("enum") || schema.contains("const")) {
    Schema texts = Schema::array(), others = Schema::array();
    for (const Schema& value : values_of(schema, path)) (value.is_string() ? texts : others).push_back(value);
    std::vector<Sequence> ways;
    if (!texts.empty()) ways.push_back(text({{"enum", texts}}));
    if (!others.empty()) ways.push_back(json({{"enum", others}}));
    return builder_.one_of(ways);
  }
  std::vector<std::string> others = types(schema, path);
  const size_t num_types = others.size();
  std::erase(others, "string");
  std::vector<Sequence> ways;
  if (others.size() < num_types) {
    Schema texts = schema;
    texts["type"] = "string";
    ways.push_back(text(texts));
  }
  if (!others.empty()) {
    Schema rest = schema;
    rest["type"] = others;
    ways.push_back(json(rest));
  }
  return builder_.one_of(ways);
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
