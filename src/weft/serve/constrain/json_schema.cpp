// JSON schemas: combinations of them, references, values, texts and numbers.
#include "weft/serve/constrain/json_schema.h"

#include <algorithm>
#include <cmath>

#include "weft/base/error.h"
#include "weft/base/excerpt.h"
#include "weft/base/json.h"
#include "weft/serve/constrain/matcher.h"
#include "weft/serve/constrain/schema_compiler.h"
#include "weft/serve/constrain/schema_formats.h"
#include "weft/serve/constrain/schema_references.h"

namespace weft::constrain {
namespace {

constexpr size_t kLongestKnown = 512;
constexpr int kMostSchemas = 1 << 14, kMostAutomata = 256;

std::string dump(const Schema& value) { return value.dump(-1, ' ', false, Schema::error_handler_t::replace); }

// Keywords that would change what is valid.
void refuse_unsupported(const Schema& schema, const std::string& path) {
  for (const char* keyword :
       {"unevaluatedProperties", "unevaluatedItems", "maxContains", "$dynamicRef", "$recursiveRef"}) {
    if (schema.contains(keyword)) throw UsageError("{}: {} is not supported", excerpt(path), keyword);
  }
}

bool is_of_type(const Schema& value, const std::string& type) {
  if (type == "integer")
    return value.is_number_integer() || (value.is_number() && value.get<double>() == std::rint(value.get<double>()));
  if (type == "number") return value.is_number();
  return type == (value.is_boolean() ? "boolean" : value.type_name());
}

std::string pointer_of(const Schema& schema, const std::string& path) {
  if (!schema["$ref"].is_string()) throw UsageError("{}: $ref is a text", excerpt(path));
  return schema["$ref"].get<std::string>().substr(1);
}

}  // namespace

void SchemaCompiler::fail(const std::string& path, std::string_view what) {
  throw UsageError("{}: {}", excerpt(path), what);
}

Element SchemaCompiler::compile(const Schema& schema, const std::string& path) {
  if (++depth_ > kDeepest)
    throw UsageError("{}: the schema is nested too deep, or a $ref with keywords beside it leads to itself",
                     excerpt(path));
  if (++work_.num_schemas > kMostSchemas) throw UsageError("the schema holds over {} schemas", kMostSchemas);
  const std::string text = dump(schema);
  const auto known = text.size() <= kLongestKnown ? known_.find(text) : known_.end();
  const Element element = known == known_.end() ? compile_one(schema, path) : known->second;
  if (text.size() <= kLongestKnown) known_.emplace(text, element);
  --depth_;
  return element;
}

Element SchemaCompiler::compile_one(const Schema& given, const std::string& path) {
  if (given.is_boolean()) return given.get<bool>() ? json_.value() : builder_.one_of({});
  if (!given.is_object()) fail(path, "a schema is an object, true or false");
  refuse_unsupported(given, path);
  const Schema schema = with_plain_conditions(given, path);
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
    const Schema to = with_plain_conditions(target(pointer, path), path);
    return compile(merge_schemas(to, rest, path), path);
  }
  if (schema.contains("allOf")) return compile(flattened(schema, path), path);
  for (const char* keyword : {"anyOf", "oneOf"}) {
    if (schema.contains(keyword)) return any_of(schema, keyword, is_alone(keyword), path);
  }
  if (schema.contains("const") || schema.contains("enum")) return values(schema, path);
  std::vector<Sequence> ways;
  for (const std::string& type : types(schema, path)) ways.push_back({of_type(type, schema, path)});
  return builder_.one_of(ways);
}

const Schema& SchemaCompiler::target(const std::string& pointer, const std::string& path) const {
  try {
    const Schema::json_pointer place(pointer);
    if (root_.contains(place)) return root_.at(place);
  } catch (const nlohmann::json::exception&) {  // no pointer
  }
  fail(path, fmt::format("$ref #{}: there is nothing", excerpt(pointer, 80)));
}

Element SchemaCompiler::reference(const std::string& pointer, const std::string& path) {
  const auto [entry, is_new] = references_.try_emplace(pointer, 0);
  if (is_new) {
    const RuleId rule = builder_.add_rule(excerpt("#" + pointer, 80));
    entry->second = rule;
    builder_.add_alternative(rule, {compile(target(pointer, path), "#" + pointer)});
    return GrammarBuilder::rule(rule);
  }
  return GrammarBuilder::rule(entry->second);
}

// Without $ref and allOf at its top: what a reference leads to is joined, and an allOf inside with it.
Schema SchemaCompiler::flattened(const Schema& given, const std::string& path, int depth) {
  if (depth > kDeepest) fail(path, "an allOf leads to itself");
  if (++work_.num_schemas > kMostSchemas) throw UsageError("the schema holds over {} schemas", kMostSchemas);
  if (given.is_object()) refuse_unsupported(given, path);
  Schema schema = with_plain_conditions(given, path);
  if (!schema.is_object()) return schema;
  if (schema.contains("$ref")) {
    const Schema to = flattened(target(pointer_of(schema, path), path), path, depth + 1);
    schema.erase("$ref");
    schema = merge_schemas(to, schema, path);
  }
  if (!schema.is_object() || !schema.contains("allOf")) return schema;
  const Schema parts = schema["allOf"];
  if (!parts.is_array()) fail(path, "allOf is a list");
  schema.erase("allOf");
  for (const Schema& part : parts) schema = merge_schemas(schema, flattened(part, path, depth + 1), path);
  return schema;
}

Element SchemaCompiler::any_of(const Schema& schema, const char* keyword, bool is_alone, const std::string& path) {
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

// By itself; nothing when no text is valid.
std::optional<Grammar> SchemaCompiler::grammar_of(const Schema& schema, const std::string& path) {
  GrammarBuilder builder;
  const RuleId root = builder.add_rule("root");
  builder.add_alternative(root, {SchemaCompiler(builder, root_, work_).compile(schema, path)});
  try {
    return std::move(builder).finish(root);
  } catch (const NoText&) {
    return {};
  }
}

// Those of `const` and `enum` that the other keywords allow too.
std::vector<Schema> SchemaCompiler::values_of(const Schema& schema, const std::string& path) {
  if (schema.contains("enum") && !schema["enum"].is_array()) fail(path, "enum is a list");
  const Schema all = schema.contains("enum") ? schema["enum"] : Schema::array({schema["const"]});
  const Forbidden none_of = forbidden(schema, path);
  Schema rest = Schema::object();
  for (const auto& [key, value] : schema.items()) {
    if (key != "enum" && key != "const" && !is_annotation(key)) rest[key] = value;
  }
  if (none_of.patterns.empty()) rest.erase("not");
  const bool has_type = rest.contains("type");
  const std::vector<std::string> allowed = has_type ? types(rest, path) : std::vector<std::string>();
  std::optional<Grammar> grammar;
  if (rest.size() > size_t(has_type)) {
    grammar = grammar_of(rest, path);
    if (!grammar) return {};
  }
  std::vector<Schema> found;
  for (const Schema& value : all) {
    if ((schema.contains("const") && value != schema["const"]) || none_of.has(value)) continue;
    const auto fits = [&](const std::string& type) { return is_of_type(value, type); };
    if (has_type && std::none_of(allowed.begin(), allowed.end(), fits)) continue;
    if (!grammar || matches(*grammar, dump(value))) found.push_back(value);
  }
  return found;
}

// As an answer writes it. Bounded as what it is a part of was, when it was read.
Sequence SchemaCompiler::written(const Schema& value) {
  if (!json_.has_marks()) return builder_.literal(dump(value));
  if (value.is_string()) return json_.string_of(std::string_view(value.get_ref<const std::string&>()));
  if (!value.is_structured()) return builder_.literal(dump(value));
  Sequence all;
  for (const auto& [name, one] : value.items()) {
    if (!all.empty()) all = all + builder_.literal(",");
    if (value.is_object()) all = all + json_.name_of(std::string_view(name)) + builder_.literal(":");
    all = all + written(one);
  }
  return builder_.literal(value.is_object() ? "{" : "[") + all + builder_.literal(value.is_object() ? "}" : "]");
}

Element SchemaCompiler::values(const Schema& schema, const std::string& path) {
  if (json_.has_marks()) {
    std::vector<Sequence> ways;
    for (const Schema& value : values_of(schema, path)) ways.push_back(written(value));
    return builder_.one_of(ways);
  }
  std::vector<std::string> texts;
  for (const Schema& value : values_of(schema, path)) texts.push_back(dump(value));
  return builder_.one_of_texts(texts);
}

Forbidden SchemaCompiler::forbidden(const Schema& schema, const std::string& path) const {
  if (!schema.contains("not")) return {};
  const auto found = forbidden_by(schema["not"]);  // others were written as what they allow
  if (!found) fail(path, "not is not supported here");
  return *found;
}

std::vector<std::string> SchemaCompiler::types(const Schema& schema, const std::string& path) {
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
  if (has({"properties", "required", "additionalProperties", "patternProperties", "propertyNames", "minProperties",
           "maxProperties"}))
    found.push_back("object");
  if (has({"items", "prefixItems", "minItems", "maxItems", "contains", "uniqueItems"})) found.push_back("array");
  if (has({"pattern", "minLength", "maxLength"})) found.push_back("string");
  if (has({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})) found.push_back("number");
  return found.empty() ? all : found;
}

Element SchemaCompiler::of_type(const std::string& type, const Schema& schema, const std::string& path) {
  const Forbidden none_of = forbidden(schema, path);
  if (type == "string") return string(schema, path);
  if (!none_of.patterns.empty()) return builder_.one_of({});  // only texts fail a pattern
  std::vector<std::string> words;
  if (type == "null") words = {"null"};
  if (type == "boolean") words = {"true", "false"};
  if (!words.empty()) {
    std::erase_if(words, [&](const std::string& word) { return none_of.has(Schema::parse(word)); });
    std::vector<Sequence> ways;
    for (const std::string& word : words) ways.push_back({json_.word(word)});
    return builder_.one_of(ways);
  }
  if (type == "integer" || type == "number") return numbers(schema, type == "integer", path);
  const bool is_in_part = std::any_of(none_of.values.begin(), none_of.values.end(),
                                      [&](const Schema& value) { return is_of_type(value, type); });
  if (is_in_part) {
    if (schema.contains("type")) fail(path, fmt::format("not with values of type {} is not supported", type));
    return builder_.one_of({});  // values of other types will do
  }
  return type == "object" ? object(schema, path) : array(schema, path);
}

// Those between the numbers that are forbidden.
Element SchemaCompiler::numbers(const Schema& schema, bool is_integer, const std::string& path) {
  std::vector<Schema> gaps;
  for (const Schema& value : forbidden(schema, path).values) {
    if (value.is_number()) gaps.push_back(value);
  }
  std::sort(gaps.begin(), gaps.end());
  std::vector<Sequence> ways;
  for (size_t i = 0; i <= gaps.size(); ++i) {
    Schema between = schema;
    if (i > 0) between = merge_schemas(between, {{"exclusiveMinimum", gaps[i - 1]}}, path);
    if (i < gaps.size()) between = merge_schemas(between, {{"exclusiveMaximum", gaps[i]}}, path);
    const NumberBounds range = bounds(between, path);
    NumberText text(builder_);
    ways.push_back({is_integer ? text.integer(range) : text.number(range)});
  }
  return builder_.one_of(ways);
}

int64_t SchemaCompiler::count(const Schema& schema, const char* keyword, int64_t otherwise,
                              const std::string& path) const {
  if (!schema.contains(keyword)) return otherwise;
  const Schema& value = schema[keyword];
  if (!value.is_number() || value.get<double>() < 0 || value.get<double>() != std::rint(value.get<double>()))
    fail(path, fmt::format("{} is a whole number, 0 or more", keyword));
  return int64_t(std::min(value.get<double>(), 1e9));
}

// Of a maximum no more than may be counted; without one, kUnbounded.
SchemaCompiler::Counts SchemaCompiler::counts(const Schema& schema, const char* min, const char* max,
                                              const std::string& path) const {
  Counts result{.min = count(schema, min, 0, path), .max = count(schema, max, kUnbounded, path)};
  if (result.min > builder_.limits().repeats)
    fail(path,
         fmt::format("{} counts to {}, and {} are allowed", min, schema[min].dump(), builder_.limits().repeats));
  result.max = std::min(result.max, builder_.limits().repeats);
  return result;
}

std::vector<std::string> SchemaCompiler::patterns(const Schema& schema, const std::string& path) const {
  std::vector<std::string> all;
  if (!schema.contains("pattern")) return all;
  const Schema& given = schema["pattern"];
  for (const Schema& one : given.is_array() ? given : Schema::array({given})) {  // several of an allOf
    if (!one.is_string()) fail(path, "pattern is a text");
    all.push_back(one.get<std::string>());
  }
  return all;
}

Element SchemaCompiler::string(const Schema& schema, const std::string& path) {
  const Counts lengths = counts(schema, "minLength", "maxLength", path);
  if (!lengths.allows(lengths.min)) return builder_.one_of({});
  const std::vector<std::string> expressions = patterns(schema, path);
  const bool has_lengths = lengths.min > 0 || lengths.max != kUnbounded;
  const bool has_format = schema.contains("format") && schema["format"].is_string();
  const char* const format = has_format ? regex_of_format(schema["format"].get<std::string>()) : nullptr;
  const Forbidden none_of = forbidden(schema, path);
  const bool forbids = !none_of.patterns.empty() || std::any_of(none_of.values.begin(), none_of.values.end(),
                                                                [](const Schema& v) { return v.is_string(); });
  const size_t num_others = expressions.size() + size_t(has_lengths) + size_t(forbids);
  if (format && num_others == 0) return json_.string_of(format, false);
  if (format) {
    Schema all = schema;
    all["pattern"] = expressions;
    all["pattern"].push_back(fmt::format("^(?:{})$", format));
    try {
      return json_.string_of(texts_of(all, path));
    } catch (const UsageError&) {  // too much at once: the format is an annotation
    }
  }
  if (forbids || num_others > 1) return json_.string_of(texts_of(schema, path));
  if (!expressions.empty()) return json_.string_of(expressions.front(), true);
  return json_.string(lengths.min, lengths.max);
}

void SchemaCompiler::count_automaton() {
  if (++work_.num_automata > kMostAutomata)
    throw UsageError("the schema asks for over {} patterns, lengths, names or multiples that go together",
                     kMostAutomata);
}

// All that is asked of texts, at once.
TextAutomaton SchemaCompiler::texts_of(const Schema& schema, const std::string& path) {
  TextAutomaton texts = TextAutomaton::all();
  for (const std::string& expression : patterns(schema, path)) {
    count_automaton();
    texts = texts & TextAutomaton::of_regex(expression);
  }
  const Counts lengths = counts(schema, "minLength", "maxLength", path);
  if (lengths.min > 0 || lengths.max != kUnbounded) {
    count_automaton();
    texts = texts.of_length(lengths.min, lengths.max);
  }
  const Forbidden none_of = forbidden(schema, path);
  for (const std::string& expression : none_of.patterns) {
    count_automaton();
    texts = texts - TextAutomaton::of_regex(expression);
  }
  std::vector<std::string> words;
  for (const Schema& value : none_of.values) {
    if (value.is_string()) words.push_back(value.get<std::string>());
  }
  if (words.empty()) return texts;
  count_automaton();
  return texts - TextAutomaton::of([&](GrammarBuilder& builder) { return builder.one_of_texts(words); });
}

NumberBounds SchemaCompiler::bounds(const Schema& schema, const std::string& path) {
  const auto decimal = [&](const Schema& value, const char* keyword) {
    if (!value.is_number()) fail(path, fmt::format("{} is a number", keyword));
    const std::optional<Decimal> digits = read_decimal(dump(value));
    if (!digits) fail(path, fmt::format("{} has over 18 digits before the point or 17 behind it", keyword));
    return *digits;
  };
  NumberBounds bounds;
  for (const bool is_lower : {true, false}) {
    const char* const keyword = is_lower ? "minimum" : "maximum";
    const char* const exclusive = is_lower ? "exclusiveMinimum" : "exclusiveMaximum";
    const bool is_flag = schema.contains(exclusive) && schema[exclusive].is_boolean();  // in older drafts
    Schema tightest;
    bool excludes = false;
    const auto tighten = [&](const char* key, bool is_excluded) {
      const Schema& value = schema[key];
      if (!value.is_number()) fail(path, fmt::format("{} is a number", key));
      if (value == tightest) excludes = excludes || is_excluded;
      if (!tightest.is_null() && (is_lower ? value <= tightest : value >= tightest)) return;
      tightest = value, excludes = is_excluded;
    };
    if (schema.contains(keyword)) tighten(keyword, is_flag && schema[exclusive].get<bool>());
    if (schema.contains(exclusive) && !is_flag) tighten(exclusive, true);
    if (tightest.is_null()) continue;
    // Beyond the longest numbers that come, the bound is the last of these.
    constexpr int64_t kLongest = 999'999'999'999'999'999;
    const bool is_far = tightest.get<double>() * (is_lower ? -1 : 1) >= 1e18;
    (is_lower ? bounds.min : bounds.max) =
        is_far ? Decimal{.is_negative = is_lower, .whole = kLongest} : decimal(tightest, keyword);
    (is_lower ? bounds.excludes_min : bounds.excludes_max) = excludes && !is_far;
  }
  if (schema.contains("multipleOf")) {
    bounds.multiple_of = decimal(schema["multipleOf"], "multipleOf");
    const bool is_zero = bounds.multiple_of->whole == 0 && bounds.multiple_of->fraction.empty();
    if (is_zero || bounds.multiple_of->is_negative) fail(path, "multipleOf is a number over 0");
    count_automaton();
  }
  return bounds;
}

namespace {

Element compiled(GrammarBuilder& builder, std::string_view schema,
                 const std::function<Element(SchemaCompiler&, const Schema&)>& compile) {
  try {
    const Schema root = with_plain_references(parse_ordered_json(schema, "the schema"));
    SchemaCompiler::Work work;
    SchemaCompiler compiler(builder, root, work);
    return compile(compiler, root);
  } catch (const UsageError&) {
    throw;
  } catch (const Error& e) {
    throw UsageError("{}", e.what());  // no JSON
  }
}

}  // namespace

Element json_schema_element(GrammarBuilder& builder, std::string_view schema) {
  return compiled(builder, schema,
                  [](SchemaCompiler& compiler, const Schema& root) { return compiler.compile(root, "#"); });
}

Element tagged_schema_element(GrammarBuilder& builder, std::string_view schema, const TaggedForm& form) {
  return compiled(builder, schema,
                  [&](SchemaCompiler& compiler, const Schema& root) { return compiler.tagged(root, form, "#"); });
}

}  // namespace weft::constrain
