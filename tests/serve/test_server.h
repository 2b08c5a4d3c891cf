// TestServer: a fake engine behind the real API and the real server, on a free port of this machine.
#pragma once
#include <nlohmann/json.hpp>

#include "serve/fake_engine.h"
#include "weft/serve/api/api.h"
#include "weft/serve/bench/http_client.h"
#include "weft/serve/http/server.h"
#include "weft/text/byte_tokenizer.h"

namespace weft {

// Roles in angle brackets, and tools as their JSON. What an assistant thought, and whether the next answer begins so,
// stands between the marks of Qwen's models.
inline constexpr std::string_view kTestTemplate =
    "{% if tools %}tools: {{ tools | tojson }}{{ '\\n' }}{% endif %}"
    "{% for m in messages %}<{{ m.role }}>"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}"
    "{% if m.tool_calls %}{% for c in m.tool_calls %}<tool_call>{\"name\": \"{{ c.function.name }}\", \"arguments\": "
    "{{ c.function.arguments | tojson }}}</tool_call>{% endfor %}{% endif %}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% if opens %}<think>\n{% endif %}"
    "{% if reasoning_effort %}[{{ reasoning_effort }}]{% endif %}"
    "{% if enable_thinking is defined and not enable_thinking and not opens %}<think>\n\n</think>\n\n{% endif %}"
    "{% endif %}";

struct TestSetup {
  FakeOptions engine{.answer = saying("Hello, world.")};
  http::ServerOptions server{.port = 0};
  api::ApiOptions api;
  std::string adapter_folder;
  api::ConstraintFactory* constraints = nullptr;
  api::ToolFormat tool_format = api::ToolFormat::hermes;
  api::ReasoningFormat reasoning_format = api::ReasoningFormat::none;
  std::optional<api::FillInMiddle> fill_in_middle;
  SamplingDefaults sampling;
  EmbeddingRule embedding;
  const char* reranker = nullptr;  // a template; or
  std::optional<PairSurroundings> around_pair;
  ScoreRule scores;
};

class TestServer {
 public:
  explicit TestServer(TestSetup setup = {})
      : engine(std::move(setup.engine)), api(std::move(setup.api)), server((setup.server.port = 0, setup.server)) {
    server.listen(api);
    api.serve({{.name = "test-model",
                .engine = &engine,
                .tokenizer = &tokenizer,
                .chat_template = std::make_shared<ChatTemplate>(kTestTemplate, "the test's template"),
                .tool_format = setup.tool_format,
                .reasoning_format = setup.reasoning_format,
                .end_tokens = {ByteTokenizer::kEndOfDocument},
                .sampling = setup.sampling,
                .embedding = setup.embedding,
                .relevance = setup.reranker || setup.around_pair ? relevance_of(setup) : nullptr,
                .scores = setup.scores,
                .constraints = setup.constraints,
                .adapter_folder = setup.adapter_folder,
                .fill_in_middle = setup.fill_in_middle}});
  }

  std::shared_ptr<const api::Relevance> relevance_of(const TestSetup& setup) const {
    if (setup.around_pair) return std::make_shared<api::Relevance>(*setup.around_pair, setup.scores.activation);
    ChatTemplate chat(setup.reranker, "the test's");
    return setup.scores.labels.empty() ? std::make_shared<api::Relevance>(std::move(chat), tokenizer, "y", "n")
                                       : std::make_shared<api::Relevance>(std::move(chat), setup.scores.activation);
  }
  bench::HttpClient connect(std::chrono::milliseconds timeout = std::chrono::seconds(20)) const {
    return bench::HttpClient("127.0.0.1", server.port(), timeout);
  }
  bench::HttpResult post(std::string_view path, const nlohmann::json& body) const {
    return connect().request("POST", path, body.dump());
  }
  nlohmann::json ask(std::string_view path, const nlohmann::json& body) const {
    const bench::HttpResult result = post(path, body);
    EXPECT_EQ(result.status, 200) << result.body;
    return nlohmann::json::parse(result.body);
  }
  // The data of all events; "[DONE]" as a string.
  std::vector<nlohmann::json> stream(std::string_view path, const nlohmann::json& body) const {
    bench::HttpClient client = connect();
    client.send("POST", path, body.dump());
    const bench::HttpResult head = client.read_head();
    EXPECT_EQ(head.status, 200);
    EXPECT_EQ(head.header("content-type"), "text/event-stream");
    std::vector<nlohmann::json> events;
    while (const auto data = client.next_event())
      events.push_back(*data == "[DONE]" ? nlohmann::json(*data) : nlohmann::json::parse(*data));
    return events;
  }

  ByteTokenizer tokenizer;
  FakeEngine engine;
  api::Api api;
  http::Server server;
};

inline nlohmann::json chat_request(const std::string& text) {
  return {{"model", "test-model"}, {"messages", {{{"role", "user"}, {"content", text}}}}};
}
inline std::string bytes_as_text(const std::vector<int32_t>& tokens) {
  std::string text;
  for (const int32_t t : tokens) text += char(t);
  return text;
}

// Whether `is_true` becomes so in time.
template <class F>
bool becomes_true(F is_true, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!is_true()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace weft
