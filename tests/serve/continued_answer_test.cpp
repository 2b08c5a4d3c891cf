// Answers that the client began: the prompt ends within the last message, in every protocol that has this.
#include "serve/test_server.h"

namespace weft {
namespace {

using nlohmann::json;

const json kBegun = {{{"role", "user"}, {"content", "Hi"}}, {{"role", "assistant"}, {"content", "I am "}}};

std::string prompt_of(TestServer& server) { return bytes_as_text(server.engine.last_request().prompt); }

TEST(ContinuedAnswerTest, ChatGoesOnWithTheLastMessage) {
  TestServer server;
  const json request = {{"messages", kBegun}, {"continue_final_message", true}, {"add_generation_prompt", false}};
  const json reply = server.ask("/v1/chat/completions", request);
  EXPECT_EQ(prompt_of(server), "<user>Hi\n<assistant>I am ");
  EXPECT_EQ(reply["choices"][0]["message"]["content"], "Hello, world.") << "without what the client knows";
  EXPECT_EQ(server.ask("/tokenize", request)["count"], prompt_of(server).size());
}

TEST(ContinuedAnswerTest, WithoutItTheLastMessageIsEnded) {
  TestServer server;
  server.ask("/v1/chat/completions", {{"messages", kBegun}});
  EXPECT_EQ(prompt_of(server), "<user>Hi\n<assistant>I am \n<assistant>");
  server.ask("/v1/chat/completions", {{"messages", kBegun}, {"add_generation_prompt", false}});
  EXPECT_EQ(prompt_of(server), "<user>Hi\n<assistant>I am \n");
}

TEST(ContinuedAnswerTest, AnthropicsClientsJustSendIt) {
  TestServer server;
  const json body = {{"model", "test-model"}, {"max_tokens", 5}, {"messages", kBegun}};
  EXPECT_EQ(server.ask("/v1/messages", body)["content"][0]["text"], "Hello");
  EXPECT_EQ(prompt_of(server), "<user>Hi\n<assistant>I am ");
  EXPECT_EQ(server.ask("/v1/messages/count_tokens", body)["input_tokens"], prompt_of(server).size());
}

TEST(ContinuedAnswerTest, AMarkOfThoughtsInItsBeginningCounts) {
  for (const auto& [begun, reasoning, content] :
       {std::tuple("<think>\nWell", "then", "So."), {"<think>\nWell</think>", "", "then</think>So."}}) {
    TestServer server(
        {.engine = {.answer = saying("then</think>So.")}, .reasoning_format = api::ReasoningFormat::think});
    json request = {{"messages", kBegun}, {"continue_final_message", true}};
    request["messages"][1]["content"] = begun;
    const json message = server.ask("/v1/chat/completions", request)["choices"][0]["message"];
    EXPECT_EQ(message.value("reasoning_content", json("")), reasoning) << begun;
    EXPECT_EQ(message["content"], content) << begun;
  }
}

TEST(ContinuedAnswerTest, SaysWhatCannotBeContinued) {
  TestServer server;
  const json good = {{"messages", kBegun}, {"continue_final_message", true}};
  const json tools = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  const json called = {{"role", "assistant"}, {"content", ""}, {"tool_calls", {{{"function", {{"name", "f"}}}}}}};
  const std::pair<json, const char*> bad[] = {
      {{{"messages", {kBegun[0]}}}, "not the assistant's"},
      {{{"messages", {kBegun[0], called}}}, "it has calls"},
      {{{"tools", tools}, {"tool_choice", "required"}}, "demands a call"},
      {{{"add_generation_prompt", true}}, "excludes add_generation_prompt"},
  };
  for (const auto& [change, says] : bad) {
    json request = good;
    request.update(change);
    const bench::HttpResult result = server.post("/v1/chat/completions", request);
    EXPECT_EQ(result.status, 400) << says;
    EXPECT_NE(result.body.find(says), std::string::npos) << result.body;
  }
}

}  // namespace
}  // namespace weft
