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
        SchemaCase{"PatternWithLength",
                   R"({"type": "string", "pattern": "^[a-c]+\"?$", "minLength": 2, "maxLength": 3})",
                   {R"("ab")", R"("a\"")", R"("ab\"")"},
                   {R"("a")", R"("abc\"")", R"("abd")"}},
        SchemaCase{"Patterns",
                   R"({"allOf": [{"type": "string", "pattern": "^a"}, {"pattern": "b$"}]})",
                   {R"("ab")", R"("a\nb")",
                    "\"a\xC3\xA9"
                    "b\""},
                   {R"("a")", R"("b")", R"("abc")"}},
        SchemaCase{"NotText",
                   R"({"type": "string", "maxLength": 2, "not": {"enum": ["ab", "", 5]}})",
                   {R"("a")", R"("ba")"},
                   {R"("ab")", R"("")", R"("abc")"}},
        SchemaCase{"NotPattern",
                   R"({"type": "string", "not": {"pattern": "[0-9]"}})",
                   {R"("a")", R"("")"},
                   {R"("a1")", "1"}},
        SchemaCase{"NotNull", R"({"not": {"const": null}})", {"true", "[]", R"("null")"}, {"null"}},
        SchemaCase{
            "NotType", R"({"not": {"type": ["integer", "object"]}})", {"true", "[]", "null"}, {"1", "1.5", "{}"}},
        SchemaCase{"NotRequired",
                   R"({"type": "object", "not": {"required": ["a"]}})",
                   {"{}", R"({"b": 1})"},
                   {R"({"a": 1})"}},
        SchemaCase{
            "NoLength",
            R"({"anyOf": [{"type": "string", "minLength": 3, "maxLength": 2}, {"type": "array", "minItems": 1, "maxItems": 0}, {"type": "object", "minProperties": 2, "maxProperties": 1}, {"type": "null"}]})",
            {"null"},
            {"[]", "{}", R"("abc")"}},
        SchemaCase{"NotNumbers",
                   R"({"type": "integer", "minimum": 0, "not": {"enum": [7, 3, "3", 3.0]}})",
                   {"0", "2", "4", "6", "8"},
                   {"3", "7", "-1"}},
        SchemaCase{"NotANumber",
                   R"({"type": "number", "maximum": 2, "not": {"const": 1.5}})",
                   {"1.4", "1.49", "1.51", "2", "-1.5"},
                   {"1.5", "1.50", "2.1"}},
        SchemaCase{"NotBelow", R"({"type": "integer", "not": {"minimum": 3}})", {"2", "-7"}, {"3", "10"}},
        SchemaCase{"EnumBeside",
                   R"({"enum": ["a", "bb", 3, 12], "minLength": 2, "maximum": 5, "type": ["string", "integer"]})",
                   {R"("bb")", "3"},
                   {R"("a")", "12"}},
        SchemaCase{
            "EnumNot", R"({"enum": ["a", "b", "c"], "not": {"const": "b"}})", {R"("a")", R"("c")"}, {R"("b")"}},
        SchemaCase{"Minimum",
                   R"({"type": "number", "minimum": 0.5})",
                   {"0.5", "0.50", "0.51", "1", "12.25"},
                   {"0", "0.49", "0.4999", "-1", "0.05", "1e3"}},
        SchemaCase{"Between",
                   R"({"type": "number", "minimum": -0.25, "maximum": 0.125})",
                   {"0", "-0.25", "-0.2", "-0.250", "0.125", "0.1", "0.12", "0.0"},
                   {"-0.26", "-0.2501", "0.126", "0.1251", "0.2", "1", "-1"}},
        SchemaCase{"OpenBetween",
                   R"({"type": "number", "exclusiveMinimum": 1.5, "exclusiveMaximum": 1.75})",
                   {"1.6", "1.51", "1.500001", "1.7", "1.749"},
                   {"1.5", "1.50", "1.75", "1.750", "1.8", "1.4", "1", "2", "1.7499999999999999"}},
        SchemaCase{"SameWhole",
                   R"({"type": "number", "minimum": 3.14, "maximum": 3.14})",
                   {"3.14", "3.140"},
                   {"3.1", "3.15", "3", "3.141"}},
        SchemaCase{"HugeBounds",
                   R"({"type": "integer", "minimum": -9223372036854775808, "maximum": 1e300})",
                   {"0", "-999999999999999999", "999999999999999999"},
                   {"1000000000000000000"}},
        SchemaCase{
            "HalfInteger", R"({"type": "integer", "minimum": -1.5, "maximum": 1.5})", {"-1", "0", "1"}, {"-2", "2"}},
        SchemaCase{"Multiple",
                   R"({"type": "integer", "multipleOf": 7})",
                   {"0", "7", "-14", "700000000000000007", "1001"},
                   {"8", "1", "-13", "700000000000000001"}},
        SchemaCase{"MultipleWithin",
                   R"({"type": "integer", "multipleOf": 60, "minimum": 1, "maximum": 200})",
                   {"60", "120", "180"},
                   {"0", "240", "30", "61"}},
        SchemaCase{"Cents",
                   R"({"type": "number", "multipleOf": 0.01, "minimum": 0})",
                   {"0", "19.99", "5", "0.1", "3.50"},
                   {"0.001", "1.005", "-1", "1e1"}},
        SchemaCase{"Quarters",
                   R"({"type": "number", "multipleOf": 0.25, "exclusiveMaximum": 2})",
                   {"0.25", "1.5", "1.50", "-3", "0"},
                   {"0.3", "2", "1.2", "1.35"}},
        SchemaCase{"WholeNumber", R"({"type": "number", "multipleOf": 1})", {"3", "-3"}, {"3.5"}},
        SchemaCase{
            "PatternProperties",
            R"({"type": "object", "properties": {"x-a": {"minimum": 1}}, "patternProperties": {"^x-": {"type": "integer"}}, "additionalProperties": {"type": "boolean"}})",
            {"{}", R"({"x-a": 1})", R"({"x-b": 0, "y": true})", R"({"ax-": true})"},
            {R"({"x-a": 0})", R"({"x-a": 1.5})", R"({"x-b": true})", R"({"y": 1})"}},
        SchemaCase{
            "TwoPatterns",
            R"({"patternProperties": {"a": {"type": "integer"}, "b": {"enum": [1, "s"]}}, "additionalProperties": false})",
            {R"({"a": 5, "b": "s", "ab": 1})"},
            {R"({"ab": 5})", R"({"ab": "s"})", R"({"c": 1})"}},
        SchemaCase{
            "PatternsAlone", R"({"patternProperties": {"^\\d+$": {}}})", {"{}", R"({"12": null})"}, {R"({"a": 1})"}},
        SchemaCase{
            "PropertyNames",
            R"({"type": "object", "propertyNames": {"pattern": "^[a-z]+$", "maxLength": 3}, "properties": {"abcd": {}, "b": {}}, "additionalProperties": {"type": "integer"}})",
            {"{}", R"({"b": true, "abc": 1})"},
            {R"({"abcd": 1})", R"({"A": 1})"}},
        SchemaCase{
            "NamesOfEnum",
            R"({"type": "object", "propertyNames": {"enum": ["en", "de"]}, "additionalProperties": {"type": "string"}})",
            {R"({"de": "x", "en": "y"})"},
            {R"({"fr": "x"})", R"({"de": 1})"}},
        SchemaCase{"NumProperties",
                   R"({"properties": {"a": {}, "b": {}, "c": {}}, "minProperties": 1, "maxProperties": 2})",
                   {R"({"a": 1})", R"({"c": 1})", R"({"a": 1, "c": 1})", R"({"b": 1, "c": 1})"},
                   {"{}", R"({"a": 1, "b": 1, "c": 1})"}},
        SchemaCase{"NumRequired",
                   R"({"properties": {"a": {}, "b": {}, "c": {}}, "required": ["b"], "maxProperties": 2})",
                   {R"({"b": 1})", R"({"a": 1, "b": 1})", R"({"b": 1, "c": 1})"},
                   {"{}", R"({"a": 1, "c": 1})", R"({"a": 1, "b": 1, "c": 1})"}},
        SchemaCase{
            "NumAdditional",
            R"({"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1, "maxProperties": 3})",
            {R"({"a": 1})", R"({"a": 1, "b": 1, "c": 1})"},
            {"{}", R"({"a": 1, "b": 1, "c": 1, "d": 1})"}},
        SchemaCase{"NumBoth",
                   R"({"properties": {"a": {}}, "additionalProperties": true, "minProperties": 2})",
                   {R"({"a": 1, "x": 1})", R"({"a": 1, "x": 1, "y": 2})"},
                   {R"({"a": 1})", R"({"x": 1})", R"({"x": 1, "x": 1})"}},
        SchemaCase{"Dependent",
                   R"({"properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}})",
                   {"{}", R"({"b": 1})", R"({"a": 1, "b": 1})"},
                   {R"({"a": 1})"}},
        SchemaCase{
            "Conditional",
            R"({"type": "object", "properties": {"kind": {"enum": ["a", "b"]}, "x": {"type": ["integer", "string"]}}, "required": ["kind", "x"],
            "if": {"properties": {"kind": {"const": "a"}}}, "then": {"properties": {"x": {"type": "integer"}}}, "else": {"properties": {"x": {"type": "string"}}}})",
            {R"({"kind": "a", "x": 1})", R"({"kind": "b", "x": "s"})"},
            {R"({"kind": "a", "x": "s"})", R"({"kind": "b", "x": 1})"}},
        SchemaCase{"Conditions",
                   R"({"properties": {"a": {"type": "integer"}, "b": {}, "c": {}}, "required": ["a"], "allOf": [
            {"if": {"properties": {"a": {"minimum": 5}}}, "then": {"required": ["b"]}}, {"if": {"properties": {"a": {"maximum": 2}}}, "then": {"required": ["c"]}}]})",
                   {R"({"a": 3})", R"({"a": 6, "b": 1})", R"({"a": 1, "c": 1})"},
                   {R"({"a": 6})", R"({"a": 1})", R"({"a": 1, "b": 1})"}},
        SchemaCase{
            "Contains",
            R"({"type": "array", "items": {"type": "integer"}, "contains": {"minimum": 10}, "minContains": 2, "maxItems": 4})",
            {"[10, 11]", "[1, 10, 2, 30]"},
            {"[]", "[10]", "[1, 2, 10]", "[10, 1, 2, 3, 10]"}},
        SchemaCase{
            "Unique",
            R"({"type": "array", "items": {"$ref": "#/$defs/c"}, "uniqueItems": true, "minItems": 1, "$defs": {"c": {"enum": ["r", "g", "b"]}}})",
            {R"(["r"])", R"(["r", "b"])", R"(["r", "g", "b"])"},
            {"[]", R"(["r", "r"])", R"(["b", "x"])"}},
        SchemaCase{"PercentRef",
                   R"({"$ref": "#/$defs/Resp%5Bint%5d%25", "$defs": {"Resp[int]%": {"type": "integer"}}})",
                   {"1"},
                   {"null"}},
        SchemaCase{"Anchor",
                   R"({"$ref": "#item", "$defs": {"x": {"$anchor": "item", "type": "integer"}}})",
                   {"1"},
                   {"null"}},
        SchemaCase{
            "Id",
            R"({"$id": "https://example.com/a", "type": "array", "items": {"$ref": "b"}, "$defs": {"x": {"$id": "b", "$ref": "#/$defs/y", "$defs": {"y": {"type": "integer"}}}, "y": {"type": "string"}}})",
            {"[1]"},
            {R"(["s"])"}},
        SchemaCase{
            "OwnId",
            R"({"$id": "https://example.com/a", "properties": {"x": {"$ref": "https://example.com/a#/$defs/y"}}, "$defs": {"y": {"type": "null"}}})",
            {R"({"x": null})"},
            {R"({"x": 1})"}},
        SchemaCase{
            "ClosedJoin",
            R"({"allOf": [{"properties": {"a": {}}, "additionalProperties": {"type": "integer"}}, {"properties": {"b": {"maximum": 4}}}]})",
            {R"({"a": "x", "b": 4})"},
            {R"({"b": 5})", R"({"b": "x"})"}},
        SchemaCase{"OldTuple",
                   R"({"type": "array", "items": [{"type": "integer"}], "additionalItems": {"type": "null"}})",
                   {"[1, null]", "[]"},
                   {"[1, 1]"}},
        SchemaCase{
            "Annotations",
            R"({"type": "integer", "nullable": true, "title": "t", "default": 3, "readOnly": true, "$comment": "c"})",
            {"1"},
            {"null"}},
        SchemaCase{"Hostname",
                   R"({"type": "string", "format": "hostname"})",
                   {R"("localhost")", R"("a-b.example.com")"},
                   {R"("-a.com")", R"("a_b.com")"}},
        SchemaCase{"Ipv6",
                   R"({"type": "string", "format": "ipv6"})",
                   {R"("::1")", R"("fe80::1")", R"("1:2:3:4:5:6:7:8")", R"("::")"},
                   {R"("1:2:3")", R"("12345::")", R"("1::2::3")"}},
        SchemaCase{"Uri",
                   R"({"type": "string", "format": "uri"})",
                   {R"("https://example.com/a/b?x=1#f")", R"("http://localhost:8080")"},
                   {R"("example")", R"("http://a b")"}},
        SchemaCase{"Duration",
                   R"({"type": "string", "format": "duration"})",
                   {R"("P3W")", R"("P1Y2M3DT4H5M6S")", R"("PT36H")"},
                   {R"("P")", R"("PT")", R"("P1Y3D")", R"("3W")"}},
        SchemaCase{"FormatWithLength",
                   R"({"type": "string", "format": "hostname", "minLength": 3, "maxLength": 4, "pattern": "[^.]$"})",
                   {R"("abc")", R"("a.bc")"},
                   {R"("ab")", R"("abcde")", R"("-ab")"}},
        SchemaCase{"FormatNot",
                   R"({"type": "string", "format": "json-pointer", "not": {"enum": ["/a", 3]}})",
                   {R"("/b")", R"("")"},
                   {R"("/a")", R"("a")"}},
        SchemaCase{"FormatTooLarge",
                   R"({"type": "string", "format": "uri", "minLength": 1, "maxLength": 2083})",
                   {R"("http://a.bc")", R"("any")"},
                   {R"("")"}},
        SchemaCase{"JsonPointer",
                   R"({"type": "string", "format": "json-pointer"})",
                   {R"("")", R"("/a~1b/0")"},
                   {R"("a")", R"("/~2")"}},
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
        RefusedSchema{"Not", R"({"not": {"$ref": "#/x"}, "x": true})", "the opposite of $ref is not supported"},
        RefusedSchema{"Below", R"({"properties": {"a": {"uniqueItems": true}}})",
                      "#/properties/a: uniqueItems is supported for items of an enum"},
        RefusedSchema{"Unevaluated", R"({"unevaluatedProperties": false})", "unevaluatedProperties is not"},
        RefusedSchema{"MultipleOf", R"({"type": "number", "multipleOf": 4097})", "multipleOf is not supported over"},
        RefusedSchema{"PatternTooLarge", R"({"type": "string", "pattern": "a.{5}b.{7}c", "maxLength": 900})",
                      "too large: over"},
        RefusedSchema{"PatternItself", R"x({"type": "string", "pattern": "(?=a)"})x", "lookaround"},
        RefusedSchema{"Type", R"({"type": "float"})", "type is one of"},
        RefusedSchema{"LongBound", R"({"type": "number", "minimum": 1e-30})",
                      "over 18 digits before the point or 17 behind"},
        RefusedSchema{"RemoteRef", R"({"$ref": "https://example.com/a.json"})", "only what is within the schema"},
        RefusedSchema{"ShortPercentRef", R"({"$ref": "#/$defs/x%5", "$defs": {"x%5": {}}})",
                      "behind a % two hexadecimal digits"},
        RefusedSchema{"WrongPercentRef", R"({"$ref": "#/$defs/x%zz", "$defs": {"x%zz": {}}})",
                      "behind a % two hexadecimal digits"},
        RefusedSchema{"LostRef", R"({"$ref": "#/$defs/x"})", "there is nothing"},
        RefusedSchema{"SelfRef", R"({"$ref": "#"})", "no text can have this form"},
        RefusedSchema{"SelfAllOf", R"({"allOf": [{"$ref": "#"}]})", "leads to itself"},
        RefusedSchema{"EndlessRef", R"({"type": "object", "properties": {"a": {"$ref": "#", "minItems": 1}}})",
                      "leads to itself"},
        RefusedSchema{"EndlessRequired",
                      R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})",
                      "no text can have this form"},
        RefusedSchema{"False", "false", "no text can have this form"},
        RefusedSchema{"EmptyRealRange", R"({"type": "number", "minimum": 1.125, "maximum": 0, "multipleOf": 0.25})",
                      "no text can have this form"},
        RefusedSchema{"EmptyRange", R"({"type": "integer", "minimum": 5, "maximum": 4})",
                      "no text can have this form"},
        RefusedSchema{
            "ClosedAllOf",
            R"({"allOf": [{"properties": {"a": {}}, "additionalProperties": false}, {"required": ["b"], "properties": {"b": {}}}]})",
            "no text can have this form"},
        RefusedSchema{"ManyProperties", R"({"type": "object", "minProperties": 2})", "minProperties over 1"},
        RefusedSchema{"NotAList", R"({"type": "array", "not": {"const": [5]}})", "not with values of type array"},
        RefusedSchema{"LostAnchor", R"({"$ref": "#x"})", "there is nothing"},
        RefusedSchema{"NamesOf", R"({"propertyNames": {"anyOf": [{"maxLength": 3}]}})",
                      "anyOf of names is not supported"},
        RefusedSchema{"ManyPatterns",
                      R"({"patternProperties": {"a": {}, "b": {}, "c": {}, "d": {}, "e": {}, "f": {}, "g": {}}})",
                      "over 64 kinds"},
        RefusedSchema{"LongString", R"({"type": "string", "minLength": 20000})", "minLength counts to 20000,"},
        RefusedSchema{"EndlessString", R"({"type": "string", "minLength": 2000000000})",
                      "minLength counts to 2000000000,"}),
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
