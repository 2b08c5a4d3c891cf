// Output of a given form over HTTP: an untrained model behind the real API answers what each form demands, and calls
// the tools that a request demands.
#include "serve/constrained.h"
#include "serve/schema_check.h"
#include "serve/test_server.h"
#include "serve/with_engine.h"
#include "support/rank.h"
#include "weft/comm/single/single.h"

namespace weft {
namespace {

using nlohmann::json;

ModelConfig byte_config() {
  ModelConfig m = family_defaults("llama");
  m.layers = 1, m.hidden = 16, m.heads = 2, m.kv_heads = 1, m.ffn = 24, m.vocab = ByteTokenizer().vocab_size();
  m.context = 8192, m.init_std = 0.2f;
  complete(m);
  return m;
}

class FormsTest : public testing::Test {
 protected:
  FormsTest() { model_.part().initialize(rank_.context, 11); }

  // Serves while `clients` ask.
  void with_server(api::ToolFormat format, const std::function<void()>& clients) {
    with_engine(model_, {.kv_blocks = 512, .tokens_per_step = 64}, [&](ContinuousEngine& engine) {
      constrain::ConstraintFactory constraints(tokenizer_, engine.limits().vocab, {ByteTokenizer::kEndOfDocument});
      api::Api api({});
      http::Server server({.port = 0});
      server.listen(api);
      api.serve({{.name = "bytes",
                  .engine = &engine,
                  .tokenizer = &tokenizer_,
                  .chat_template = std::make_shared<ChatTemplate>(kTestTemplate, "the test's template"),
                  .tool_format = format,
                  .end_tokens = {ByteTokenizer::kEndOfDocument},
                  .constraints = &constraints}});
      port_ = server.port();
      clients();
    });
  }
  bench::HttpResult post(const char* route, const json& body) const {
    return bench::HttpClient("127.0.0.1", port_).request("POST", route, body.dump());
  }
  json ask(const char* route, json body) const {
    body["max_tokens"] = 6000;
    const bench::HttpResult result = post(route, body);
    EXPECT_EQ(result.status, 200) << result.body;
    return json::parse(result.body)["choices"][0];
  }

  TestRank rank_{cpu_kernels(), 2};
  const std::unique_ptr<Communicator> alone_ = make_single_communicator();
  const Mesh mesh_{*alone_, {}};
  ForwardModel model_{rank_.context, mesh_, byte_config(), DType::f32};
  const ByteTokenizer tokenizer_;
  int port_ = 0;
};

const json kSchema = {
    {"type", "object"},
    {"properties",
     {{"colour", {{"enum", {"red", "green"}}}}, {"count", {{"type", "integer"}, {"minimum", 0}, {"maximum", 99}}}}},
    {"required", {"colour", "count"}},
    {"additionalProperties", false}};
const json kTools = {
    {{"type", "function"}, {"function", {{"name", "paint"}, {"parameters", kSchema}}}},
    {{"type", "function"},
     {"function",
      {{"name", "a \"quoted\" tool"},
       {"parameters",
        {{"type", "object"}, {"properties", {{"on", {{"type", "boolean"}}}}}, {"required", {"on"}}}}}}}};

struct FormCase {
  const char* name;
  json fields;
  std::function<bool(const std::string&)> is_valid;
};
bool is_painted(const std::string& text) {
  const auto answer = constrain::Json::parse(text, nullptr, false);
  return !answer.is_discarded() && constrain::is_valid(constrain::Json::parse(kSchema.dump()), answer);
}
bool accepts_words(const std::string& text) {
  return constrain::accepts({.kind = constrain::FormKind::regex, .text = "[a-c]{2,5}-[0-9]{3}"}, text);
}
bool is_choice(const std::string& text) { return text == "yes" || text == "no, thanks"; }
bool is_sum(const std::string& text) {
  return constrain::accepts({.kind = constrain::FormKind::grammar, .text = "root ::= [1-3] (\"+\" [1-3]){1,4}"},
                            text);
}

TEST_F(FormsTest, EveryWayToAskForAFormIsKept) {
  const char* const sum = "root ::= [1-3] (\"+\" [1-3]){1,4}";
  const std::vector<FormCase> cases = {
      {"json_schema",
       {{"response_format", {{"type", "json_schema"}, {"json_schema", {{"name", "p"}, {"schema", kSchema}}}}}},
       is_painted},
      {"guided_json", {{"guided_json", kSchema}}, is_painted},
      {"regex", {{"guided_regex", "[a-c]{2,5}-[0-9]{3}"}}, accepts_words},
      {"structured regex", {{"structured_outputs", {{"regex", "[a-c]{2,5}-[0-9]{3}"}}}}, accepts_words},
      {"choice", {{"guided_choice", {"yes", "no, thanks"}}}, is_choice},
      {"structured choice", {{"structured_outputs", {{"choice", {"yes", "no, thanks"}}}}}, is_choice},
      {"grammar", {{"guided_grammar", sum}}, is_sum},
      {"structured grammar", {{"structured_outputs", {{"grammar", sum}}}}, is_sum}};
  with_server(api::ToolFormat::hermes, [&] {
    for (const FormCase& c : cases) {
      for (const int seed : {1, 2}) {
        json body = c.fields;
        body["seed"] = seed, body["temperature"] = seed == 1 ? 0 : 1;
        body["prompt"] = "x";
        const json text = ask("/v1/completions", body);
        EXPECT_TRUE(c.is_valid(text["text"])) << c.name << ": " << text;
        EXPECT_EQ(text["finish_reason"], "stop") << c.name;
        body.erase("prompt");
        body["messages"] = {{{"role", "user"}, {"content", "x"}}};
        const json message = ask("/v1/chat/completions", body);
        EXPECT_TRUE(c.is_valid(message["message"]["content"])) << c.name << ": " << message;
      }
    }
    const bench::HttpResult wrong = post("/v1/completions", {{"prompt", "x"}, {"guided_regex", "(?=a)"}});
    EXPECT_EQ(wrong.status, 400) << wrong.body;
  });
}

TEST_F(FormsTest, LongOnesAreRefusedByTheirName) {
  const std::string text(70'000, 'a');
  const json schema = {{"type", "string"}, {"description", text}};
  with_server(api::ToolFormat::hermes, [&] {
    for (const auto& [fields, name] :
         {std::pair<json, const char*>{{{"guided_regex", text}}, "guided_regex has 70000 bytes and 65536"},
          {{{"structured_outputs", {{"grammar", text}}}}, "structured_outputs.grammar has 70000 bytes"},
          {{{"guided_json", schema}}, "guided_json has 700"},
          {{{"response_format", {{"type", "json_schema"}, {"json_schema", {{"name", "p"}, {"schema", schema}}}}}},
           "response_format.json_schema.schema has 700"}}) {
      json body = fields;
      body["prompt"] = "x";
      const bench::HttpResult result = post("/v1/completions", body);
      EXPECT_EQ(result.status, 400) << name;
      EXPECT_NE(result.body.find(name), std::string::npos) << result.body;
    }
  });
}

TEST_F(FormsTest, OfAnthropicAreKept) {
  with_server(api::ToolFormat::hermes, [&] {
    const json format = {{"type", "json_schema"}, {"schema", kSchema}};
    json body = {{"messages", {{{"role", "user"}, {"content", "x"}}}}, {"max_tokens", 6000}};
    for (const json& fields : {json{{"output_config", {{"format", format}}}}, json{{"output_format", format}}}) {
      json asked = body;
      asked.update(fields);
      const bench::HttpResult result = post("/v1/messages", asked);
      ASSERT_EQ(result.status, 200) << result.body;
      const json message = json::parse(result.body);
      EXPECT_TRUE(is_painted(message["content"][0]["text"])) << message;
    }
    for (const json& wrong :
         {json{{"output_config", {{"format", {{"type", "bogus"}, {"schema", kSchema}}}}}},
          json{{"output_format", {{"schema", kSchema}}}}, json{{"output_format", {{"type", "json_schema"}}}}}) {
      json asked = body;
      asked.update(wrong);
      EXPECT_EQ(post("/v1/messages", asked).status, 400) << wrong;
    }
  });
}

// In the midst of an answer, when others are under way: an error of that request alone, which nobody logs.
TEST_F(FormsTest, OnesThatCannotGoOnAreTheClientsFault) {
  const json chat = {{{"role", "user"}, {"content", "x"}}},
             quoted = {{"type", "json_schema"}, {"schema", {{"const", "ab"}}}};
  const std::vector<std::pair<const char*, json>> cases = {
      {"/v1/completions", {{"prompt", "x"}, {"guided_regex", "ab"}, {"logit_bias", {{"98", -100}}}}},
      {"/v1/completions", {{"prompt", "x"}, {"guided_regex", "a"}, {"logit_bias", {{"256", -100}}}}},
      {"/v1/chat/completions", {{"messages", chat}, {"guided_choice", {"ab", "ac"}}, {"bad_words", {"b", "c"}}}},
      {"/v1/responses", {{"input", "x"}, {"guided_regex", "ab"}, {"bad_words", {"b"}}}},
      {"/v1/messages",
       {{"messages", chat}, {"output_config", {{"format", quoted}}}, {"max_tokens", 9}, {"bad_words", {"b"}}}}};
  testing::internal::CaptureStderr();
  with_server(api::ToolFormat::hermes, [&] {
    auto other = std::async(std::launch::async, [&] {
      return ask("/v1/completions", {{"prompt", "y"}, {"guided_regex", "[a-c]{400}"}})["finish_reason"];
    });
    for (auto [route, body] : cases) {
      const char* const forbids = body.contains("logit_bias") ? "logit_bias forbids" : "bad_words forbids";
      const bench::HttpResult result = post(route, body);
      EXPECT_EQ(result.status, 400) << route;
      body["stream"] = true;
      const bench::HttpResult stream = post(route, body);
      EXPECT_EQ(stream.status, 200) << route;
      for (const std::string& text : {result.body, stream.body}) {
        EXPECT_NE(text.find(forbids), std::string::npos) << text;
        EXPECT_NE(text.find("\"invalid_request_error\""), std::string::npos) << text;
      }
    }
    EXPECT_EQ(other.get(), "stop");
  });
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

class DemandedCallsTest : public FormsTest, public testing::WithParamInterface<api::ToolFormat> {};

TEST_P(DemandedCallsTest, HaveTheSchemasOfTheirTools) {
  json tools = kTools;
  if (api::tool_family(GetParam()).style == api::CallStyle::python) tools[1]["function"]["name"] = "switch_on";
  with_server(GetParam(), [&] {
    const auto calls_of = [&](const json& choice, bool is_parallel, int seed) {
      const json message = ask("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", "x"}}}},
                                                        {"tools", tools},
                                                        {"tool_choice", choice},
                                                        {"parallel_tool_calls", is_parallel},
                                                        {"seed", seed}})["message"];
      EXPECT_TRUE(message["content"].is_null()) << message;
      return message.value("tool_calls", json::array());
    };
    size_t most = 0;
    for (int seed = 0; seed < 6; ++seed) {
      for (const json& choice : {json("required"), json({{"type", "function"}, {"function", {{"name", "paint"}}}})}) {
        for (const bool is_parallel : {true, false}) {
          if (seed > 0 && !(choice.is_string() && is_parallel)) continue;
          const json calls = calls_of(choice, is_parallel, seed);
          ASSERT_GE(calls.size(), 1u);
          if (choice.is_string() && is_parallel)
            most = std::max(most, calls.size());
          else
            EXPECT_EQ(calls.size(), 1u);
          for (const json& call : calls) {
            const std::string name = call["function"]["name"], arguments = call["function"]["arguments"];
            if (name == "paint")
              EXPECT_TRUE(is_painted(arguments)) << arguments;
            else
              EXPECT_TRUE(json::parse(arguments)["on"].is_boolean()) << call;
            if (choice.is_object()) EXPECT_EQ(name, "paint");
          }
        }
      }
    }
    if (api::tool_family(GetParam()).is_parallel) EXPECT_GT(most, 1u) << "several calls in one answer";
  });
}

TEST_P(DemandedCallsTest, NeedATool) {
  with_server(GetParam(), [&] {
    const json messages = {{{"role", "user"}, {"content", "x"}}};
    const json unknown = {{"type", "function"}, {"function", {{"name", "nobody"}}}};
    json odd = kTools;
    odd[0]["function"]["parameters"]["unevaluatedProperties"] = false;
    for (const json& body : {json({{"messages", messages}, {"tool_choice", "required"}}),
                             json({{"messages", messages}, {"tool_choice", unknown}, {"tools", kTools}}),
                             json({{"messages", messages}, {"tool_choice", "required"}, {"tools", odd}}),
                             json({{"messages", messages}, {"tool_choice", "required"}, {"tools", {{{"x", 1}}}}})})
      EXPECT_EQ(post("/v1/chat/completions", body).status, 400) << body;
  });
}

// Formats differ in their texts, not in who reads and writes what: some show it to a sanitizer.
std::vector<api::ToolFormat> formats() {
#ifdef WEFT_SANITIZED
  constexpr size_t kStep = 5;
#else
  constexpr size_t kStep = 1;
#endif
  const std::span<const api::ToolFamily> families = api::tool_families();
  std::vector<api::ToolFormat> some;
  for (size_t i = 0; i < families.size(); i += kStep) some.push_back(families[i].format);
  return some;
}
INSTANTIATE_TEST_SUITE_P(Formats, DemandedCallsTest, testing::ValuesIn(formats()),
                         [](const auto& test) { return std::string(api::tool_family(test.param).name); });

}  // namespace
}  // namespace weft
