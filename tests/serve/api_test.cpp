// Routes that generate text, over real HTTP: what clients of each protocol send and what they get, whole and
// streamed.
#include "serve/test_server.h"

namespace weft {
namespace {

using nlohmann::json;

TEST(ChatApiTest, AnswersInFull) {
  TestServer server;
  const json reply = server.ask("/v1/chat/completions", chat_request("Hi"));
  EXPECT_EQ(reply["object"], "chat.completion");
  EXPECT_EQ(reply["model"], "test-model");
  EXPECT_EQ(reply["choices"][0]["message"]["content"], "Hello, world.");
  EXPECT_EQ(reply["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(reply["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(bytes_as_text(server.engine.last_request().prompt), "<user>Hi\n<assistant>");
  EXPECT_EQ(reply["usage"]["prompt_tokens"], 20);
  EXPECT_EQ(reply["usage"]["completion_tokens"], 14) << "the end token counts";
  EXPECT_EQ(reply["usage"]["prompt_tokens_details"]["cached_tokens"], 1);
}

TEST(ChatApiTest, StreamsTheSameText) {
  TestServer server;
  json request = chat_request("Hi");
  request["stream"] = true;
  request["stream_options"] = {{"include_usage", true}};
  const std::vector<json> events = server.stream("/v1/chat/completions", request);
  std::string text;
  ASSERT_GE(events.size(), 4u);
  EXPECT_EQ(events.front()["choices"][0]["delta"]["role"], "assistant");
  for (size_t i = 0; i + 2 < events.size(); ++i) {
    EXPECT_EQ(events[i]["id"], events[0]["id"]);
    EXPECT_TRUE(events[i]["usage"].is_null());
    text += events[i]["choices"][0]["delta"].value("content", "");
  }
  EXPECT_EQ(text, "Hello, world.");
  EXPECT_EQ(events[events.size() - 3]["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(events[events.size() - 2]["choices"].empty());
  EXPECT_EQ(events[events.size() - 2]["usage"]["completion_tokens"], 14);
  EXPECT_EQ(events.back(), "[DONE]");
}

TEST(ChatApiTest, RowsOfTheModelThatAreNoTokenSayNothing) {
  TestServer server({.engine = {.answer = [](const Request&) { return std::vector<int32_t>{'a', 5000, 'b', 256}; }}});
  const json reply = server.ask("/v1/chat/completions", chat_request("Hi"));
  EXPECT_EQ(reply["choices"][0]["message"]["content"], "ab");
  EXPECT_EQ(reply["usage"]["completion_tokens"], 4);
}

TEST(ChatApiTest, ContentPartsAndRolesReachTheTemplate) {
  TestServer server;
  json request = chat_request("x");
  request["messages"] = {{{"role", "developer"},
                          {"content", {{{"type", "text"}, {"text", "Be"}}, {{"type", "text"}, {"text", "brief"}}}}},
                         {{"role", "user"}, {"content", "Hi"}}};
  server.ask("/v1/chat/completions", request);
  EXPECT_EQ(bytes_as_text(server.engine.last_request().prompt), "<system>Be\nbrief\n<user>Hi\n<assistant>");
}

TEST(ChatApiTest, LogprobsNameTokensAndAlternatives) {
  TestServer server;
  json request = chat_request("Hi");
  request["logprobs"] = true;
  request["top_logprobs"] = 2;
  const json content = server.ask("/v1/chat/completions", request)["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 13u);
  EXPECT_EQ(content[0]["token"], "H");
  EXPECT_EQ(content[0]["bytes"], json::array({'H'}));
  ASSERT_EQ(content[0]["top_logprobs"].size(), 2u);
  EXPECT_EQ(content[0]["top_logprobs"][0]["logprob"], content[0]["logprob"]);
  EXPECT_EQ(content[0]["top_logprobs"][1]["token"], "I");
}

TEST(ChatApiTest, StopStringsEndTheTextAndAreNamed) {
  TestServer server;
  for (const json& stop : {json("wor"), json::array({"xyz", "wor"})}) {
    json request = chat_request("Hi");
    request["stop"] = stop;
    const json reply = server.ask("/v1/chat/completions", request);
    EXPECT_EQ(reply["choices"][0]["message"]["content"], "Hello, ");
    EXPECT_EQ(reply["choices"][0]["finish_reason"], "stop");
    EXPECT_EQ(reply["choices"][0]["stop_reason"], "wor");
    EXPECT_EQ(reply["usage"]["completion_tokens"], 10);
  }
}

TEST(CompletionsApiTest, TextsTokensAndListsOfThem) {
  TestServer server;
  const auto texts = [&](const json& prompt, json more = json::object()) {
    more["prompt"] = prompt, more["max_tokens"] = 5;
    std::vector<std::string> got;
    const json reply = server.ask("/v1/completions", more);
    for (const json& choice : reply["choices"]) {
      EXPECT_EQ(choice["index"], got.size());
      EXPECT_EQ(choice["finish_reason"], "length");
      got.push_back(choice["text"]);
    }
    return got;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(texts("Say"), Texts{"Hello"});
  EXPECT_EQ(texts(json::array({1, 2, 3})), Texts{"Hello"});
  EXPECT_EQ(server.engine.last_request().prompt, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(texts(json::array({"a", "b"})), (Texts{"Hello", "Hello"}));
  EXPECT_EQ(texts(json::array({{1}, {2, 3}})), (Texts{"Hello", "Hello"}));
  EXPECT_EQ(texts(json::array({"a", "b"}), {{"n", 2}}).size(), 4u);
  EXPECT_EQ(texts("Say", {{"echo", true}}), Texts{"SayHello"});
  EXPECT_EQ(texts("Say", {{"best_of", 3}}), Texts{"Hello"});
}

TEST(CompletionsApiTest, EchoWithLogprobsScoresThePrompt) {
  TestServer server;
  const json choice = server.ask("/v1/completions", {{"prompt", {{72, 105}}},
                                                     {"max_tokens", 1},
                                                     {"logprobs", 1},
                                                     {"echo", true},
                                                     {"temperature", 0}})["choices"][0];
  EXPECT_EQ(choice["text"], "HiH");
  const json& l = choice["logprobs"];
  EXPECT_EQ(l["tokens"], json::array({"H", "i", "H"}));
  EXPECT_TRUE(l["token_logprobs"][0].is_null());
  EXPECT_TRUE(l["top_logprobs"][0].is_null());
  EXPECT_EQ(l["token_logprobs"][1], l["top_logprobs"][1]["i"]) << "the same float";
  EXPECT_EQ(l["text_offset"], json::array({0, 1, 2}));
}

TEST(CompletionsApiTest, MaxTokens0WithEchoOnlyScores) {
  TestServer server;
  const json reply =
      server.ask("/v1/completions", {{"prompt", "Hi"}, {"max_tokens", 0}, {"logprobs", 0}, {"echo", true}});
  EXPECT_EQ(reply["choices"][0]["text"], "Hi");
  EXPECT_EQ(reply["choices"][0]["logprobs"]["tokens"].size(), 2u);
  EXPECT_EQ(reply["usage"]["completion_tokens"], 0);
}

// Tokens may say more than the text did: the byte tokenizer knows an end of document, which no text has.
TEST(CompletionsApiTest, EchoOfATextIsThatText) {
  TestServer server;
  const json request = {{"prompt", "H\u00efx"}, {"max_tokens", 1}, {"logprobs", 0}, {"echo", true}};
  const json choice = server.ask("/v1/completions", request)["choices"][0];
  EXPECT_EQ(choice["text"], "H\u00efxH");
  json more = request;
  more["prompt"] = {{ByteTokenizer::kEndOfDocument, 72, 105}};
  const json tokens = server.ask("/v1/completions", more)["choices"][0];
  const std::string text = tokens["text"];
  EXPECT_TRUE(text.ends_with("HiH")) << text;
  EXPECT_EQ(tokens["logprobs"]["text_offset"].back(), text.size() - 1);
}

TEST(CompletionsApiTest, KeepsTheEndsOfPromptsThatAreToBeCut) {
  TestServer server;
  const json body = {{"prompt", {"abcdef", "gh"}}, {"truncate_prompt_tokens", 3}, {"echo", true}, {"max_tokens", 0}};
  const json reply = server.ask("/v1/completions", body);
  EXPECT_EQ(reply["choices"][0]["text"], "def");
  EXPECT_EQ(reply["choices"][1]["text"], "gh");
  EXPECT_EQ(reply["usage"]["prompt_tokens"], 5);
  const json fitted = {{"prompt", std::string(5000, 'x')}, {"truncate_prompt_tokens", -1}, {"max_tokens", 10}};
  EXPECT_EQ(server.ask("/v1/completions", fitted)["usage"]["prompt_tokens"], 4096 - 10);
  const json input = {{"input", std::string(5000, 'x')}, {"truncate_prompt_tokens", -1}};
  EXPECT_EQ(server.ask("/v1/embeddings", input)["usage"]["prompt_tokens"], 4095);
  EXPECT_EQ(server.post("/v1/completions", {{"prompt", "x"}, {"truncate_prompt_tokens", 0}}).status, 400);
}

TEST(CompletionsApiTest, NamesWhatAPromptMayBe) {
  TestServer server;
  for (const json& prompt : {json(nullptr), json(3), json{{"a", 1}}}) {
    const bench::HttpResult result = server.post("/v1/completions", {{"prompt", prompt}});
    EXPECT_EQ(result.status, 400);
    EXPECT_NE(result.body.find("prompt: write a text, a list"), std::string::npos) << result.body;
  }
}

TEST(CompletionsApiTest, PromptLogprobsAreAsVllmHasThem) {
  TestServer server;
  const json logprobs =
      server.ask("/v1/completions", {{"prompt", "Hi"}, {"prompt_logprobs", 1}})["choices"][0]["prompt_logprobs"];
  ASSERT_EQ(logprobs.size(), 2u);
  EXPECT_TRUE(logprobs[0].is_null());
  EXPECT_EQ(logprobs[1]["105"]["decoded_token"], "i");
  EXPECT_EQ(logprobs[1]["105"]["rank"], 1);
}

TEST(CompletionsApiTest, StreamedPiecesMakeUpTheWhole) {
  TestServer server({.engine = {.answer = saying("na\xC3\xAFve caf\xC3\xA9 \xF0\x9F\x98\x80.")}});
  json request = {{"prompt", {"a", "b"}}, {"max_tokens", 50}, {"n", 2}, {"echo", true}};
  const json whole = server.ask("/v1/completions", request)["choices"];
  request["stream"] = true;
  std::vector<std::string> texts(4);
  for (const json& event : server.stream("/v1/completions", request)) {
    if (event.is_string()) continue;
    for (const json& choice : event["choices"]) texts[choice["index"]] += choice["text"].get<std::string>();
  }
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(whole[i]["text"], texts[i]);
}

TEST(ParametersTest, ReachTheEngine) {
  TestServer server;
  server.ask("/v1/completions", {{"prompt", "x"},
                                 {"max_tokens", 3},
                                 {"temperature", 0.5},
                                 {"top_p", 0.25},
                                 {"top_k", 7},
                                 {"min_p", 0.125},
                                 {"typical_p", 0.75},
                                 {"presence_penalty", 1.5},
                                 {"frequency_penalty", -1.5},
                                 {"repetition_penalty", 1.25},
                                 {"seed", 42},
                                 {"logit_bias", {{"65", -100}, {"66", 2.5}}},
                                 {"stop_token_ids", {7}},
                                 {"ignore_eos", true},
                                 {"bad_words", {"no"}},
                                 {"priority", -3},
                                 {"model", "an-adapter"},
                                 {"a_field_of_tomorrow", {1, 2}},
                                 {"user", nullptr}});
  const Request r = server.engine.last_request();
  EXPECT_EQ(r.sampling.temperature, 0.5);
  EXPECT_EQ(r.sampling.top_p, 0.25);
  EXPECT_EQ(r.sampling.top_k, 7);
  EXPECT_EQ(r.sampling.min_p, 0.125);
  EXPECT_EQ(r.sampling.typical_p, 0.75);
  EXPECT_EQ(r.sampling.presence_penalty, 1.5);
  EXPECT_EQ(r.sampling.frequency_penalty, -1.5);
  EXPECT_EQ(r.sampling.repetition_penalty, 1.25);
  EXPECT_EQ(r.sampling.seed, 42u);
  EXPECT_EQ(r.sampling.logit_bias.size(), 2u);
  EXPECT_EQ(r.stop_tokens, std::vector<int32_t>{7}) << "ignore_eos leaves the model's end token out";
  EXPECT_EQ(r.bad_words, (std::vector<std::vector<int32_t>>{{'n', 'o'}, {' ', 'n', 'o'}}));
  EXPECT_EQ(r.priority, -3);
  EXPECT_EQ(r.adapter, "an-adapter");
  EXPECT_EQ(r.max_tokens, 3);
}

TEST(ParametersTest, AreTheModelsOwnWhereARequestSaysNothing) {
  TestServer plain,
      server({.sampling = {.temperature = 0.6, .top_p = 0.95, .repetition_penalty = 1.05, .top_k = 20}});
  const auto of = [](TestServer& asked, const char* path, json request) {
    asked.ask(path, request);
    const SamplingOptions s = asked.engine.last_request().sampling;
    return std::tuple(s.temperature, s.top_p, s.repetition_penalty, s.top_k);
  };
  const json chat = chat_request("Hi");
  json message = chat;
  message["max_tokens"] = 3;
  EXPECT_EQ(of(plain, "/v1/chat/completions", chat), std::tuple(1.0, 1.0, 1.0, 0));
  EXPECT_EQ(of(server, "/v1/chat/completions", chat), std::tuple(0.6, 0.95, 1.05, 20));
  EXPECT_EQ(of(server, "/v1/messages", message), std::tuple(0.6, 0.95, 1.05, 20));
  EXPECT_EQ(of(server, "/v1/responses", {{"input", "Hi"}}), std::tuple(0.6, 0.95, 1.05, 20));
  EXPECT_EQ(of(server, "/v1/completions", {{"prompt", "x"}, {"temperature", nullptr}}),
            std::tuple(0.6, 0.95, 1.05, 20));
  EXPECT_EQ(of(server, "/v1/completions",
               {{"prompt", "x"}, {"temperature", 0}, {"top_p", 1}, {"repetition_penalty", 1}, {"top_k", -1}}),
            std::tuple(0.0, 1.0, 1.0, 0));
}

TEST(ParametersTest, AnswersToOnePromptHaveSeedsOfTheirOwn) {
  TestServer server;
  server.ask("/v1/completions", {{"prompt", "x"}, {"seed", 5}, {"n", 1}});
  EXPECT_EQ(server.engine.last_request().sampling.seed, 5u);
  server.ask("/v1/completions", {{"prompt", "x"}, {"seed", 5}, {"n", 2}});
  const uint64_t second = server.engine.last_request().sampling.seed;
  EXPECT_NE(second, 5u);
  server.ask("/v1/completions", {{"prompt", "x"}, {"seed", 5}, {"n", 2}});
  EXPECT_EQ(server.engine.last_request().sampling.seed, second) << "and the same ones again";
}

struct BadRequest {
  const char* name;
  const char* path;
  json body;
  int status;
  const char* says;
};
class Refusals : public testing::TestWithParam<BadRequest> {};
const json kHi = {{{"role", "user"}, {"content", "Hi"}}};
INSTANTIATE_TEST_SUITE_P(
    Fields, Refusals,
    testing::Values(
        BadRequest{"UnknownModel", "/v1/completions", {{"model", "other"}, {"prompt", "x"}}, 404, "does not exist"},
        BadRequest{"NoPrompt", "/v1/completions", json::object(), 400, "prompt"},
        BadRequest{"EmptyPrompt", "/v1/completions", {{"prompt", ""}}, 400, "empty"},
        BadRequest{"NoSuchToken", "/v1/completions", {{"prompt", {1, 257}}}, 400, "257"},
        BadRequest{"NegativeTokens", "/v1/completions", {{"prompt", "x"}, {"max_tokens", -1}}, 400, "max_tokens"},
        BadRequest{"LeastAboveMost",
                   "/v1/completions",
                   {{"prompt", "x"}, {"max_tokens", 2}, {"min_tokens", 3}},
                   400,
                   "min_tokens"},
        BadRequest{"Temperature", "/v1/completions", {{"prompt", "x"}, {"temperature", -1}}, 400, "temperature"},
        BadRequest{"TextForNumber", "/v1/completions", {{"prompt", "x"}, {"top_p", "high"}}, 400, "top_p"},
        BadRequest{"TooManyAnswers", "/v1/completions", {{"prompt", "x"}, {"n", 17}}, 400, "n"},
        BadRequest{"FractionOfAnswers", "/v1/completions", {{"prompt", "x"}, {"n", 1.5}}, 400, "n"},
        BadRequest{"TooManyLogprobs", "/v1/completions", {{"prompt", "x"}, {"logprobs", 21}}, 400, "logprobs"},
        BadRequest{"BestOfBelowN", "/v1/completions", {{"prompt", "x"}, {"n", 3}, {"best_of", 2}}, 400, "best_of"},
        BadRequest{"Suffix", "/v1/completions", {{"prompt", "x"}, {"suffix", "y"}}, 400, "suffix"},
        BadRequest{
            "BiasOfNoToken", "/v1/completions", {{"prompt", "x"}, {"logit_bias", {{"999", 1}}}}, 400, "logit_bias"},
        BadRequest{"LongStop", "/v1/completions", {{"prompt", "x"}, {"stop", std::string(300, 'a')}}, 400, "stop"},
        BadRequest{"TooLong", "/v1/completions", {{"prompt", std::string(5000, 'a')}}, 400, "maximum context length"},
        BadRequest{"NoMessages", "/v1/chat/completions", json::object(), 400, "messages"},
        BadRequest{"Image",
                   "/v1/chat/completions",
                   {{"messages", {{{"role", "user"}, {"content", {{{"type", "image_url"}, {"image_url", "x"}}}}}}}},
                   400,
                   "content"},
        BadRequest{"Form",
                   "/v1/chat/completions",
                   {{"messages", kHi}, {"response_format", {{"type", "json_object"}}}},
                   400,
                   "response_format"},
        BadRequest{
            "ToolChoice", "/v1/chat/completions", {{"messages", kHi}, {"tool_choice", "maybe"}}, 400, "tool_choice"},
        BadRequest{"Previous",
                   "/v1/responses",
                   {{"input", "x"}, {"previous_response_id", "r"}},
                   400,
                   "previous_response_id"},
        BadRequest{"Conversation", "/v1/responses", {{"input", "x"}, {"conversation", "c"}}, 400, "conversation"},
        BadRequest{"Background", "/v1/responses", {{"input", "x"}, {"background", true}}, 400, "background"},
        BadRequest{
            "ResponseToolChoice", "/v1/responses", {{"input", "x"}, {"tool_choice", "bogus"}}, 400, "tool_choice"},
        BadRequest{"ResponseForm",
                   "/v1/responses",
                   {{"input", "x"}, {"text", {{"format", {{"type", "bogus"}}}}}},
                   400,
                   "text.format.type"},
        BadRequest{"EmptyInput", "/v1/responses", {{"input", json::array()}}, 400, "input"},
        BadRequest{"Metadata", "/v1/responses", {{"input", "x"}, {"metadata", 1}}, 400, "metadata"},
        BadRequest{"Truncation", "/v1/responses", {{"input", "x"}, {"truncation", "bogus"}}, 400, "truncation"},
        BadRequest{"ToolsOfText", "/v1/chat/completions", {{"messages", kHi}, {"tools", "x"}}, 400, "tools"},
        BadRequest{"ToolOfNumber", "/v1/chat/completions", {{"messages", kHi}, {"tools", {1}}}, 400, "tools[0]"},
        BadRequest{"StreamedPromptLogprobs",
                   "/v1/completions",
                   {{"prompt", "x"}, {"prompt_logprobs", 1}, {"stream", true}},
                   400,
                   "prompt_logprobs"},
        BadRequest{"StreamedPromptLogprobsOfAChat",
                   "/v1/chat/completions",
                   {{"messages", kHi}, {"prompt_logprobs", 0}, {"stream", true}},
                   400,
                   "prompt_logprobs"},
        BadRequest{"NumberForInput", "/v1/embeddings", {{"input", 5}}, 400, "input: write a text"},
        BadRequest{
            "Encoding", "/v1/embeddings", {{"input", "x"}, {"encoding_format", "int8"}}, 400, "encoding_format"},
        BadRequest{"NoInput", "/v1/embeddings", json::object(), 400, "input"},
        BadRequest{"BadTokens", "/detokenize", {{"tokens", {1, -1}}}, 400, "tokens"}),
    [](const auto& test) { return test.param.name; });

TEST_P(Refusals, NameTheField) {
  static TestServer server;
  const BadRequest& bad = GetParam();
  const bench::HttpResult result = server.post(bad.path, bad.body);
  EXPECT_EQ(result.status, bad.status);
  const json error = json::parse(result.body)["error"];
  EXPECT_NE(error["message"].get<std::string>().find(bad.says), std::string::npos) << result.body;
  EXPECT_TRUE(error.contains("type") && error.contains("param") && error.contains("code"));
  EXPECT_EQ(server.ask("/v1/completions", {{"prompt", "x"}, {"max_tokens", 2}})["choices"][0]["text"], "He")
      << "and a good request is answered right behind it";
}

TEST(ErrorsTest, ContextLengthHasItsCode) {
  TestServer server;
  const std::string text(5000, 'a');
  for (const auto& [path, field, body] : {std::tuple("/v1/completions", "prompt", json{{"prompt", text}}),
                                          {"/v1/embeddings", "input", json{{"input", text}}},
                                          {"/v1/responses", "input", json{{"input", text}}},
                                          {"/v1/chat/completions", "messages", chat_request(text)}}) {
    const json error = json::parse(server.post(path, body).body)["error"];
    EXPECT_EQ(error["code"], "context_length_exceeded");
    EXPECT_EQ(error["type"], "invalid_request_error");
    EXPECT_EQ(error["param"], field);
    EXPECT_NE(error["message"].get<std::string>().find(fmt::format("your {} resulted", field)), std::string::npos);
  }
}

TEST(ErrorsTest, ACompressedBodyIsNamed) {
  TestServer server;
  const auto ask = [&](const char* encoding) {
    return server.connect().request("POST", "/tokenize", R"({"prompt": "x"})", {{"content-encoding", encoding}});
  };
  EXPECT_EQ(ask("identity").status, 200);
  EXPECT_EQ(ask("gzip").status, 415);
  EXPECT_EQ(http::reason_phrase(415), "Unsupported Media Type");
  EXPECT_NE(ask("gzip").body.find("'gzip': send it plain"), std::string::npos);
}

TEST(ErrorsTest, WhatIsNoJsonIsRefused) {
  TestServer server;
  for (const std::string& body : {std::string("{"), std::string(), std::string(3000, '['),
                                  std::string("{\"prompt\": \"\xFF\"}"), std::string("{\"a\":1,\"a\":2}")}) {
    const bench::HttpResult result = server.connect().request("POST", "/v1/completions", body);
    EXPECT_EQ(result.status, 400) << body.substr(0, 20);
    EXPECT_TRUE(json::parse(result.body)["error"]["message"].is_string());
  }
}

TEST(MessagesApiTest, SpeaksAnthropic) {
  TestServer server;
  const json request = {{"model", "test-model"},
                        {"max_tokens", 50},
                        {"system", "Be kind."},
                        {"messages", {{{"role", "user"}, {"content", {{{"type", "text"}, {"text", "Hi"}}}}}}}};
  const json reply = server.ask("/v1/messages", request);
  EXPECT_EQ(reply["type"], "message");
  EXPECT_EQ(reply["content"][0]["text"], "Hello, world.");
  EXPECT_EQ(reply["stop_reason"], "end_turn");
  EXPECT_EQ(reply["usage"]["input_tokens"].get<int>() + reply["usage"]["cache_read_input_tokens"].get<int>(), 37);
  EXPECT_EQ(bytes_as_text(server.engine.last_request().prompt), "<system>Be kind.\n<user>Hi\n<assistant>");
  EXPECT_EQ(server.ask("/v1/messages/count_tokens", request)["input_tokens"], 37);

  json stopped = request;
  stopped["stop_sequences"] = {"wor"};
  EXPECT_EQ(server.ask("/v1/messages", stopped)["stop_reason"], "stop_sequence");
  EXPECT_EQ(server.ask("/v1/messages", stopped)["stop_sequence"], "wor");
  json cut = request;
  cut["max_tokens"] = 3;
  EXPECT_EQ(server.ask("/v1/messages", cut)["stop_reason"], "max_tokens");
}

TEST(MessagesApiTest, StreamsItsEvents) {
  TestServer server;
  const std::vector<json> events = server.stream(
      "/v1/messages", {{"max_tokens", 50}, {"stream", true}, {"messages", {{{"role", "user"}, {"content", "Hi"}}}}});
  std::vector<std::string> types;
  std::string text;
  for (const json& event : events) {
    if (types.empty() || event["type"] != types.back()) types.push_back(event["type"]);
    if (event["type"] == "content_block_delta") text += event["delta"]["text"].get<std::string>();
  }
  EXPECT_EQ(text, "Hello, world.");
  EXPECT_EQ(types, (std::vector<std::string>{"message_start", "ping", "content_block_start", "content_block_delta",
                                             "content_block_stop", "message_delta", "message_stop"}));
  EXPECT_EQ(events[events.size() - 2]["delta"]["stop_reason"], "end_turn");
}

TEST(ResponsesApiTest, AnswersWholeAndInEvents) {
  TestServer server;
  json request = {{"instructions", "Be kind."}, {"input", "Hi"}, {"max_output_tokens", 50}};
  const json reply = server.ask("/v1/responses", request);
  EXPECT_EQ(reply["object"], "response");
  EXPECT_EQ(reply["status"], "completed");
  EXPECT_EQ(reply["output"][0]["content"][0]["text"], "Hello, world.");
  EXPECT_EQ(bytes_as_text(server.engine.last_request().prompt), "<system>Be kind.\n<user>Hi\n<assistant>");
  request["stream"] = true;
  std::string text;
  std::vector<std::string> types;
  int64_t number = 0;
  for (const json& event : server.stream("/v1/responses", request)) {
    EXPECT_EQ(event["sequence_number"], number++);
    if (types.empty() || event["type"] != types.back()) types.push_back(event["type"]);
    if (event["type"] == "response.output_text.delta") text += event["delta"].get<std::string>();
    if (event["type"] == "response.completed")
      EXPECT_EQ(event["response"]["output"][0]["content"][0]["text"], "Hello, world.");
  }
  EXPECT_EQ(text, "Hello, world.");
  EXPECT_EQ(types, (std::vector<std::string>{"response.created", "response.in_progress", "response.output_item.added",
                                             "response.content_part.added", "response.output_text.delta",
                                             "response.output_text.done", "response.content_part.done",
                                             "response.output_item.done", "response.completed"}));
  request["stream"] = false;
  request["max_output_tokens"] = 2;
  const json cut = server.ask("/v1/responses", request);
  EXPECT_EQ(cut["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(cut["output"][0]["status"], "incomplete");
  request["stream"] = true;
  const json last = server.stream("/v1/responses", request).back();
  EXPECT_EQ(last["type"], "response.incomplete");
  EXPECT_EQ(last["response"]["output"][0]["status"], "incomplete");
}

TEST(ResponsesApiTest, RepeatsWhatWasAsked) {
  TestServer server;
  const json asked = {{"instructions", "Be kind."},
                      {"max_output_tokens", 50},
                      {"metadata", {{"case", "7"}}},
                      {"parallel_tool_calls", false},
                      {"text", {{"format", {{"type", "text"}}}, {"verbosity", "low"}}},
                      {"tool_choice", "none"},
                      {"tools", {{{"type", "function"}, {"name", "f"}, {"parameters", {{"type", "object"}}}}}},
                      {"truncation", "auto"}};
  json request = asked;
  request["input"] = "Hi";
  const json reply = server.ask("/v1/responses", request);
  for (const auto& [field, value] : asked.items()) EXPECT_EQ(reply[field], value) << field;
  const json plain = server.ask("/v1/responses", {{"input", "Hi"}, {"text", {{"verbosity", "low"}}}});
  EXPECT_EQ(plain["tool_choice"], "auto");
  EXPECT_EQ(plain["metadata"], json::object());
  EXPECT_EQ(plain["text"]["format"]["type"], "text");
}

}  // namespace
}  // namespace weft
