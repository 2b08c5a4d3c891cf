// Reasoning over real HTTP: told apart from the content in every protocol, whole and streamed, turned off, brought
// back, and behind which forms, calls and stop strings begin.
#include "serve/test_server.h"

namespace weft {
namespace {

using api::ReasoningFormat;
using api::ReasoningPlace;
using nlohmann::json;

struct KeptForms : api::ConstraintFactory {
  std::unique_ptr<TokenConstraint> make(const api::OutputForm& form) override {
    forms.push_back(form);
    return nullptr;
  }
  std::vector<api::OutputForm> forms;
};

TestSetup thinking(const std::string& answer, ReasoningFormat format = ReasoningFormat::think) {
  TestSetup setup{.engine = {.answer = saying(answer)}};
  setup.reasoning_format = format;
  if (format == ReasoningFormat::harmony) setup.tool_format = api::ToolFormat::harmony;
  return setup;
}
json open_request() {
  json request = chat_request("Why?");
  request["chat_template_kwargs"] = {{"opens", true}};
  return request;
}
std::string prompt_of(TestServer& server) { return bytes_as_text(server.engine.last_request().prompt); }

// What a streamed chat says in all.
json streamed(const TestServer& server, json request) {
  request["stream"] = true;
  json all = {{"content", ""}, {"reasoning_content", ""}, {"reasoning", ""}, {"calls", json::array()}};
  for (const json& event : server.stream("/v1/chat/completions", request)) {
    if (event.is_string()) continue;
    const json& delta = event["choices"][0]["delta"];
    for (const char* key : {"content", "reasoning_content", "reasoning"})
      all[key] = all[key].get<std::string>() + delta.value(key, "");
    for (const json& call : delta.value("tool_calls", json::array())) all["calls"].push_back(call["function"]);
    if (event["choices"][0]["finish_reason"].is_string()) all["reason"] = event["choices"][0]["finish_reason"];
  }
  return all;
}

struct SpokenCase {
  const char* name;
  ReasoningFormat format;
  bool opens;
  std::string answer, reasoning, content;
};
class ReasoningSpoken : public testing::TestWithParam<SpokenCase> {};
INSTANTIATE_TEST_SUITE_P(
    Table, ReasoningSpoken,
    testing::Values(
        SpokenCase{"Think", ReasoningFormat::think, false, "<think>\nHm: 1 < 2.\n</think>\n\nSo.", "Hm: 1 < 2.",
                   "So."},
        SpokenCase{"Opened", ReasoningFormat::think, true, "Hm.\n</think>\n\nSo.", "Hm.", "So."},
        SpokenCase{"Not", ReasoningFormat::think, false, "So <think>.", "", "So <think>."},
        SpokenCase{"Off", ReasoningFormat::none, false, "<think>Hm.</think>So.", "", "<think>Hm.</think>So."},
        SpokenCase{"Cut", ReasoningFormat::think, true, "Hm.", "Hm.", ""},
        SpokenCase{"Harmony", ReasoningFormat::harmony, false,
                   "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>So.", "Hm.",
                   "So."}),
    [](const auto& test) { return test.param.name; });

TEST_P(ReasoningSpoken, IsToldApartByEveryProtocol) {
  const SpokenCase& c = GetParam();
  TestServer server(thinking(c.answer, c.format));
  json request = open_request();
  if (!c.opens) request.erase("chat_template_kwargs");
  const json reply = server.ask("/v1/chat/completions", request);
  const json message = reply["choices"][0]["message"];
  EXPECT_EQ(message["content"], c.content);
  EXPECT_EQ(message.value("reasoning_content", ""), c.reasoning);
  EXPECT_EQ(message.value("reasoning", ""), c.reasoning);
  EXPECT_EQ(message.contains("reasoning_content"), !c.reasoning.empty());
  const int64_t counted = reply["usage"]["completion_tokens_details"]["reasoning_tokens"];
  EXPECT_EQ(counted > 0, !c.reasoning.empty());
  EXPECT_LE(counted, int64_t(c.reasoning.size()) + 11) << "its tokens are bytes, and some of the mark are counted";
  const json all = streamed(server, request);
  EXPECT_EQ(all["content"], c.content);
  EXPECT_EQ(all["reasoning_content"], c.reasoning);
  EXPECT_EQ(all["reasoning"], c.reasoning);

  request["max_tokens"] = 1000;
  const json blocks = server.ask("/v1/messages", request)["content"];
  json wanted = json::array();
  if (!c.reasoning.empty()) wanted.push_back({{"type", "thinking"}, {"thinking", c.reasoning}});
  if (!c.content.empty()) wanted.push_back({{"type", "text"}, {"text", c.content}});
  json told = blocks;
  for (json& block : told) {
    if (block["type"] != "thinking") continue;
    EXPECT_NE(block["signature"], "");
    block.erase("signature");
  }
  EXPECT_EQ(told, wanted);

  json of_response = {{"model", "test-model"}, {"input", "Why?"}};
  if (c.opens) of_response["chat_template_kwargs"] = request["chat_template_kwargs"];
  const json response = server.ask("/v1/responses", of_response);
  std::string thought, said;
  for (const json& item : response["output"])
    (item["type"] == "reasoning" ? thought : said) += item["content"][0]["text"].get<std::string>();
  EXPECT_EQ(thought, c.reasoning);
  EXPECT_EQ(said, c.content);
  EXPECT_EQ(response["usage"]["output_tokens_details"]["reasoning_tokens"], counted);
}

TEST(ReasoningApiTest, IsCountedWithoutItsMarks) {
  TestServer server(thinking("ab\n</think>c"));
  const json usage = server.ask("/v1/chat/completions", open_request())["usage"];
  // Tokens are bytes here, and the mark's are counted until it is whole.
  EXPECT_EQ(usage["completion_tokens_details"]["reasoning_tokens"], 10);
  EXPECT_EQ(
      server.ask("/v1/completions", {{"prompt", "a"}})["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);
}

TEST(ReasoningApiTest, BlocksOfAnthropicAreStreamed) {
  TestServer server(thinking("<think>Hm.</think>So."));
  json request = chat_request("Why?");
  request["max_tokens"] = 100, request["stream"] = true;
  std::vector<std::string> types;
  std::string thought, said, signature;
  for (const json& event : server.stream("/v1/messages", request)) {
    std::string type = event["type"];
    if (type == "content_block_start") type += ":" + event["content_block"]["type"].get<std::string>();
    if (type == "content_block_delta") {
      type = event["delta"]["type"];
      thought += event["delta"].value("thinking", "");
      said += event["delta"].value("text", "");
      signature += event["delta"].value("signature", "");
    }
    if (types.empty() || types.back() != type) types.push_back(type);
  }
  EXPECT_EQ(types,
            (std::vector<std::string>{"message_start", "ping", "content_block_start:thinking", "thinking_delta",
                                      "signature_delta", "content_block_stop", "content_block_start:text",
                                      "text_delta", "content_block_stop", "message_delta", "message_stop"}));
  EXPECT_EQ(thought, "Hm.");
  EXPECT_EQ(said, "So.");
  EXPECT_NE(signature, "");
}

TEST(ReasoningApiTest, ItemsOfResponsesAreStreamed) {
  TestServer server(thinking("<think>Hm.</think>So."));
  std::vector<std::string> types;
  std::string thought;
  json completed;
  int64_t next = 0;
  for (const json& event :
       server.stream("/v1/responses", {{"model", "test-model"}, {"input", "Why?"}, {"stream", true}})) {
    EXPECT_EQ(event["sequence_number"], next++);
    const std::string type = event["type"];
    if (types.empty() || types.back() != type) types.push_back(type);
    if (type == "response.reasoning_text.delta") {
      thought += event["delta"].get<std::string>();
      EXPECT_EQ(event["output_index"], 0);
      EXPECT_TRUE(event["item_id"].get<std::string>().starts_with("rs_"));
    }
    if (type == "response.output_text.delta") EXPECT_EQ(event["output_index"], 1);
    if (type == "response.completed") completed = event["response"];
  }
  EXPECT_EQ(types, (std::vector<std::string>{
                       "response.created", "response.in_progress", "response.output_item.added",
                       "response.content_part.added", "response.reasoning_text.delta", "response.reasoning_text.done",
                       "response.content_part.done", "response.output_item.done", "response.output_item.added",
                       "response.content_part.added", "response.output_text.delta", "response.output_text.done",
                       "response.content_part.done", "response.output_item.done", "response.completed"}));
  EXPECT_EQ(thought, "Hm.");
  EXPECT_EQ(completed["output"][0]["content"], json::parse(R"([{"type": "reasoning_text", "text": "Hm."}])"));
  EXPECT_EQ(completed["output"][0]["summary"], json::array());
  EXPECT_EQ(completed["output"][1]["content"][0]["text"], "So.");
}

TEST(ReasoningApiTest, StopStringsAreOfTheContent) {
  TestServer server(thinking("a. b.</think>\n\nc. d."));
  json request = open_request();
  request["stop"] = json::array({".", "\n\n"});
  const json choice = server.ask("/v1/chat/completions", request)["choices"][0];
  EXPECT_EQ(choice["message"]["reasoning_content"], "a. b.");
  EXPECT_EQ(choice["message"]["content"], "c");
  EXPECT_EQ(choice["stop_reason"], ".");
  EXPECT_EQ(streamed(server, request)["content"], "c");
  TestServer harmony(
      thinking("<|channel|>analysis<|message|>a. b.<|end|><|start|>assistant<|channel|>final<|message|>"
               "c. d.",
               ReasoningFormat::harmony));
  request.erase("chat_template_kwargs");
  const json message = harmony.ask("/v1/chat/completions", request)["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "a. b.");
  EXPECT_EQ(message["content"], "c");
}

TEST(ReasoningApiTest, CallsComeBehindIt) {
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>";
  TestServer server(thinking("Try <tool_call>? No: " + call + "\n</think>\n\nLook: " + call));
  json request = open_request();
  request["tools"] = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  const json choice = server.ask("/v1/chat/completions", request)["choices"][0];
  EXPECT_EQ(choice["message"]["reasoning_content"], "Try <tool_call>? No: " + call);
  EXPECT_EQ(choice["message"]["content"], "Look:");
  EXPECT_EQ(choice["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  const json all = streamed(server, request);
  EXPECT_EQ(all["reasoning"], choice["message"]["reasoning"]);
  EXPECT_EQ(all["content"], "Look:");
  EXPECT_EQ(all["calls"], json::array({choice["message"]["tool_calls"][0]["function"]}));
}

TEST(ReasoningApiTest, FormsAreOfWhatFollows) {
  KeptForms forms;
  TestSetup setup = thinking("Hm.</think>{}");
  setup.constraints = &forms;
  TestServer server(std::move(setup));
  const auto asked = [&](json more) {
    json request = chat_request("Why?");
    request.update(more);
    forms.forms.clear();
    server.ask("/v1/chat/completions", request);
    return forms.forms.empty() ? api::OutputForm{} : forms.forms.back();
  };
  const json opens = {{"opens", true}}, form = {{"type", "json_object"}};
  EXPECT_EQ(asked({{"response_format", form}, {"chat_template_kwargs", opens}}).reasoning, ReasoningPlace::inside);
  const api::OutputForm plain = asked({{"response_format", form}});
  EXPECT_EQ(plain.reasoning, ReasoningPlace::before);
  EXPECT_EQ(plain.reasoning_format, ReasoningFormat::think);
  EXPECT_EQ(asked({{"response_format", form}, {"reasoning_effort", "none"}}).reasoning, ReasoningPlace::outside);

  const json tools = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  const api::OutputForm free = asked({{"tools", tools}, {"chat_template_kwargs", opens}});
  EXPECT_EQ(free.reasoning, ReasoningPlace::inside);
  EXPECT_EQ(free.trigger, "<tool_call>");
  const api::OutputForm demanded =
      asked({{"tools", tools}, {"tool_choice", "required"}, {"chat_template_kwargs", opens}});
  EXPECT_TRUE(demanded.has_marker);
  EXPECT_EQ(demanded.reasoning, ReasoningPlace::inside);
  EXPECT_TRUE(prompt_of(server).ends_with("<think>\n"));
  const api::OutputForm off = asked({{"tools", tools}, {"tool_choice", "required"}, {"enable_thinking", false}});
  EXPECT_FALSE(off.has_marker);
  EXPECT_TRUE(prompt_of(server).ends_with("</think>\n\n<tool_call>\n")) << prompt_of(server);
}

TEST(ReasoningApiTest, ADemandedCallWithoutAFormEndsIt) {
  TestServer server(thinking("{\"x\": 1}}\n</tool_call>"));
  json request = open_request();
  request["tools"] = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  request["tool_choice"] = {{"type", "function"}, {"function", {{"name", "f"}}}};
  const json message = server.ask("/v1/chat/completions", request)["choices"][0]["message"];
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], R"({"x":1})");
  EXPECT_TRUE(prompt_of(server).ends_with("<think>\n\n</think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": "));
}

struct WishCase {
  const char* name;
  json fields;
  std::string prompt_end;
  bool is_told;
};
class ReasoningWishes : public testing::TestWithParam<WishCase> {};
INSTANTIATE_TEST_SUITE_P(
    Table, ReasoningWishes,
    testing::Values(
        WishCase{"None", json::object(), "<assistant>", true},
        WishCase{"TemplateOff", {{"chat_template_kwargs", {{"enable_thinking", false}}}}, "</think>\n\n", false},
        WishCase{"TemplateWins",
                 {{"chat_template_kwargs", {{"enable_thinking", true}}}, {"reasoning_effort", "none"}},
                 "<assistant>",
                 true},
        WishCase{"Effort", {{"reasoning_effort", "low"}}, "[low]", true},
        WishCase{"NoEffort", {{"reasoning_effort", "none"}}, "</think>\n\n", false},
        WishCase{"Nested", {{"reasoning", {{"effort", "high"}, {"summary", "auto"}}}}, "[high]", true},
        WishCase{"NestedOff", {{"reasoning", {{"enabled", false}}}}, "</think>\n\n", false},
        WishCase{"Excluded", {{"reasoning", {{"exclude", true}}}}, "<assistant>", false},
        WishCase{"NotIncluded", {{"include_reasoning", false}}, "<assistant>", false},
        WishCase{"Disabled", {{"thinking", {{"type", "disabled"}}}}, "</think>\n\n", false},
        WishCase{"Enabled", {{"thinking", {{"type", "enabled"}, {"budget_tokens", 1024}}}}, "<assistant>", true},
        WishCase{"Top", {{"enable_thinking", false}}, "</think>\n\n", false}),
    [](const auto& test) { return test.param.name; });

TEST_P(ReasoningWishes, AreFollowed) {
  const WishCase& c = GetParam();
  const bool is_off = c.prompt_end.ends_with("</think>\n\n");
  TestServer server(thinking(is_off ? "So." : "<think>Hm.</think>So."));
  json request = chat_request("Why?");
  request.update(c.fields);
  const json message = server.ask("/v1/chat/completions", request)["choices"][0]["message"];
  EXPECT_EQ(message["content"], "So.");
  EXPECT_EQ(message.contains("reasoning_content"), c.is_told);
  EXPECT_TRUE(prompt_of(server).ends_with(c.prompt_end)) << prompt_of(server);
  request["max_tokens"] = 100;
  EXPECT_EQ(server.ask("/v1/messages", request)["content"][0]["type"], c.is_told ? "thinking" : "text");
  EXPECT_TRUE(prompt_of(server).ends_with(c.prompt_end)) << prompt_of(server);
}

TEST(ReasoningApiTest, WhatTheTemplateBeginsAllTheSameIsEnded) {
  TestServer server(thinking("So."));
  json request = open_request();
  request["reasoning_effort"] = "none";
  EXPECT_EQ(server.ask("/v1/chat/completions", request)["choices"][0]["message"]["content"], "So.");
  EXPECT_TRUE(prompt_of(server).ends_with("<think>\n\n</think>\n\n"));
}

TEST(ReasoningApiTest, UnknownWishesAreRefused) {
  TestServer server(thinking("So."));
  for (const json& wish : {json{{"reasoning_effort", "enormous"}}, json{{"thinking", {{"type", "perhaps"}}}},
                           json{{"reasoning", {{"effort", "wild"}}}}}) {
    json request = chat_request("Why?");
    request.update(wish);
    const bench::HttpResult result = server.post("/v1/chat/completions", request);
    EXPECT_EQ(result.status, 400);
    EXPECT_NE(result.body.find(wish.begin().key()), std::string::npos) << result.body;
  }
}

struct EarlierCase {
  const char* name;
  const char* path;
  json fields;
};
class EarlierReasoning : public testing::TestWithParam<EarlierCase> {};
const json kAsk = {{"role", "user"}, {"content", "?"}};
INSTANTIATE_TEST_SUITE_P(
    Table, EarlierReasoning,
    testing::Values(
        EarlierCase{
            "Content",
            "/v1/chat/completions",
            {{"messages", {kAsk, {{"role", "assistant"}, {"content", "So."}, {"reasoning_content", "Hm."}}, kAsk}}}},
        EarlierCase{"Reasoning",
                    "/v1/chat/completions",
                    {{"messages", {kAsk, {{"role", "assistant"}, {"content", "So."}, {"reasoning", "Hm."}}, kAsk}}}},
        EarlierCase{"Thinking",
                    "/v1/chat/completions",
                    {{"messages", {kAsk, {{"role", "assistant"}, {"content", "So."}, {"thinking", "Hm."}}, kAsk}}}},
        EarlierCase{"Parts",
                    "/v1/chat/completions",
                    {{"messages",
                      {kAsk,
                       {{"role", "assistant"},
                        {"content",
                         {{{"type", "thinking"}, {"thinking", {{{"type", "text"}, {"text", "Hm."}}}}},
                          {{"type", "text"}, {"text", "So."}}}}},
                       kAsk}}}},
        EarlierCase{"Anthropic",
                    "/v1/messages",
                    {{"max_tokens", 10},
                     {"messages",
                      {kAsk,
                       {{"role", "assistant"},
                        {"content",
                         {{{"type", "thinking"}, {"thinking", "Hm."}, {"signature", "s"}},
                          {{"type", "redacted_thinking"}, {"data", "x"}},
                          {{"type", "text"}, {"text", "So."}}}}},
                       kAsk}}}},
        EarlierCase{"Responses",
                    "/v1/responses",
                    {{"input",
                      {kAsk,
                       {{"type", "reasoning"},
                        {"id", "rs_1"},
                        {"summary", json::array()},
                        {"content", {{{"type", "reasoning_text"}, {"text", "Hm."}}}}},
                       {{"type", "message"}, {"role", "assistant"}, {"content", "So."}},
                       kAsk}}}},
        EarlierCase{"Summary",
                    "/v1/responses",
                    {{"input",
                      {kAsk,
                       {{"type", "reasoning"}, {"summary", {{{"type", "summary_text"}, {"text", "Hm."}}}}},
                       {{"type", "message"}, {"role", "assistant"}, {"content", "So."}},
                       kAsk}}}}),
    [](const auto& test) { return test.param.name; });

TEST_P(EarlierReasoning, ReachesTheTemplate) {
  TestServer server(thinking("Yes."));
  json request = {{"model", "test-model"}};
  request.update(GetParam().fields);
  server.ask(GetParam().path, request);
  EXPECT_EQ(prompt_of(server), "<user>?\n<assistant><think>Hm.</think>So.\n<user>?\n<assistant>");
}

}  // namespace
}  // namespace weft
