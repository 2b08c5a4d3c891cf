// Tokens as numbers beside the text or in its place, and how many there are so far: vLLM's return_token_ids,
// return_tokens_as_token_ids, allowed_token_ids and continuous_usage_stats.
#include "serve/test_server.h"

namespace weft {
namespace {

using nlohmann::json;

std::vector<int32_t> bytes_of(std::string_view text, std::initializer_list<int32_t> more = {}) {
  std::vector<int32_t> tokens(text.begin(), text.end());
  tokens.insert(tokens.end(), more);
  return tokens;
}

TEST(TokenIdsApiTest, ChatTellsThoseOfThePromptAndTheAnswer) {
  TestServer server;
  json request = chat_request("Hi");
  EXPECT_FALSE(server.ask("/v1/chat/completions", request).contains("prompt_token_ids"));
  request["return_token_ids"] = true, request["n"] = 2;
  const json reply = server.ask("/v1/chat/completions", request);
  const std::vector<int32_t> prompt = bytes_of("<user>Hi\n<assistant>"), answer = bytes_of("Hello, world.", {256});
  EXPECT_EQ(reply["prompt_token_ids"], prompt);
  for (const json& choice : reply["choices"]) EXPECT_EQ(choice["token_ids"], answer) << "with the end token";

  request["stream"] = true;
  std::vector<std::vector<int32_t>> streamed(2);
  int told = 0;
  for (const json& event : server.stream("/v1/chat/completions", request)) {
    if (event.is_string()) continue;
    told += event.value("prompt_token_ids", json()) == json(prompt);
    for (const json& choice : event["choices"])
      for (const json& token : choice.value("token_ids", json::array())) streamed[choice["index"]].push_back(token);
  }
  EXPECT_EQ(told, 2) << "by the first event of each choice";
  EXPECT_EQ(streamed, (std::vector{answer, answer}));
}

TEST(TokenIdsApiTest, CompletionsTellThoseOfEveryPrompt) {
  TestServer server({.engine = {.answer = saying("yes")}});
  json request = {{"prompt", {"ab", "c"}}, {"n", 2}, {"max_tokens", 2}, {"return_token_ids", true}};
  const json whole = server.ask("/v1/completions", request)["choices"];
  const std::vector<int32_t> prompts[] = {bytes_of("ab"), bytes_of("c")};
  ASSERT_EQ(whole.size(), 4u);
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(whole[i]["prompt_token_ids"], prompts[i / 2]);
    EXPECT_EQ(whole[i]["token_ids"], bytes_of("ye")) << "no end token came";
  }
  request["stream"] = true;
  std::vector<json> told(4);
  std::vector<std::vector<int32_t>> streamed(4);
  for (const json& event : server.stream("/v1/completions", request)) {
    if (event.is_string()) continue;
    for (const json& choice : event["choices"]) {
      if (choice.contains("prompt_token_ids")) told[choice["index"]] = choice["prompt_token_ids"];
      for (const json& token : choice.value("token_ids", json::array())) streamed[choice["index"]].push_back(token);
    }
  }
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(told[i], prompts[i / 2]);
    EXPECT_EQ(streamed[i], bytes_of("ye"));
  }
}

TEST(TokenIdsApiTest, LogprobsCallTokensByTheirNumbersWhereThatIsAskedFor) {
  TestServer server({.engine = {.answer = saying("yes")}});
  json request = chat_request("Hi");
  request["logprobs"] = true, request["top_logprobs"] = 2, request["max_tokens"] = 2;
  const auto chat = [&] { return server.ask("/v1/chat/completions", request)["choices"][0]["logprobs"]["content"]; };
  const json texts = chat();
  request["return_tokens_as_token_ids"] = true;
  const json ids = chat();
  ASSERT_EQ(ids.size(), 2u);
  EXPECT_EQ(texts[0]["token"], "y");
  EXPECT_EQ(ids[0]["token"], "token_id:121");
  EXPECT_EQ(ids[1]["token"], "token_id:101");
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(ids[i]["bytes"], texts[i]["bytes"]);
    EXPECT_EQ(ids[i]["logprob"], texts[i]["logprob"]);
    ASSERT_EQ(ids[i]["top_logprobs"].size(), 2u);
    for (const json& top : ids[i]["top_logprobs"])
      EXPECT_EQ(top["token"].get<std::string>().rfind("token_id:", 0), 0u) << top;
  }

  request = {{"prompt", "ab"}, {"max_tokens", 2}, {"logprobs", 2}, {"echo", true}};
  const json named = server.ask("/v1/completions", request)["choices"][0]["logprobs"];
  request["return_tokens_as_token_ids"] = true;
  const json numbered = server.ask("/v1/completions", request)["choices"][0]["logprobs"];
  EXPECT_EQ(named["tokens"], (std::vector<std::string>{"a", "b", "y", "e"}));
  EXPECT_EQ(numbered["tokens"],
            (std::vector<std::string>{"token_id:97", "token_id:98", "token_id:121", "token_id:101"}));
  EXPECT_EQ(numbered["text_offset"], named["text_offset"]) << "of the text, whatever tokens are called";
  EXPECT_EQ(numbered["token_logprobs"], named["token_logprobs"]);
  EXPECT_TRUE(numbered["top_logprobs"][3].contains("token_id:101"));
}

TEST(TokenIdsApiTest, NothingBehindAStopIsTold) {
  TestServer server;
  json request = chat_request("Hi");
  request["return_token_ids"] = true, request["stop"] = ", ";
  const json choice = server.ask("/v1/chat/completions", request)["choices"][0];
  EXPECT_EQ(choice["message"]["content"], "Hello");
  EXPECT_EQ(choice["token_ids"], bytes_of("Hello, "));
}

TEST(TokenIdsApiTest, UsageIsToldInEveryChunkWhereThatIsAskedFor) {
  TestServer server;
  for (const char* path : {"/v1/chat/completions", "/v1/completions"}) {
    json request = chat_request("Hi");
    request["prompt"] = "<user>Hi\n<assistant>", request["max_tokens"] = 50, request["stream"] = true;
    request["stream_options"] = {{"include_usage", true}, {"continuous_usage_stats", true}};
    const std::vector<json> events = server.stream(path, request);
    int64_t before = 0;
    for (size_t i = 0; i + 1 < events.size(); ++i) {
      const json& usage = events[i]["usage"];
      EXPECT_EQ(usage["prompt_tokens"], 20);
      EXPECT_GE(usage["completion_tokens"], before);
      before = usage["completion_tokens"];
      EXPECT_EQ(usage["total_tokens"], 20 + before);
    }
    EXPECT_EQ(events[events.size() - 3]["usage"]["completion_tokens"], 14) << "the last of the choice";
    EXPECT_EQ(events[events.size() - 2]["usage"]["completion_tokens"], 14);
    request["stream_options"] = {{"continuous_usage_stats", true}};
    for (const json& event : server.stream(path, request))
      if (event.is_object()) EXPECT_FALSE(event.contains("usage")) << "include_usage was not asked for";
  }
}

TEST(TokenIdsApiTest, AllowedTokensReachTheEngine) {
  TestServer server;
  server.ask("/v1/completions", {{"prompt", "x"}, {"max_tokens", 1}, {"allowed_token_ids", {105, 72, 105}}});
  EXPECT_EQ(server.engine.last_request().sampling.allowed_tokens, (std::vector<int32_t>{72, 105})) << "each once";
  for (const json& tokens : {json::array(), json{257}, json{-1}, json("72")}) {
    const bench::HttpResult result = server.post("/v1/completions", {{"prompt", "x"}, {"allowed_token_ids", tokens}});
    EXPECT_EQ(result.status, 400) << tokens;
    EXPECT_NE(result.body.find("allowed_token_ids"), std::string::npos) << result.body;
  }
}

}  // namespace
}  // namespace weft
