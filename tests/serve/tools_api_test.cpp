// Tools in chat requests over real HTTP: calls that are parsed, forced, forbidden and given their form.
#include <set>

#include "serve/test_server.h"

namespace weft {
namespace {

using nlohmann::json;

// Keeps what is asked for, and refuses schemas of some type.
struct RecordingForms : api::ConstraintFactory {
  std::unique_ptr<TokenConstraint> make(const api::OutputForm& form) override {
    for (const std::string& schema : form.schemas)
      if (schema.find("strange") != std::string::npos) throw UsageError("a strange schema");
    forms.push_back(form);
    return nullptr;
  }
  std::vector<api::OutputForm> forms;
};

TEST(ToolsApiTest, ToolCallsAreParsedWholeAndStreamed) {
  TestServer server(
      {.engine = {
           .answer = saying(
               "Yes.<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Ulm\"}}\n</tool_call>")}});
  json request = chat_request("Weather?");
  request["tools"] = {
      {{"type", "function"}, {"function", {{"name", "weather"}, {"parameters", {{"type", "object"}}}}}}};
  const json choice = server.ask("/v1/chat/completions", request)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["content"], "Yes.");
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["name"], "weather");
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], R"({"city":"Ulm"})");
  EXPECT_NE(bytes_as_text(server.engine.last_request().prompt).find("tools: [{"), std::string::npos);

  request["stream"] = true;
  json calls = json::array();
  std::string reason;
  for (const json& event : server.stream("/v1/chat/completions", request)) {
    if (event.is_string()) continue;
    const json& c = event["choices"][0];
    for (const json& call : c["delta"].value("tool_calls", json::array())) calls.push_back(call);
    if (c["finish_reason"].is_string()) reason = c["finish_reason"];
  }
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0]["index"], 0);
  EXPECT_EQ(calls[0]["function"]["name"], "weather");
  EXPECT_EQ(reason, "tool_calls");
}

TEST(ToolsApiTest, CallsOfLlamaAreStreamed) {
  RecordingForms forms;
  TestSetup setup{.engine = {.answer = saying("{\"name\": \"weather\", \"parameters\": {\"city\": \"Ulm\"}}")}};
  setup.constraints = &forms;
  setup.tool_format = api::ToolFormat::llama;
  TestServer server(std::move(setup));
  json request = chat_request("Weather?");
  request["tools"] = {
      {{"type", "function"}, {"function", {{"name", "weather"}, {"parameters", {{"type", "object"}}}}}}};
  request["stream"] = true;
  std::string content, reason;
  json calls = json::array();
  for (const json& event : server.stream("/v1/chat/completions", request)) {
    if (event.is_string()) continue;
    const json& choice = event["choices"][0];
    content += choice["delta"].value("content", "");
    for (const json& call : choice["delta"].value("tool_calls", json::array())) calls.push_back(call["function"]);
    if (choice["finish_reason"].is_string()) reason = choice["finish_reason"];
  }
  EXPECT_EQ(content, "");
  EXPECT_EQ(calls, json::parse(R"([{"name": "weather", "arguments": "{\"city\":\"Ulm\"}"}])"));
  EXPECT_EQ(reason, "tool_calls");
  ASSERT_FALSE(forms.forms.empty());
  EXPECT_EQ(forms.forms.back().trigger, "{");
  EXPECT_TRUE(forms.forms.back().is_whole_answer);
}

TEST(ToolsApiTest, ToolChoiceForcesOrForbids) {
  TestServer server({.engine = {.answer = saying("{\"x\": 1}}\n</tool_call>")}});
  json request = chat_request("Go");
  request["tools"] = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  request["tool_choice"] = {{"type", "function"}, {"function", {{"name", "f"}}}};
  const json call = server.ask("/v1/chat/completions", request)["choices"][0]["message"]["tool_calls"][0]["function"];
  EXPECT_EQ(call["name"], "f");
  EXPECT_EQ(call["arguments"], R"({"x":1})");
  EXPECT_TRUE(
      bytes_as_text(server.engine.last_request().prompt).ends_with("<tool_call>\n{\"name\": \"f\", \"arguments\": "));
  request["tool_choice"] = "none";
  EXPECT_FALSE(server.ask("/v1/chat/completions", request)["choices"][0]["message"].contains("tool_calls"));
  EXPECT_EQ(bytes_as_text(server.engine.last_request().prompt).find("tools:"), std::string::npos);
}

TEST(ToolsApiTest, CallsThatAModelBeginsHaveTheFormOfTheTools) {
  RecordingForms forms;
  TestServer server({.engine = {.answer = saying("Hello.")}, .api = {}, .adapter_folder = {}, .constraints = &forms});
  const auto asked = [&](const char* parameters, const json& more) {
    forms.forms.clear();
    json request = chat_request("Go");
    request["tools"] = {
        {{"type", "function"}, {"function", {{"name", "f"}, {"parameters", json::parse(parameters)}}}}};
    request.update(more);
    EXPECT_EQ(server.ask("/v1/chat/completions", request)["choices"][0]["message"]["content"], "Hello.");
    return forms.forms.empty() ? std::optional<api::OutputForm>() : forms.forms.back();
  };
  const auto form = asked(R"({"type": "object"})", {{"parallel_tool_calls", false}});
  ASSERT_TRUE(form);
  EXPECT_EQ(form->trigger, "<tool_call>");
  EXPECT_EQ(form->choices, std::vector<std::string>{"f"});
  EXPECT_FALSE(form->is_parallel);
  EXPECT_FALSE(asked(R"({"type": "strange"})", json::object()));
  EXPECT_FALSE(asked(R"({"type": "object"})", {{"tool_choice", "none"}}));
  const auto whole = asked(R"({"type": "object"})", {{"response_format", {{"type", "json_object"}}}});
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->kind, api::OutputForm::Kind::json_object);
}

const json kDays = {
    {"type", "function"},
    {"function",
     {{"name", "days"},
      {"parameters",
       {{"type", "object"}, {"properties", {{"n", {{"type", "integer"}}}, {"of", {{"type", "string"}}}}}}}}}};

TEST(ToolsApiTest, ArgumentsBetweenTagsAreOfTheTypesOfTheTool) {
  TestSetup setup{.engine = {.answer = saying("So.\n<tool_call>\n<function=days>\n<parameter=n>\n3\n</parameter>\n"
                                              "<parameter=of>\n7\n</parameter>\n</function>\n</tool_call>")}};
  setup.tool_format = api::ToolFormat::qwen3_coder;
  TestServer server(std::move(setup));
  json request = chat_request("How many?");
  request["tools"] = json::array({kDays});
  const json message = server.ask("/v1/chat/completions", request)["choices"][0]["message"];
  EXPECT_EQ(message["content"], "So.");
  EXPECT_EQ(message["tool_calls"][0]["function"],
            json::parse(R"({"name": "days", "arguments": "{\"n\":3,\"of\":\"7\"}"})"));
  request["max_tokens"] = 200;
  request["tools"] = {{{"name", "days"}, {"input_schema", kDays["function"]["parameters"]}}};
  const json content = server.ask("/v1/messages", request)["content"];
  EXPECT_EQ(content[1]["input"], json::parse(R"({"n": 3, "of": "7"})"));
  const json items = server.ask(
      "/v1/responses",
      {{"model", "test-model"},
       {"input", "How many?"},
       {"tools",
        {{{"type", "function"}, {"name", "days"}, {"parameters", kDays["function"]["parameters"]}}}}})["output"];
  EXPECT_EQ(items[1]["arguments"], R"({"n":3,"of":"7"})");
}

TEST(ToolsApiTest, CallsKeepTheIdsThatTheModelWrites) {
  TestSetup setup{.engine = {.answer = saying("<|tool_calls_section_begin|><|tool_call_begin|>functions.days:4"
                                              "<|tool_call_argument_begin|>{\"n\": 1}<|tool_call_end|>"
                                              "<|tool_calls_section_end|>")}};
  setup.tool_format = api::ToolFormat::kimi_k2;
  TestServer server(std::move(setup));
  json request = chat_request("Go");
  request["tools"] = json::array({kDays});
  const json call = server.ask("/v1/chat/completions", request)["choices"][0]["message"]["tool_calls"][0];
  EXPECT_EQ(call["id"], "functions.days:4");
  EXPECT_EQ(call["function"]["name"], "days");
}

TEST(ToolsApiTest, AnswersInPartsAreReadWithAndWithoutTools) {
  RecordingForms forms;
  TestSetup setup{
      .engine = {.answer = saying("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final"
                                  "<|message|>Hello.")}};
  setup.constraints = &forms;
  setup.tool_format = api::ToolFormat::harmony;
  TestServer server(std::move(setup));
  json request = chat_request("Go");
  EXPECT_EQ(server.ask("/v1/chat/completions", request)["choices"][0]["message"]["content"], "Hello.");
  EXPECT_TRUE(forms.forms.empty());
  request["tools"] = json::array({kDays});
  EXPECT_EQ(server.ask("/v1/chat/completions", request)["choices"][0]["message"]["content"], "Hello.");
  ASSERT_FALSE(forms.forms.empty());
  EXPECT_TRUE(forms.forms.back().may_be_text);
}

TEST(ToolsApiTest, OfAnthropicHaveTheirForm) {
  TestServer server(
      {.engine = {.answer = saying("<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}</tool_call>")}});
  json request = {
      {"max_tokens", 100},
      {"tools", {{{"name", "f"}, {"input_schema", {{"type", "object"}}}}}},
      {"messages",
       {{{"role", "user"}, {"content", "Go"}},
        {{"role", "assistant"},
         {"content", {{{"type", "tool_use"}, {"id", "t1"}, {"name", "f"}, {"input", {{"x", 0}}}}}}},
        {{"role", "user"}, {"content", {{{"type", "tool_result"}, {"tool_use_id", "t1"}, {"content", "42"}}}}}}}};
  const json reply = server.ask("/v1/messages", request);
  EXPECT_EQ(reply["stop_reason"], "tool_use");
  EXPECT_EQ(reply["content"][0]["type"], "tool_use");
  EXPECT_EQ(reply["content"][0]["input"]["x"], 1);
  const std::string prompt = bytes_as_text(server.engine.last_request().prompt);
  EXPECT_NE(prompt.find("{\"name\": \"f\", \"arguments\": {\"x\": 0}}"), std::string::npos) << prompt;
  EXPECT_NE(prompt.find("<tool>42"), std::string::npos) << prompt;
  request.erase("max_tokens");
  const bench::HttpResult refused = server.post("/v1/messages", request);
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(json::parse(refused.body)["type"], "error");
  EXPECT_EQ(json::parse(refused.body)["error"]["type"], "invalid_request_error");
}

// The fewest items that make room for the answer: whole turns from the oldest on, then calls with what they gave.
TEST(ToolsApiTest, TruncationLeavesTheOldestItemsOut) {
  TestSetup setup;
  setup.engine.limits.context = 240;
  TestServer server(std::move(setup));
  const auto user = [](const char* text) { return json{{"role", "user"}, {"content", text + std::string(30, '.')}}; };
  const json said = {{"role", "assistant"}, {"content", "So."}}, system = {{"role", "system"}, {"content", "Be."}};
  const auto call = [](const char* id) {
    return json{{"type", "function_call"}, {"call_id", id}, {"name", id}, {"arguments", "{}"}};
  };
  const auto output = [](const char* id) {
    return json{{"type", "function_call_output"}, {"call_id", id}, {"output", id}};
  };
  json request = {{"input",
                   {system, user("1"), said, user("2"), call("a"), output("a"), said, user("3"), call("b"),
                    output("b"), call("c"), output("c")}},
                  {"truncation", "auto"}};
  const auto prompt = [&](int64_t most) {
    request["max_output_tokens"] = most;
    EXPECT_EQ(server.ask("/v1/responses", request)["truncation"], "auto");
    return bytes_as_text(server.engine.last_request().prompt);
  };
  const std::string dots(30, '.'), c = R"(<tool_call>{"name": "c", "arguments": {}}</tool_call>)",
                                   end = "\n<tool>c\n<assistant>";
  const std::string third = "<user>3" + dots + "\n<assistant>" +
                            R"(<tool_call>{"name": "b", "arguments": {}}</tool_call>)" + "\n<tool>b\n<assistant>";
  EXPECT_EQ(prompt(10), "<system>Be.\n" + third + c + end) << "the third question is the last";
  EXPECT_EQ(prompt(4000), "<system>Be.\n<user>3" + dots + "\n<assistant>" + c + end)
      << "an answer gets half of the context at most, and the last call stays";
  request["input"].erase(8), request["input"].erase(8), request["input"].erase(8), request["input"].erase(8);
  EXPECT_TRUE(prompt(10).starts_with("<system>Be.\n<user>2")) << "the second turn fits, whole";
  request["truncation"] = "disabled", request["input"][1] = user(std::string(200, '1').c_str());
  EXPECT_EQ(server.post("/v1/responses", request).status, 400);
  request["truncation"] = "auto", request["input"][7] = user(std::string(200, '3').c_str());
  EXPECT_EQ(server.post("/v1/responses", request).status, 400) << "the last question alone is too long";
}

// What a model writes behind and between its calls stands there, streamed or not.
TEST(ToolsApiTest, PartsStandInTheOrderInWhichTheyWereWritten) {
  const std::string call = R"(<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>)";
  TestSetup setup{.engine = {.answer = saying("<think>Hm.</think>First." + call + "Then." + call + call + "Last.")}};
  setup.reasoning_format = api::ReasoningFormat::think;
  TestServer server(std::move(setup));
  json chat = chat_request("Go"), response = {{"input", "Go"}, {"tools", {{{"type", "function"}, {"name", "f"}}}}};
  chat["max_tokens"] = 500, chat["tools"] = {{{"name", "f"}, {"input_schema", {{"type", "object"}}}}};
  const std::vector<std::string> want = {"thinking Hm.", "text First.", "tool_use",  "text Then.",
                                         "tool_use",     "tool_use",    "text Last."};
  std::vector<std::string> whole, streamed;
  const json message = server.ask("/v1/messages", chat);
  for (const json& block : message["content"]) {
    const std::string type = block["type"];
    whole.push_back(type == "tool_use" ? type : type + " " + block[type].get<std::string>());
  }
  EXPECT_EQ(whole, want);
  chat["stream"] = true;
  for (const json& event : server.stream("/v1/messages", chat)) {
    if (event["type"] == "content_block_start") streamed.push_back(event["content_block"]["type"]);
    if (event["type"] == "content_block_start" && streamed.back() != "tool_use") streamed.back() += " ";
    for (const char* text : {"thinking", "text"})
      if (event["type"] == "content_block_delta") streamed.back() += event["delta"].value(text, "");
  }
  EXPECT_EQ(streamed, want);

  const auto items_of = [](const json& output) {
    std::vector<std::string> items;
    std::set<std::string> ids;
    for (const json& item : output) {
      items.push_back(item["type"]);
      if (item.contains("content")) items.back() += " " + item["content"][0]["text"].get<std::string>();
      EXPECT_TRUE(ids.insert(item["id"]).second) << item;
      EXPECT_EQ(item["status"], "completed");
    }
    return items;
  };
  const std::vector<std::string> items = {"reasoning Hm.", "message First.", "function_call", "message Then.",
                                          "function_call", "function_call",  "message Last."};
  EXPECT_EQ(items_of(server.ask("/v1/responses", response)["output"]), items);
  response["stream"] = true;
  EXPECT_EQ(items_of(server.stream("/v1/responses", response).back()["response"]["output"]), items);
}

// Templates of some models take nothing but results of tools behind a message with calls.
TEST(ToolsApiTest, ItemsOfOneTurnAreOneMessage) {
  TestServer server;
  const auto call = [](const char* id) {
    return json{{"type", "function_call"}, {"call_id", id}, {"name", id}, {"arguments", "{}"}};
  };
  const auto output = [](const char* id) {
    return json{{"type", "function_call_output"}, {"call_id", id}, {"output", id}};
  };
  const json said = {{"role", "assistant"}, {"content", "So."}}, user = {{"role", "user"}, {"content", "Go"}};
  const std::string a = R"(<tool_call>{"name": "a", "arguments": {}}</tool_call>)",
                    b = R"(<tool_call>{"name": "b", "arguments": {}}</tool_call>)";
  for (const auto& [input, prompt] :
       {std::pair(json{user, said, call("a"), call("b"), output("a"), output("b")},
                  "<user>Go\n<assistant>So." + a + b + "\n<tool>a\n<tool>b\n"),
        {json{user, call("a"), said, output("a"), call("b"), output("b")},
         "<user>Go\n<assistant>So." + a + "\n<tool>a\n<assistant>" + b + "\n<tool>b\n"},
        {json{user, {{"type", "reasoning"}, {"summary", {{{"text", "Hm."}}}}}, said, call("a"), output("a"), user},
         "<user>Go\n<assistant><think>Hm.</think>So." + a + "\n<tool>a\n<user>Go\n"}}) {
    server.ask("/v1/responses", {{"input", input}});
    EXPECT_EQ(bytes_as_text(server.engine.last_request().prompt), prompt + "<assistant>") << input;
  }
}

}  // namespace
}  // namespace weft
