// JSON schemas: references become rules, so that schemas may hold themselves; the rest is expanded where it stands.
#include "weft/serve/constrain/json_schema.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "weft/base/error.h"
#include "weft/base/excerpt.h"
#include "weft/base/json.h"
#include "weft/serve/constrain/json_text.h"
#include "weft/serve/constrain/schema_merge.h"

namespace weft::constrain {
namespace {

constexpr int kMostSchemas = 1 << 14;
constexpr int64_t kMostBound = 999'999'999'999'999'999;

std::string dump(const Schema& value) { return value.dump(-1, ' ', false, Schema::error_handler_t::replace); }

// Of texts that say a format; the others of the specification are read as annotations.
const char* regex_of_format(const std::string& format) {
#define WEFT_DATE                                                                                 \
  "(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|" \
  "02-(?:0[1-9]|1\\d|2[0-8]))|(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
#define WEFT_TIME "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define WEFT_BYTE "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
  static const std::map<std::string, const char*> formats = {
      {"date", WEFT_DATE},
      {"time", WEFT_TIME},
      {"date-time", WEFT_DATE "T" WEFT_TIME},
      {"uuid", "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"},
      {"ipv4", WEFT_BYTE "(?:\\." WEFT_BYTE "){3}"},
      {"email", "[A-Za-z0-9_%+-]{1,32}(?:\\.[A-Za-z0-9_%+-]{1,16}){0,2}@(?:[a-z0-9]{1,32}\\.){1,3}[a-z]{2,12}"}};
#undef WEFT_DATE
#undef WEFT_TIME
#undef WEFT_BYTE
  const auto found = formats.find(format);
  return found == formats.end() ? nullptr : found->second;
}

class SchemaCompiler {
 public:
  SchemaCompiler(GrammarBuilder& builder, const Schema& root) : builder_(builder), json_(builder), root_(root) {}

  Element compile(const Schema& schema, const std::string& path) {
    if (++depth_ > kDeepest)
      throw UsageError("{}: the schema is nested too deep, or a $ref with keywords beside it leads to itself", path);
    if (++num_schemas_ > kMostSchemas) throw UsageError("the schema holds over {} schemas", kMostSchemas);
    const Element element = compile_one(schema, path);
    --depth_;
    return element;
  }

 private:
  [[noreturn]] static void fail(const std::string& path, std::string_view what) {
    throw UsageError("{}: {}", excerpt(path), what);
  }

  static void refuse_unsupported(const Schema& schema, const std::string& path) {
    for (const char* keyword :
         {"not", "if", "then", "else", "patternProperties", "propertyNames", "minProperties", "maxProperties",
          "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties", "unevaluatedItems",
          "contains", "minContains", "maxContains", "$dynamicRef", "$recursiveRef", "additionalItems"}) {
      if (schema.contains(keyword)) fail(path, fmt::format("{} is not supported", keyword));
    }
    if (schema.contains("uniqueItems") && schema["uniqueItems"] != false) fail(path, "uniqueItems is not supported");
    if (schema.contains("multipleOf") && schema["multipleOf"] != 1) fail(path, "multipleOf is not supported");
  }

  Element compile_one(const Schema& schema, const std::string& path) {
    if (schema.is_boolean()) return schema.get<bool>() ? json_.value() : builder_.one_of({});
    if (!schema.is_object()) fail(path, "a schema is an object, true or false");
    refuse_unsupported(schema, path);
    const auto is_alone = [&](const char* keyword) {
      return std::all_of(schema.items().begin(), schema.items().end(), [&](const auto& item) {
        return item.key() == keyword || (is_annotation(item.key()) && item.key() != "format");
      });
    };
    if (schema.contains("$ref")) {
      const std::string pointer = pointer_of(schema, path);
      if (is_alone("$ref")) return reference(pointer, path);
      Schema rest = schema;
      rest.erase("$ref");
      return compile(merge_schemas(target(pointer, path), rest, path), path);
    }
    if (schema.contains("allOf")) return compile(all_of(schema, path), path);
    for (const char* keyword : {"anyOf", "oneOf"}) {
      if (schema.contains(keyword)) return any_of(schema, keyword, is_alone(keyword), path);
    }
    if (schema.contains("const") || schema.contains("enum")) return values(schema, path);
    std::vector<Sequence> ways;
    for (const std::string& type : types(schema, path)) ways.push_back({of_type(type, schema, path)});
    return builder_.one_of(ways);
  }

  static std::string pointer_of(const Schema& schema, const std::string& path) {
    if (!schema["$ref"].is_string()) fail(path, "$ref is a text");
    const std::string reference = schema["$ref"].get<std::string>();
    if (!reference.starts_with("#") || (reference.size() > 1 && reference[1] != '/'))
      fail(path, fmt::format("$ref {}: only #/... within the schema is supported", excerpt(reference, 80)));
    return reference.substr(1);
  }
  const Schema& target(const std::string& pointer, const std::string& path) const {
    try {
      const Schema::json_pointer place(pointer);
      if (root_.contains(place)) return root_.at(place);
    } catch (const nlohmann::json::exception&) {  // no pointer
    }
    fail(path, fmt::format("$ref #{}: there is nothing", excerpt(pointer, 80)));
  }
  Element reference(const std::string& pointer, const std::string& path) {
    const auto [entry, is_new] = references_.try_emplace(pointer, 0);
    if (is_new) {
      const RuleId rule = builder_.add_rule(excerpt("#" + pointer, 80));
      entry->second = rule;
      builder_.add_alternative(rule, {compile(target(pointer, path), "#" + pointer)});
      return GrammarBuilder::rule(rule);
    }
    return GrammarBuilder::rule(entry->second);
  }

  Schema all_of(const Schema& schema, const std::string& path) const {
    const Schema& parts = schema["allOf"];
    if (!parts.is_array()) fail(path, "allOf is a list");
    Schema merged = schema;
    merged.erase("allOf");
    for (const Schema& part : parts) {
      // What a reference leads to is joined; an allOf inside is joined with it.
      Schema one = part;
      for (int i = 0; one.is_object() && (one.contains("$ref") || one.contains("allOf")); ++i) {
        if (i > kDeepest) fail(path, "an allOf leads to itself");
        if (one.contains("$ref")) {
          const Schema& to = target(pointer_of(one, path), path);
          one.erase("$ref");
          one = merge_schemas(to, one, path);
        } else {
          Schema rest = one;
          rest.erase("allOf");
          if (!one["allOf"].is_array()) fail(path, "allOf is a list");
          for (const Schema& inner : one["allOf"]) rest = merge_schemas(rest, inner, path);
          one = rest;
        }
      }
      merged = merge_schemas(merged, one, path);
    }
    return merged;
  }

  Element any_of(const Schema& schema, const char* keyword, bool is_alone, const std::string& path) {
    if (!schema[keyword].is_array()) fail(path, fmt::format("{} is a list", keyword));
    Schema rest = schema;
    rest.erase(keyword);
    std::vector<Sequence> ways;
    for (size_t i = 0; i < schema[keyword].size(); ++i) {
      const std::string place = fmt::format("{}/{}/{}", path, keyword, i);
      const Schema& part = schema[keyword][i];
      const Schema both = {{"allOf", Schema::array({rest, part})}};
      ways.push_back({compile(is_alone ? part : both, place)});
    }
    return builder_.one_of(ways);
  }

  static bool is_of_type(const Schema& value, const std::string& type) {
    if (type == "integer")
      return value.is_number_integer() ||
             (value.is_number() && value.get<double>() == std::rint(value.get<double>()));
    if (type == "number") return value.is_number();
    return type == (value.is_boolean() ? "boolean" : value.type_name());
  }
  Element values(const Schema& schema, const std::string& path) {
    if (schema.contains("enum") && !schema["enum"].is_array()) fail(path, "enum is a list");
    for (const char* keyword :
         {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "pattern",
          "minItems", "maxItems", "items", "prefixItems", "properties", "required"}) {
      if (schema.contains(keyword)) fail(path, fmt::format("enum or const beside {} is not supported", keyword));
    }
    Schema values = schema.contains("enum") ? schema["enum"] : Schema::array({schema["const"]});
    std::vector<std::string> texts;
    const std::vector<std::string> allowed =
        schema.contains("type") ? types(schema, path) : std::vector<std::string>();
    for (const Schema& value : values) {
      if (schema.contains("const") && value != schema["const"]) continue;
      const bool fits = std::any_of(allowed.begin(), allowed.end(),
                                    [&](const std::string& type) { return is_of_type(value, type); });
      if (fits || !schema.contains("type")) texts.push_back(dump(value));
    }
    return builder_.one_of_texts(texts);
  }

  static std::vector<std::string> types(const Schema& schema, const std::string& path) {
    static const std::vector<std::string> all = {"object", "array", "string", "number", "boolean", "null"};
    std::vector<std::string> found;
    if (schema.contains("type")) {
      const Schema& type = schema["type"];
      for (const Schema& one : type.is_array() ? type : Schema::array({type})) {
        const std::string name = one.is_string() ? one.get<std::string>() : "";
        if (name != "integer" && std::find(all.begin(), all.end(), name) == all.end())
          fail(path, "type is one of object, array, string, number, integer, boolean, null, or a list of them");
        found.push_back(name);
      }
      return found;
    }
    const auto has = [&](std::initializer_list<const char*> keywords) {
      return std::any_of(keywords.begin(), keywords.end(), [&](const char* k) { return schema.contains(k); });
    };
    if (has({"properties", "required", "additionalProperties"})) found.push_back("object");
    if (has({"items", "prefixItems", "minItems", "maxItems"})) found.push_back("array");
    if (has({"pattern", "minLength", "maxLength"})) found.push_back("string");
    if (has({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})) found.push_back("number");
    return found.empty() ? all : found;
  }

  Element of_type(const std::string& type, const Schema& schema, const std::string& path) {
    if (type == "object") return object(schema, path);
    if (type == "array") return array(schema, path);
    if (type == "string") return string(schema, path);
    if (type == "integer") return json_.integer(bounds(schema, true, path));
    if (type == "number") return json_.number(bounds(schema, false, path));
    if (type == "null") return builder_.one_of({builder_.literal("null")});
    return builder_.one_of({builder_.literal("true"), builder_.literal("false")});
  }

  // A count of things; kUnbounded or 0 when it is absent.
  int64_t count(const Schema& schema, const char* keyword, int64_t otherwise, const std::string& path) const {
    if (!schema.contains(keyword)) return otherwise;
    const Schema& value = schema[keyword];
    if (!value.is_number() || value.get<double>() < 0 || value.get<double>() != std::rint(value.get<double>()))
      fail(path, fmt::format("{} is a whole number, 0 or more", keyword));
    return int64_t(std::min(value.get<double>(), 1e9));
  }
  int64_t most(const Schema& schema, const char* keyword, const std::string& path) const {
    return std::min(count(schema, keyword, kUnbounded, path), builder_.limits().repeats);
  }

  Element string(const Schema& schema, const std::string& path) {
    const int64_t min = count(schema, "minLength", 0, path), max = most(schema, "maxLength", path);
    const bool has_lengths = min > 0 || max != kUnbounded;
    if (schema.contains("pattern")) {
      if (has_lengths) fail(path, "pattern beside minLength or maxLength is not supported");
      if (!schema["pattern"].is_string()) fail(path, "pattern is a text");
      return json_.string_of(schema["pattern"].get<std::string>(), true);
    }
    if (!has_lengths && schema.contains("format") && schema["format"].is_string()) {
      if (const char* regex = regex_of_format(schema["format"].get<std::string>()))
        return json_.string_of(regex, false);
    }
    return json_.string(min, max);
  }

  // The tighter of `keyword` and what is there.
  static void tighten(const Schema& value, bool is_lower, bool excludes, bool is_integer, const char* keyword,
                      NumberBounds& bounds, const std::string& path) {
    if (!value.is_number()) fail(path, fmt::format("{} is a number", keyword));
    double whole = value.get<double>();
    if (whole != std::rint(whole)) {
      if (!is_integer) fail(path, fmt::format("{} of a number that is not whole is not supported", keyword));
      whole = is_lower ? std::ceil(whole) : std::floor(whole);
      excludes = false;
    }
    if (std::abs(whole) > double(kMostBound)) fail(path, fmt::format("{} has over 18 digits", keyword));
    const int64_t bound = value.is_number_integer() ? value.get<int64_t>() : int64_t(whole);
    std::optional<int64_t>& known = is_lower ? bounds.min : bounds.max;
    bool& is_excluded = is_lower ? bounds.excludes_min : bounds.excludes_max;
    if (known == bound) {
      is_excluded = is_excluded || excludes;
    } else if (!known || (is_lower ? bound > *known : bound < *known)) {
      known = bound;
      is_excluded = excludes;
    }
  }
  static NumberBounds bounds(const Schema& schema, bool is_integer, const std::string& path) {
    NumberBounds bounds;
    for (const bool is_lower : {true, false}) {
      const char* const keyword = is_lower ? "minimum" : "maximum";
      const char* const exclusive = is_lower ? "exclusiveMinimum" : "exclusiveMaximum";
      const bool is_flag = schema.contains(exclusive) && schema[exclusive].is_boolean();  // in older drafts
      if (schema.contains(keyword))
        tighten(schema[keyword], is_lower, is_flag && schema[exclusive].get<bool>(), is_integer, keyword, bounds,
                path);
      if (schema.contains(exclusive) && !is_flag)
        tighten(schema[exclusive], is_lower, true, is_integer, exclusive, bounds, path);
    }
    return bounds;
  }

  Element object(const Schema& schema, const std::string& path);
  Element array(const Schema& schema, const std::string& path);

  GrammarBuilder& builder_;
  JsonText json_;
  const Schema& root_;
  std::map<std::string, RuleId> references_;
  int depth_ = 0, num_schemas_ = 0;
};

Element SchemaCompiler::object(const Schema& schema, const std::string& path) {
  const Schema none = Schema::object();
  const Schema& properties = schema.contains("properties") ? schema["properties"] : none;
  if (!properties.is_object()) fail(path, "properties is an object");
  const bool has_more = schema.contains("additionalProperties");
  const Schema more = has_more ? schema["additionalProperties"] : Schema(properties.empty());
  std::set<std::string> required;
  std::vector<std::pair<std::string, Schema>> members;
  for (const auto& [name, one] : properties.items()) members.emplace_back(name, one);
  if (schema.contains("required")) {
    if (!schema["required"].is_array()) fail(path, "required is a list of names");
    for (const Schema& name : schema["required"]) {
      if (!name.is_string()) fail(path, "required is a list of names");
      if (required.insert(name.get<std::string>()).second && !properties.contains(name.get<std::string>()))
        members.emplace_back(name.get<std::string>(), has_more ? more : Schema(true));
    }
  }
  if (members.empty() && more == true) return json_.object();

  // Behind the last member, and behind those that may be left out: what may follow when there was one before, and
  // when there was none.
  const RuleId end = builder_.add_rule(), end_first = builder_.add_rule();
  builder_.add_alternative(end, {});
  builder_.add_alternative(end_first, {});
  if (more != false) {
    std::vector<std::string> names;
    for (const auto& [name, one] : members) names.push_back(name);
    const Element key = names.empty() ? json_.string(0, kUnbounded) : json_.string_but(names);
    const Sequence other = Sequence{key, json_.space()} + json_.punctuation(':') +
                           Sequence{compile(more, path + "/additionalProperties"), json_.space()};
    const Element others = builder_.repeat(json_.punctuation(',') + other, 0, kUnbounded);
    builder_.add_alternative(end, {others});
    builder_.add_alternative(end_first, other + Sequence{others});
  }
  Element behind = GrammarBuilder::rule(end), first = GrammarBuilder::rule(end_first);
  for (size_t i = members.size(); i-- > 0;) {
    const auto& [name, one] = members[i];
    const Sequence member = builder_.literal(dump(name)) + Sequence{json_.space()} + json_.punctuation(':') +
                            Sequence{compile(one, path + "/properties/" + name), json_.space()};
    const Element whole = builder_.one_of({member});
    std::vector<Sequence> next{json_.punctuation(',') + Sequence{whole, behind}}, next_first{{whole, behind}};
    if (!required.contains(name)) {
      next.push_back({behind});
      next_first.push_back({first});
    }
    behind = builder_.one_of(next);
    first = builder_.one_of(next_first);
  }
  return builder_.one_of({json_.punctuation('{') + Sequence{first} + builder_.literal("}")});
}

Element SchemaCompiler::array(const Schema& schema, const std::string& path) {
  const Schema none = Schema::array();
  const Schema& prefix = schema.contains("prefixItems") ? schema["prefixItems"] : none;
  if (!prefix.is_array()) fail(path, "prefixItems is a list");
  const int64_t min = count(schema, "minItems", 0, path), max = most(schema, "maxItems", path);
  if (max != kUnbounded && max < min) fail(path, "minItems is more than maxItems");
  const int64_t num_prefix = int64_t(prefix.size());
  const Schema items = schema.contains("items") ? schema["items"] : Schema(num_prefix == 0 || min > num_prefix);
  if (items == true && num_prefix == 0 && min == 0 && max == kUnbounded) return json_.array();

  // From the last item to the first; `rest` is what may follow when i items were there.
  const auto item = [&](const Schema& one, const std::string& place) {
    return Sequence{compile(one, place), json_.space()};
  };
  const bool has_items = items != false && (max == kUnbounded || max > num_prefix);
  Element rest = builder_.one_of({Sequence()}), all = rest;
  if (has_items || min > num_prefix) {
    const Sequence one = item(items, path + "/items");
    const int64_t least = std::max<int64_t>(min - num_prefix, 0);
    const int64_t highest = max == kUnbounded ? kUnbounded : max - num_prefix;
    rest = builder_.repeat(json_.punctuation(',') + one, least, highest);
    const auto less = [](int64_t n) { return n > 0 ? n - 1 : n; };
    const Element others =
        builder_.repeat(json_.punctuation(',') + one, less(least), highest == kUnbounded ? highest : highest - 1);
    all = builder_.one_of({one + Sequence{others}});
    if (least == 0) all = builder_.optional({all});
  }
  for (int64_t i = num_prefix; i-- > 0;) {
    if (max != kUnbounded && i >= max) continue;
    const Sequence one = item(prefix[size_t(i)], fmt::format("{}/prefixItems/{}", path, i)) + Sequence{rest};
    rest = builder_.one_of({json_.punctuation(',') + one});
    all = builder_.one_of({one});
    if (i < min) continue;
    rest = builder_.optional({rest});
    all = builder_.optional({all});
  }
  return builder_.one_of({json_.punctuation('[') + Sequence{all} + builder_.literal("]")});
}

}  // namespace

Element json_schema_element(GrammarBuilder& builder, std::string_view schema) {
  try {
    const Schema root = parse_ordered_json(schema, "the schema");
    return SchemaCompiler(builder, root).compile(root, "#");
  } catch (const UsageError&) {
    throw;
  } catch (const Error& e) {
    throw UsageError("{}", e.what());  // no JSON
  }
}

}  // namespace weft::constrain
