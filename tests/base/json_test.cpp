// JSON: valid text reads as it should; everything else is one named error, however hostile.
#include "weft/base/json.h"

#include <nlohmann/json.hpp>

#include <random>

#include "support/message_of.h"
#include "weft/base/error.h"

namespace weft {
namespace {

std::string nested(int depth, std::string_view open, std::string_view close) {
  std::string text;
  for (int i = 0; i < depth; ++i) text += open;
  text += "1";
  for (int i = 0; i < depth; ++i) text += close;
  return text;
}

TEST(Json, ReadsWhatNlohmannReads) {
  for (const std::string_view text :
       {R"({"a": [1, -2, 3.5, 1e10, true, false, null, "x\u00e9\ud83d\ude00"], "b": {"c": {}}, "": []})", "[]", "1",
        "\"\"", "  null  ", R"([[[1], [2]], [[3]]])", R"({"a":{"x":1},"b":{"x":1}})", "18446744073709551615"}) {
    EXPECT_EQ(parse_json(text, "t"), nlohmann::json::parse(text)) << text;
  }
}

struct Bad {
  std::string name, text, message;  // `message` must be a part of what is thrown
};
class JsonRefusalTest : public testing::TestWithParam<Bad> {};
INSTANTIATE_TEST_SUITE_P(
    Texts, JsonRefusalTest,
    testing::Values(Bad{"Empty", "", "x.json, line 1 column 1: "}, Bad{"TwoValues", "1 2", "line 1 column 3"},
                    Bad{"TrailingComma", "[1,\n2,\n]", "line 3 column 1"},
                    Bad{"Unclosed", R"({"a": [1)", "line 1 column"}, Bad{"SingleQuotes", "{'a': 1}", "column 2"},
                    Bad{"Comment", "// no\n1", "line 1"}, Bad{"Nan", "[NaN]", "column 2"},
                    Bad{"LeadingZero", "[01]", "column 3"}, Bad{"HugeNumber", "[1e999]", "line 1"},
                    Bad{"BadEscape", R"(["\q"])", "column"}, Bad{"LoneSurrogate", R"(["\ud800"])", "column"},
                    Bad{"ControlInString", "[\"a\nb\"]", "column"}, Bad{"NotUtf8", "[\"\xff\xfe\"]", "UTF-8"},
                    Bad{"Overlong", "[\"\xc0\xaf\"]", "UTF-8"}, Bad{"CutUtf8", "[\"\xe2\x82\"]", "UTF-8"},
                    Bad{"DuplicateKey", "{\"a\": 1,\n \"b\": 2, \"a\": 3}", "the key 'a' appears twice"},
                    Bad{"DuplicateInner", R"({"x": {"a": 1, "\u0061": 3}})", "the key 'a' appears twice"},
                    Bad{"TooDeepArrays", nested(65, "[", "]"), "deeper than 64"},
                    Bad{"TooDeepObjects", nested(65, "{\"a\":", "}"), "deeper than 64"},
                    Bad{"BombArrays", std::string(1 << 20, '['), "deeper than 64"},
                    Bad{"BombObjects", nested(100'000, "{\"a\":", ""), "deeper than 64"}),
    [](const auto& test) { return test.param.name; });

TEST_P(JsonRefusalTest, NamesSourcePlaceAndReason) {
  const std::string message = message_of([] { parse_json(GetParam().text, "x.json"); });
  EXPECT_TRUE(message.starts_with("x.json, line ")) << message;
  EXPECT_NE(message.find(GetParam().message), std::string::npos) << message;
  EXPECT_EQ(message.find("json.exception"), std::string::npos) << message;
  EXPECT_LT(message.size(), 300u);
  EXPECT_THROW(for_each_json_member(GetParam().text, "x.json", {}, [](const auto&, const auto&) {}), Error);
}

TEST(Json, KeysKeepTheirOrderWhereThatIsAskedFor) {
  const std::string text = R"({"z":1,"a":{"y":[{"x":2,"b":3}],"c":null},"m":{}})";
  EXPECT_EQ(parse_ordered_json(text, "s").dump(), text);
  const auto refusal = [](const std::string& bad, const JsonLimits& limits = {}) {
    return message_of([&] { parse_ordered_json(bad, "s", limits); });
  };
  EXPECT_NE(refusal(R"({"a":{"b":1,"c":2},"b":{"b":1,"b":2}})").find("the key 'b' appears twice"), std::string::npos);
  EXPECT_NO_THROW(parse_ordered_json(R"([{"b":1},{"b":1},{"b":{"b":1}}])", "s")) << "in different objects";
  EXPECT_NE(refusal("[[[]]]", {.max_depth = 2}).find("nested deeper"), std::string::npos);
  EXPECT_NE(refusal("[1,2,3]", {.max_values = 3}).find("more than 3 values"), std::string::npos);
}

TEST(Json, LimitsAreHeldExactly) {
  EXPECT_NO_THROW(parse_json(nested(64, "[", "]"), "t"));
  EXPECT_NO_THROW(parse_json("[1,2,3]", "t", {.max_bytes = 7, .max_values = 4}));
  EXPECT_NE(message_of([] { parse_json("[1,2,3]", "t", {.max_bytes = 6}); }).find("7 bytes"), std::string::npos);
  EXPECT_NE(message_of([] { parse_json("[1,2,3]", "t", {.max_values = 3}); }).find("more than 3 values"),
            std::string::npos);
}

TEST(Json, MembersAreVisitedInOrderWithoutATree) {
  std::string seen;
  for_each_json_member(
      R"({"z": {"k": [1, {"q": 2}]}, "a": 3, "m": [], "n": {}})", "t", {},
      [&](const std::string& key, const nlohmann::json& value) { seen += key + value.dump() + ";"; });
  EXPECT_EQ(seen, R"(z{"k":[1,{"q":2}]};a3;m[];n{};)");
  EXPECT_THROW(for_each_json_member("[1]", "t", {}, [](const auto&, const auto&) {}), Error);
  EXPECT_THROW(for_each_json_member("1", "t", {}, [](const auto&, const auto&) {}), Error);
  EXPECT_THROW(for_each_json_member(R"({"a": 1, "b": {}, "a": 1})", "t", {}, [](const auto&, const auto&) {}), Error);
}

TEST(Json, MutationsNeverThrowAnythingElse) {
  const std::string seed = R"({"a": [1, -2.5e3, "x\u00e9"], "b": {"c": null, "d": [true, {}]}, "e": ""})";
  std::mt19937 random(7);
  int accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text = seed;
    for (uint32_t edits = 1 + random() % 3; edits > 0; --edits) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0: text[at] = char(random()); break;
        case 1: text.erase(at, 1 + random() % 5); break;
        default: text = text.substr(0, at) + text.substr(random() % text.size(), random() % 9) + text.substr(at);
      }
      if (text.empty()) text.push_back(' ');
    }
    try {
      const nlohmann::json value = parse_json(text, "fuzz");
      EXPECT_EQ(parse_json(to_json_text(value), "again"), value) << text;
      ++accepted;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(accepted, 100);
}

TEST(JsonView, TypedGettersNameThePlace) {
  const JsonDocument document = JsonDocument::parse(
      R"({"model": {"layers": [1, {"name": "x"}], "hidden": 512, "eps": 1e-5, "tied": true, "none": null,
          "big": 18446744073709551615}})",
      "config.json");
  const JsonView model = document.root()["model"];
  EXPECT_EQ(model["hidden"].integer(), 512);
  EXPECT_EQ(model["hidden"].number(), 512.0);
  EXPECT_EQ(model["eps"].number(), 1e-5);
  EXPECT_TRUE(model.at("tied").boolean());
  EXPECT_EQ(model["layers"].at(1)["name"].string(), "x");
  EXPECT_FALSE(model.has("none"));
  EXPECT_FALSE(model.has("absent"));
  EXPECT_EQ(model.integer_or("absent", 7), 7);
  EXPECT_EQ(model.integer_or("none", 7), 7);
  EXPECT_EQ(model.string_or("absent", "y"), "y");
  EXPECT_EQ(model["layers"].size(), 2);

  const auto expect = [](const std::function<void()>& action, const std::string& message) {
    EXPECT_EQ(message_of(action), message);
  };
  expect([&] { model.at("hiden"); }, "config.json: model.hiden is missing; did you mean hidden?");
  expect([&] { model["hidden"].integer(1, 100); },
         "config.json: model.hidden must be an integer from 1 to 100, but it is 512");
  expect([&] { model["eps"].integer(); }, "config.json: model.eps must be an integer of 64 bits, but it is 1e-05");
  expect([&] { model["big"].integer(); },
         "config.json: model.big must be an integer of 64 bits, but it is 18446744073709551615");
  expect([&] { model["layers"].at(1)["name"].number(); },
         "config.json: model.layers[1].name must be a number, but it is \"x\"");
  expect([&] { model["layers"].at(2); }, "config.json: model.layers[2] is missing, the array has 2");
  expect([&] { model["absent"].string(); }, "config.json: model.absent must be a string, but it is null");
  expect([&] { document.root().string(); },
         "config.json: the outermost value must be a string, but it is an object of 1");
}

}  // namespace
}  // namespace weft
