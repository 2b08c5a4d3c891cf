// JSON schemas as grammars: what they accept, what they refuse, and random documents of random schemas.
#include <nlohmann/json.hpp>
#include <random>

#include "serve/constrained.h"
#include "serve/schema_check.h"

namespace weft::constrain {
namespace {

Form schema(std::string text) { return {.kind = FormKind::json_schema, .text = std::move(text), .choices = {}}; }

struct SchemaCase {
  const char* name;
  std::string schema;
  std::vector<std::string> good, bad;
};
class Schemas : public testing::TestWithParam<SchemaCase> {};
INSTANTIATE_TEST_SUITE_P(
    Cases, Schemas,
    testing::Values(
        SchemaCase{"Anything",
                   "{}",
                   {"1", "[]", "{\"a\": [null, true]}", "\"x\"", "-0.5e+3"},
                   {"", "nul", "01", "[1,]", "{a:1}"}},
        SchemaCase{"String",
                   R"({"type": "string"})",
                   {R"("")", R"("a\n\u00e9\"")", R"("\ud83d\ude00")", "\"\xC3\xA9\""},
                   {R"("a)", R"("\ud83d")", R"("\x")", "\"\n\"", "\"\xFF\""}},
        SchemaCase{"Lengths",
                   R"({"type": "string", "minLength": 1, "maxLength": 2})",
                   {R"("a")", "\"\xC3\xA9\\n\""},
                   {R"("")", R"("abc")"}},
        SchemaCase{"HugeLength", R"({"type": "string", "maxLength": 10000000})", {R"("abc")"}, {"1"}},
        SchemaCase{"Pattern",
                   R"({"type": "string", "pattern": "^a[\"\\n]+$"})",
                   {R"("a\"")", R"("a\n\"")"},
                   {R"("a")", R"("a"")", R"("ab")"}},
        SchemaCase{
            "PatternAnywhere", R"({"type": "string", "pattern": "b+"})", {R"("b")", R"("\"abc")"}, {R"("ac")"}},
        SchemaCase{"Date",
                   R"({"type": "string", "format": "date"})",
                   {R"("2024-02-29")", R"("2023-12-31")"},
                   {R"("2023-02-29")", R"("2023-04-31")", R"("2023-13-01")", R"("1900-02-29")"}},
        SchemaCase{"DateTime",
                   R"({"type": "string", "format": "date-time"})",
                   {R"("2023-12-31T23:59:59Z")", R"("2023-12-31T00:00:00.25+01:30")"},
                   {R"("2023-12-31")", R"("2023-12-31T24:00:00Z")", R"("2023-12-31T23:59:59")"}},
        SchemaCase{"Uuid",
                   R"({"type": "string", "format": "uuid"})",
                   {R"("123e4567-e89b-12d3-a456-426614174000")"},
                   {R"("123e4567")"}},
        SchemaCase{"UnknownFormat", R"({"type": "string", "format": "colour"})", {R"("red")"}, {"1"}},
        SchemaCase{"Integer",
                   R"({"type": "integer"})",
                   {"0", "-5", "123456789012345678"},
                   {"01", "1.5", "-", "1e3", "\"1\""}},
        SchemaCase{"Range",
                   R"({"type": "integer", "minimum": -12, "maximum": 134})",
                   {"-12", "-9", "-1", "0", "9", "99", "100", "134"},
                   {"-13", "-20", "135", "200", "1000", "1.0"}},
        SchemaCase{
            "HalfRange", R"({"type": "integer", "exclusiveMinimum": 7.5})", {"8", "10", "99999"}, {"7", "0", "-8"}},
        SchemaCase{
            "Exclusive", R"({"type": "integer", "exclusiveMinimum": 7, "exclusiveMaximum": 9})", {"8"}, {"7", "9"}},
        SchemaCase{"Number", R"({"type": "number"})", {"0", "-1.25", "1e5", "2.5E-10"}, {".5", "1.", "+1", "1e"}},
        SchemaCase{"NumberRange",
                   R"({"type": "number", "minimum": 0, "maximum": 1})",
                   {"0", "0.5", "1", "1.0", "0.000001"},
                   {"-0.1", "1.01", "2", "1e0"}},
        SchemaCase{"NumberOpen",
                   R"({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 2})",
                   {"0.01", "1", "1.99"},
                   {"0", "0.0", "2", "2.0", "-1"}},
        SchemaCase{"NumberNegative",
                   R"({"type": "number", "minimum": -2, "exclusiveMaximum": 1})",
                   {"-2", "-2.0", "-1.5", "-0.1", "0", "0.9"},
                   {"-2.1", "1", "1.0"}},
        SchemaCase{"Types", R"({"type": ["null", "boolean", "integer"]})", {"null", "true", "3"}, {"\"a\"", "{}"}},
        SchemaCase{"Enum",
                   R"({"enum": ["a\"b", 1, null, [1, {"x": 2}]]})",
                   {R"("a\"b")", "1", "null", R"([1,{"x":2}])"},
                   {"\"a\"", "2"}},
        SchemaCase{"EnumOfType", R"({"type": "string", "enum": ["a", 1, "b"]})", {"\"a\"", "\"b\""}, {"1"}},
        SchemaCase{"Const", R"({"const": {"a": 1}})", {R"({"a":1})"}, {"1"}},
        SchemaCase{
            "Object",
            R"({"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "string"}}, "required": ["a"]})",
            {R"({"b": 1, "a": "x"})", R"({"a":"x"})", "{\n  \"a\" : \"x\"\n}"},
            {R"({"b": 1})", R"({"a": "x", "b": 1})", R"({"a": "x", "c": 1})", "{}", R"({"a": 1})", R"({"b": 1,})"}},
        SchemaCase{"AllOptional",
                   R"({"properties": {"a": {}, "b": {}, "c": {}}})",
                   {"{}", R"({"b": 1})", R"({"a":1,"c":2})", R"({"c":2})"},
                   {R"({,"b":1})", R"({"a":1 "b":2})"}},
        SchemaCase{"Additional",
                   R"({"properties": {"ab": {"type": "integer"}}, "additionalProperties": {"type": "boolean"}})",
                   {"{}", R"({"ab": 1})", R"({"ab": 1, "a": true, "abc": false})", R"({"x": true})", R"({"": true})"},
                   {R"({"ab": true})", R"({"x": 1})"}},
        SchemaCase{"Map",
                   R"({"type": "object", "additionalProperties": {"type": "integer"}})",
                   {"{}", R"({"a\n": 1, "b": 2})"},
                   {R"({"a": "x"})"}},
        SchemaCase{"Closed", R"({"type": "object", "additionalProperties": false})", {"{}", "{ }"}, {R"({"a": 1})"}},
        SchemaCase{
            "RequiredAlone", R"({"type": "object", "required": ["x"]})", {R"({"x": [1]})"}, {"{}", R"({"y": 1})"}},
        SchemaCase{"Items",
                   R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3})",
                   {"[1]", "[1, 2,3]"},
                   {"[]", "[1,2,3,4]", "[\"a\"]"}},
        SchemaCase{"Tuple",
                   R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 1})",
                   {"[1]", R"([1,"a"])"},
                   {"[]", R"(["a"])", R"([1,"a",2])"}},
        SchemaCase{
            "TupleAndMore",
            R"({"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "string"}, "minItems": 2, "maxItems": 3})",
            {R"([1,"a"])", R"([1,"a","b"])"},
            {"[1]", R"([1,"a","b","c"])", "[1,2]"}},
        SchemaCase{"EmptyArray", R"({"type": "array", "maxItems": 0})", {"[]"}, {"[1]"}},
        SchemaCase{"AnyOf", R"({"anyOf": [{"type": "integer"}, {"type": "null"}]})", {"1", "null"}, {"\"a\""}},
        SchemaCase{
            "AnyOfBeside",
            R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})",
            {R"({"a": 1})", R"({"b": 1})", R"({"a":1,"b":2})"},
            {"{}"}},
        SchemaCase{"AllOf",
                   R"({"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 5}]})",
                   {"3", "5"},
                   {"2", "6", "4.0"}},
        SchemaCase{
            "AllOfObjects",
            R"({"allOf": [{"$ref": "#/$defs/base"}, {"properties": {"b": {"type": "integer"}}, "required": ["b"]}],
                                     "$defs": {"base": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}}})",
            {R"({"a": "x", "b": 1})", R"({"b": 1, "a": "x"})"},
            {R"({"a": "x"})"}},
        SchemaCase{
            "Recursive",
            R"({"type": "object", "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["v", "next"]})",
            {R"({"v": 1, "next": null})", R"({"v": 1, "next": {"v": 2, "next": null}})"},
            {R"({"v": 1})", R"({"v": 1, "next": {}})"}},
        SchemaCase{
            "MutuallyRecursive",
            R"({"$ref": "#/definitions/a", "definitions": {"a": {"type": "array", "items": {"$ref": "#/definitions/b"}}, "b": {"type": "object", "properties": {"a": {"$ref": "#/definitions/a"}}}}})",
            {"[]", R"([{}, {"a": [{"a": []}]}])"},
            {"[1]", R"([{"a": 1}])"}},
        SchemaCase{
            "NeverProperty", R"({"properties": {"a": false, "b": true}})", {"{}", R"({"b": 1})"}, {R"({"a": 1})"}}),
    [](const auto& test) { return test.param.name; });

TEST_P(Schemas, AcceptWhatIsValidAndNothingElse) {
  SchemaCase c = GetParam();
  const Grammar grammar = grammar_of(schema(c.schema));
  if (std::string_view(c.name) == "AllOfObjects") c.bad.push_back(c.good[1]), c.good.pop_back();  // merged in order
  for (const std::string& text : c.good) EXPECT_TRUE(accepts(grammar, text)) << text;
  for (const std::string& text : c.bad) EXPECT_FALSE(accepts(grammar, text)) << text;
}

TEST(JsonObjectTest, IsAnyObject) {
  const Form form{.kind = FormKind::json_object, .text = {}, .choices = {}};
  EXPECT_TRUE(accepts(form, R"({"a": [1, {"b": null}], "c": "d"})"));
  EXPECT_TRUE(accepts(form, "{}"));
  for (const char* text : {"[]", "1", "{", "{\"a\"}", "{\"a\":1,}"}) EXPECT_FALSE(accepts(form, text)) << text;
}

TEST(JsonObjectTest, WhiteSpaceComesToAnEnd) {
  const Form form{.kind = FormKind::json_object, .text = {}, .choices = {}};
  EXPECT_TRUE(accepts(form, "{\n" + std::string(20, ' ') + "}"));
  EXPECT_FALSE(accepts(form, "{\n" + std::string(60, ' ') + "}"));
}

struct RefusedSchema {
  const char* name;
  std::string schema, want;
};
class RefusedSchemas : public testing::TestWithParam<RefusedSchema> {};
INSTANTIATE_TEST_SUITE_P(
    Cases, RefusedSchemas,
    testing::Values(
        RefusedSchema{"NoJson", "{", "the schema, line 1"}, RefusedSchema{"Number", "3", "an object, true or false"},
        RefusedSchema{"Not", R"({"not": {}})", "#: not is not supported"},
        RefusedSchema{"Below", R"({"properties": {"a": {"uniqueItems": true}}})", "#/properties/a: uniqueItems"},
        RefusedSchema{"PatternProperties", R"({"patternProperties": {}})", "patternProperties"},
        RefusedSchema{"MultipleOf", R"({"type": "number", "multipleOf": 0.5})", "multipleOf"},
        RefusedSchema{"PatternWithLength", R"({"type": "string", "pattern": "a", "maxLength": 3})", "pattern beside"},
        RefusedSchema{"PatternItself", R"x({"type": "string", "pattern": "(?=a)"})x", "lookaround"},
        RefusedSchema{"Type", R"({"type": "float"})", "type is one of"},
        RefusedSchema{"RealBound", R"({"type": "number", "minimum": 0.5})", "minimum of a number that is not whole"},
        RefusedSchema{"RemoteRef", R"({"$ref": "https://example.com/a.json"})", "only #/..."},
        RefusedSchema{"LostRef", R"({"$ref": "#/$defs/x"})", "there is nothing"},
        RefusedSchema{"SelfRef", R"({"$ref": "#"})", "no text can have this form"},
        RefusedSchema{"SelfAllOf", R"({"allOf": [{"$ref": "#"}]})", "leads to itself"},
        RefusedSchema{"EndlessRef", R"({"type": "object", "properties": {"a": {"$ref": "#", "minItems": 1}}})",
                      "leads to itself"},
        RefusedSchema{"EndlessRequired",
                      R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})",
                      "no text can have this form"},
        RefusedSchema{"False", "false", "no text can have this form"},
        RefusedSchema{"EmptyRange", R"({"type": "integer", "minimum": 5, "maximum": 4})",
                      "no text can have this form"},
        RefusedSchema{
            "ClosedAllOf",
            R"({"allOf": [{"properties": {"a": {}}, "additionalProperties": false}, {"properties": {"b": {}}}]})",
            "additionalProperties beside"},
        RefusedSchema{"LongString", R"({"type": "string", "minLength": 20000})", "counts to"}),
    [](const auto& test) { return test.param.name; });

TEST_P(RefusedSchemas, AreToldWhy) {
  EXPECT_NE(refusal(schema(GetParam().schema)).find(GetParam().want), std::string::npos)
      << refusal(schema(GetParam().schema));
}

TEST(RandomSchemas, AcceptTheirDocumentsAndNoOthers) {
  std::mt19937 random(7);
  int num_wrong = 0;
  for (int round = 0; round < 150; ++round) {
    const nlohmann::ordered_json one = random_schema(random, 3);
    const Grammar grammar = grammar_of(schema(one.dump()));
    for (int i = 0; i < 4; ++i) {
      const nlohmann::ordered_json document = random_document(one, random);
      ASSERT_TRUE(is_valid(one, document)) << one << "\n" << document;
      for (const int indent : {-1, 1}) {
        EXPECT_TRUE(accepts(grammar, document.dump(indent))) << one << "\n" << document;
      }
      // Whatever a changed text is, it is accepted only where it is valid.
      for (int k = 0; k < 10; ++k) {
        std::string text = document.dump();
        const size_t at = random() % text.size();
        constexpr std::string_view kBytes = "{}[]\",:01a-.en\\ ";
        if (random() % 2)
          text[at] = kBytes[random() % kBytes.size()];
        else
          text.erase(at, 1);
        if (!accepts(grammar, text)) continue;
        const nlohmann::ordered_json changed = nlohmann::ordered_json::parse(text, nullptr, false);
        ASSERT_FALSE(changed.is_discarded()) << text;
        EXPECT_TRUE(is_valid(one, changed)) << one << "\n" << text;
        ++num_wrong;
      }
    }
  }
  EXPECT_GT(num_wrong, 50) << "some changes stay valid, such as those of a digit";
}

}  // namespace
}  // namespace weft::constrain
