// Filling in the middle: prompts in the order of each family, and what ends the answers.
#include "weft/serve/api/fill_in_middle.h"

#include "serve/marked_tokenizer.h"
#include "serve/test_server.h"

namespace weft {
namespace {

using api::FillInMiddle;
using nlohmann::json;

struct Sample {
  const char* name;
  std::vector<std::string> markers;
  const char* prompt;  // of "a" and "b"
};
void PrintTo(const Sample& s, std::ostream* out) { *out << s.name; }

class FillInMiddleTest : public testing::TestWithParam<Sample> {};
INSTANTIATE_TEST_SUITE_P(
    Families, FillInMiddleTest,
    testing::Values(Sample{"Qwen",
                           {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>", "<|file_sep|>"},
                           "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>"},
                    Sample{"StarCoder",
                           {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
                           "<fim_prefix>a<fim_suffix>b<fim_middle>"},
                    Sample{"SantaCoder",
                           {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
                           "<fim-prefix>a<fim-suffix>b<fim-middle>"},
                    Sample{"DeepSeek",
                           {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},
                           "<｜fim▁begin｜>a<｜fim▁hole｜>b<｜fim▁end｜>"},
                    Sample{"CodeLlama", {"▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>"}, "▁<PRE>a▁<SUF>b▁<MID>"},
                    Sample{"Codestral", {"[PREFIX]", "[SUFFIX]", "[MIDDLE]"}, "[SUFFIX]b[PREFIX]a"}),
    [](const auto& test) { return test.param.name; });

TEST_P(FillInMiddleTest, HasTheFormOfTheFamily) {
  const MarkedTokenizer tokenizer(GetParam().markers);
  const std::optional<FillInMiddle> form = api::detect_fill_in_middle(tokenizer);
  ASSERT_TRUE(form);
  EXPECT_EQ(tokenizer.decode(form->prompt(tokenizer, {'a'}, "b"), true), GetParam().prompt);
  for (const std::string& marker : GetParam().markers)
    if (marker != "[MIDDLE]")
      EXPECT_TRUE(std::ranges::count(form->ends, *tokenizer.find(marker))) << marker << " would be told as text";
}

TEST_P(FillInMiddleTest, NeedsAllOfItsTokens) {
  for (size_t i = 0; i < 2; ++i) {
    std::vector<std::string> markers = GetParam().markers;
    markers.erase(markers.begin() + int(i));
    EXPECT_FALSE(api::detect_fill_in_middle(MarkedTokenizer(markers))) << "without " << GetParam().markers[i];
  }
}

TEST(FillInMiddlePromptTest, WhatBeginsEveryTextStaysInFront) {
  class WithBegin : public MarkedTokenizer {
   public:
    using MarkedTokenizer::MarkedTokenizer;
    std::optional<int32_t> begin_of_document() const override { return 1; }
  };
  const WithBegin tokenizer({"<fim_prefix>", "<fim_suffix>", "<fim_middle>"});
  const FillInMiddle form = *api::detect_fill_in_middle(tokenizer);
  EXPECT_EQ(form.prompt(tokenizer, {1, 'a'}, "b"), (std::vector<int32_t>{1, 256, 'a', 257, 'b', 258}));
  EXPECT_EQ(form.prompt(tokenizer, {}, "b"), (std::vector<int32_t>{256, 257, 'b', 258}));
}

TEST(FillInMiddleApiTest, AsksForWhatStandsBeforeTheSuffix) {
  TestServer server({.fill_in_middle = FillInMiddle{.prefix = 1, .suffix = 2, .middle = 3, .ends = {4}}});
  const json body = {{"prompt", {"ab", "c"}}, {"suffix", "de"}, {"max_tokens", 3}};
  EXPECT_EQ(server.ask("/v1/completions", body)["choices"][1]["text"], "Hel");
  const Request last = server.engine.last_request();
  const std::vector<int32_t> first{1, 'a', 'b', 2, 'd', 'e', 3}, second{1, 'c', 2, 'd', 'e', 3};
  EXPECT_TRUE(last.prompt == first || last.prompt == second);
  EXPECT_TRUE(std::ranges::count(last.stop_tokens, 4));
  for (const json& more : {json{{"echo", true}}, json{{"truncate_prompt_tokens", 2}}}) {
    json refused = body;
    refused.update(more);
    EXPECT_EQ(server.post("/v1/completions", refused).status, 400) << more;
  }
  EXPECT_EQ(server.post("/v1/completions", {{"prompt", "x"}, {"suffix", ""}}).status, 200);
}

}  // namespace
}  // namespace weft
