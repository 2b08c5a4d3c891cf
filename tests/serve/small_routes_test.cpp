// Routes that generate no text, over real HTTP: vectors, tokens, models, what the server says of itself.
#include <cmath>

#include "serve/test_server.h"

namespace weft {
namespace {

using nlohmann::json;

const json kHi = {{{"role", "user"}, {"content", "Hi"}}};

TEST(EmbeddingsApiTest, AreCutToTheDimensionsAskedFor) {
  TestServer server;
  json request = {{"input", {"abc", "de"}}};
  const json whole = server.ask("/v1/embeddings", request)["data"];
  const size_t size = whole[0]["embedding"].size();
  request["dimensions"] = size;
  EXPECT_EQ(server.ask("/v1/embeddings", request)["data"], whole);
  request["dimensions"] = 1;
  const json first = server.ask("/v1/embeddings", request)["data"];
  EXPECT_EQ(first[0]["embedding"], json::array({1.0}));
  EXPECT_EQ(first[1]["embedding"], json::array({1.0}));
  request["dimensions"] = size + 1;
  const bench::HttpResult refused = server.post("/v1/embeddings", request);
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find(fmt::format("vectors have {}", size)), std::string::npos) << refused.body;
}

TEST(EmbeddingsApiTest, FloatsOrBase64OrNotOffered) {
  TestServer server;
  const json reply = server.ask("/v1/embeddings", {{"input", {"abc", "de"}}});
  EXPECT_EQ(reply["data"][0]["embedding"], json::array({3.0, 0.5}));
  EXPECT_EQ(reply["data"][1]["embedding"], json::array({2.0, 0.5}));
  EXPECT_EQ(reply["usage"]["prompt_tokens"], 5);
  EXPECT_EQ(server.ask("/v1/embeddings", {{"input", "abc"}, {"encoding_format", "base64"}})["data"][0]["embedding"],
            "AABAQAAAAD8=");
  TestServer without({.engine = {.answer = saying("x"), .embeds = false}});
  EXPECT_EQ(without.post("/v1/embeddings", {{"input", "abc"}}).status, 501);
}

// The fake engine's vector of a text is [its tokens, 0.5].
double cosine_of(double a, double b) { return (a * b + 0.25) / std::sqrt((a * a + 0.25) * (b * b + 0.25)); }

TEST(EmbeddingsApiTest, PromptsStandBeforeTexts) {
  TestServer server({.embedding = {.prompts = {{"query", "Q: "}, {"plain", ""}}, .default_prompt = "query"}});
  const auto length = [&](json request) {
    request["input"] = "abc";
    return server.ask("/v1/embeddings", request)["data"][0]["embedding"][0];
  };
  EXPECT_EQ(length(json::object()), 6.0);
  EXPECT_EQ(length({{"prompt_name", "plain"}}), 3.0);
  const bench::HttpResult refused = server.post("/v1/embeddings", {{"input", "abc"}, {"prompt_name", "none"}});
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("prompts are plain, query"), std::string::npos) << refused.body;
}

TEST(EmbeddingsApiTest, AreRefusedWhereTheModelMakesThemOtherwise) {
  TestServer server({.embedding = {.unknown = "a module Dense"}});
  for (const json& request : {json{{"input", "abc"}}, json{{"query", "a"}, {"documents", {"b"}}}}) {
    const bench::HttpResult refused =
        server.post(request.contains("input") ? "/v1/embeddings" : "/v1/rerank", request);
    EXPECT_EQ(refused.status, 400);
    EXPECT_NE(refused.body.find("a module Dense"), std::string::npos) << refused.body;
  }
}

TEST(ScoreApiTest, ScoresPairsByTheirAngle) {
  TestServer server({.embedding = {.prompts = {{"query", "12"}, {"document", "1"}}}});
  const auto scores = [&](const json& first, const json& second) {
    std::vector<double> all;
    const json reply = server.ask("/v1/score", {{"text_1", first}, {"text_2", second}});
    for (const json& one : reply["data"]) {
      EXPECT_EQ(one["index"], all.size());
      all.push_back(one["score"]);
    }
    return all;
  };
  const auto expect = [&](const std::vector<double>& got, const std::vector<double>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6);
  };
  expect(scores("a", "bc"), {cosine_of(3, 3)});
  expect(scores("a", {"bc", "bcdef"}), {cosine_of(3, 3), cosine_of(3, 6)});
  expect(scores({"a", "abcd"}, {"bc", "bcdef"}), {cosine_of(3, 3), cosine_of(6, 6)});
  EXPECT_EQ(server.post("/score", {{"text_1", {"a", "b"}}, {"text_2", {"a", "b", "c"}}}).status, 400);
  EXPECT_EQ(server.post("/score", {{"text_1", "a"}, {"text_2", json::array()}}).status, 400);
}

TEST(RerankApiTest, OrdersDocumentsByTheirAngleToTheQuery) {
  TestServer server;
  const json documents = {"a", {{"text", "abcdefgh"}}, "ab"};
  json request = {{"query", "abcdefg"}, {"documents", documents}};
  const json reply = server.ask("/v1/rerank", request);
  const json& results = reply["results"];
  ASSERT_EQ(results.size(), 3u);
  const std::vector<std::pair<int, double>> want{{1, 8}, {2, 2}, {0, 1}};
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(results[i]["index"], want[i].first);
    EXPECT_NEAR(double(results[i]["relevance_score"]), cosine_of(7, want[i].second), 1e-6);
  }
  EXPECT_EQ(results[0]["document"]["text"], "abcdefgh");
  EXPECT_EQ(reply["usage"]["total_tokens"], 18);
  request["top_n"] = 1, request["return_documents"] = false;
  const json first = server.ask("/rerank", request)["results"];
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0]["index"], 1);
  EXPECT_FALSE(first[0].contains("document"));
  for (const json& wrong : {json{{"query", "a"}}, json{{"documents", {"a"}}}, json{{"query", "a"}, {"documents", 5}},
                            json{{"query", "a"}, {"documents", {{{"title", "b"}}}}}})
    EXPECT_EQ(server.post("/v2/rerank", wrong).status, 400) << wrong;
}

// A template may read messages, as vLLM's do, or variables. The fake engine's logit of "y" is the prompt's length.
TEST(RerankApiTest, AModelJudgesPairs) {
  for (const char* text :
       {"{{ instruction }}{{ query }}: {{ document }}",
        "{% for m in messages %}{{ m.content }}{% if m.role == 'query' %}: {% endif %}{% endfor %}"}) {
    TestServer server({.reranker = text});
    const auto judged = [](double length) { return 1 / (1 + std::exp(-length)); };
    json request = {{"query", "ab"}, {"documents", {"c", "cdef"}}};
    const json results = server.ask("/v1/rerank", request)["results"];
    ASSERT_EQ(results.size(), 2u);
    EXPECT_EQ(results[0]["index"], 1);
    EXPECT_NEAR(double(results[0]["relevance_score"]), judged(8), 1e-6);
    EXPECT_NEAR(double(results[1]["relevance_score"]), judged(5), 1e-6);
    request["instruction"] = "In:";
    EXPECT_NEAR(double(server.ask("/v1/rerank", request)["results"][1]["relevance_score"]), judged(8), 1e-6);
    const json scores = server.ask("/v1/score", {{"text_1", {"a", "ab"}}, {"text_2", {"c", ""}}})["data"];
    ASSERT_EQ(scores.size(), 2u);
    EXPECT_NEAR(double(scores[0]["score"]), judged(4), 1e-6);
    EXPECT_NEAR(double(scores[1]["score"]), judged(4), 1e-6);
  }
}

// The fake engine's score of the first label is the text's length, and that of the others 0.
TEST(ClassifyApiTest, TellsLabelsAndProbabilities) {
  TestServer server({.scores = {.labels = {"long", "short"}}});
  const json reply = server.ask("/v1/classify", {{"input", {"abc", "d"}}});
  const json& data = reply["data"];
  ASSERT_EQ(data.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const double odds = std::exp(i == 0 ? 3.0 : 1.0);
    EXPECT_EQ(data[i]["index"], i);
    EXPECT_EQ(data[i]["label"], "long");
    EXPECT_EQ(data[i]["num_classes"], 2);
    EXPECT_NEAR(double(data[i]["probs"][0]), odds / (1 + odds), 1e-6);
    EXPECT_NEAR(double(data[i]["probs"][1]), 1 / (1 + odds), 1e-6);
  }
  EXPECT_EQ(reply["usage"]["prompt_tokens"], 4);
  const json raw = server.ask("/classify", {{"input", "abc"}, {"use_activation", false}})["data"];
  EXPECT_EQ(raw[0]["probs"], json({3.0, 0.0}));
  // <user>Hi and a new line: a conversation ends where it ends
  const json chat = server.ask("/classify", {{"messages", kHi}, {"use_activation", false}})["data"];
  EXPECT_EQ(chat[0]["probs"][0], 9.0);
  EXPECT_EQ(server.post("/classify", json::object()).status, 400);
  EXPECT_EQ(server.post("/classify", {{"input", json::array()}}).status, 400);
}

TEST(ClassifyApiTest, IsForModelsThatScoreTexts) {
  TestServer writes;
  const bench::HttpResult refused = writes.post("/classify", {{"input", "abc"}});
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("has no labels"), std::string::npos) << refused.body;
  // Which know no queries and documents, unless a template says how they read them.
  const json pair = {{"text_1", "ab"}, {"text_2", "c"}};
  TestServer scores({.scores = default_score_rule(1)});
  EXPECT_NE(scores.post("/v1/score", pair).body.find("--reranker FILE"), std::string::npos);
  TestServer judges({.reranker = "{{ query }}: {{ document }}", .scores = default_score_rule(1)});
  EXPECT_NEAR(double(judges.ask("/v1/score", pair)["data"][0]["score"]), 1 / (1 + std::exp(-5.0)), 1e-6);
}

// The fake engine's score is the length of what it is given.
TEST(RerankApiTest, AnEncoderReadsTwoTexts) {
  TestSetup setup{.around_pair = PairSurroundings{{1}, {2, 2}, {3}, true},
                  .scores = {.labels = {"LABEL_0"}, .activation = ScoreRule::Activation::none}};
  setup.engine.limits.is_encoder = true, setup.engine.limits.labels = 1, setup.engine.limits.context = 12;
  TestServer server(setup);
  json request = {{"query", "ab"}, {"documents", {"cdefg"}}};
  EXPECT_EQ(server.ask("/v1/rerank", request)["results"][0]["relevance_score"], 11.0);
  EXPECT_EQ(server.engine.last_request().prompt,
            (std::vector<int32_t>{1, 'a', 'b', 2, 2, 'c', 'd', 'e', 'f', 'g', 3}));
  EXPECT_EQ(server.engine.last_request().second_text, 5);
  // A text fills the context; a longer one is refused, or loses its end.
  request["documents"] = {"cdefghi"};
  EXPECT_NE(server.post("/v1/rerank", request).body.find("12 tokens"), std::string::npos);
  request["truncate_prompt_tokens"] = -1;
  EXPECT_EQ(server.ask("/v1/rerank", request)["results"][0]["relevance_score"], 12.0);
  EXPECT_EQ(server.engine.last_request().prompt,
            (std::vector<int32_t>{1, 'a', 'b', 2, 2, 'c', 'd', 'e', 'f', 'g', 'h', 3}));
  request["truncate_prompt_tokens"] = 6;
  EXPECT_NE(server.post("/v1/rerank", request).body.find("nothing of the second text"), std::string::npos);
  request["truncate_prompt_tokens"] = 7;
  EXPECT_EQ(server.ask("/v1/rerank", request)["results"][0]["relevance_score"], 7.0);
  request["instruction"] = "Be strict";
  EXPECT_EQ(server.post("/v1/rerank", request).status, 400);
  setup.around_pair.reset();
  EXPECT_NE(TestServer(setup).post("/v1/rerank", request).body.find("how it reads two texts"), std::string::npos);
}

TEST(RelevanceTest, WritesWhatQwen3RerankerReads) {
  const ByteTokenizer tokenizer;
  const api::Relevance relevance(api::Relevance::qwen3(), tokenizer, "y", "n");
  const auto written = [&](const char* query, const char* document, const char* instruction) {
    return tokenizer.decode(relevance.prompt(tokenizer, query, document, instruction).ids);
  };
  const std::string text = written("What is {{ 1 }}?", "A <doc>.", "");
  EXPECT_TRUE(text.starts_with("<|im_start|>system\nJudge whether")) << text;
  EXPECT_TRUE(
      text.ends_with("<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
                     "<Query>: What is {{ 1 }}?\n<Document>: A <doc>.<|im_end|>\n<|im_start|>assistant\n"
                     "<think>\n\n</think>\n\n"))
      << text;
  EXPECT_NE(written("q", "d", "Be strict").find("<Instruct>: Be strict\n"), std::string::npos);
  EXPECT_THROW(api::Relevance(api::Relevance::qwen3(), tokenizer, "yes", "n"), UsageError);
  EXPECT_NEAR(relevance.score(std::array{1.0f, -1.0f}), 1 / (1 + std::exp(-2.0)), 1e-12);
}

TEST(SmallRoutesTest, TokenizeWritesPromptsAsChatsDo) {
  TestServer server;
  json request = {{"messages", kHi}};
  const json plain = server.ask("/tokenize", request)["tokens"];
  request["tools"] = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  request["chat_template_kwargs"] = {{"reasoning_effort", "low"}};
  const json tokens = server.ask("/tokenize", request)["tokens"];
  EXPECT_NE(tokens, plain);
  server.ask("/v1/chat/completions", request);
  EXPECT_EQ(tokens, json(server.engine.last_request().prompt));
}

TEST(SmallRoutesTest, Answer) {
  TestServer server;
  EXPECT_EQ(server.ask("/tokenize", {{"prompt", "Hi"}})["tokens"], json::array({72, 105}));
  EXPECT_EQ(server.ask("/tokenize", {{"messages", kHi}})["count"], 20);
  EXPECT_EQ(server.ask("/detokenize", {{"tokens", {72, 105}}})["prompt"], "Hi");
  const auto get = [&](const char* path) { return server.connect().request("GET", path); };
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_EQ(get("/ready").status, 200);
  server.api.begin_drain();
  EXPECT_EQ(get("/ready").status, 503);
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_EQ(server.post("/v1/completions", {{"prompt", "x"}}).status, 503);
  const json models = json::parse(get("/v1/models").body);
  EXPECT_EQ(models["data"][0]["id"], "test-model");
  EXPECT_EQ(models["data"][0]["max_model_len"], 4096);
  EXPECT_EQ(models["data"][1]["parent"], "test-model");
  EXPECT_EQ(json::parse(get("/v1/models/test-model").body)["id"], "test-model");
  EXPECT_EQ(get("/v1/models/other").status, 404);
  EXPECT_EQ(get("/nowhere").status, 404);
  EXPECT_EQ(get("/v1/completions").status, 405);
}

TEST(SmallRoutesTest, SayWhileModelsAreReadThatTheServerLives) {
  api::Api api({});
  http::Server server({.port = 0});
  server.listen(api);
  const auto ask = [&](const char* method, const char* path, const char* body) {
    return bench::HttpClient("127.0.0.1", server.port()).request(method, path, body);
  };
  EXPECT_EQ(ask("GET", "/health", "").status, 200);
  EXPECT_EQ(ask("GET", "/", "").status, 200);
  EXPECT_EQ(ask("GET", "/nowhere", "").status, 404);
  for (const auto& [method, path] : {std::pair("GET", "/ready"),
                                     {"GET", "/v1/models"},
                                     {"GET", "/metrics"},
                                     {"POST", "/tokenize"},
                                     {"POST", "/v1/completions"},
                                     {"POST", "/v1/messages"}}) {
    const bench::HttpResult result = ask(method, path, R"({"prompt": "x"})");
    EXPECT_EQ(result.status, 503) << path;
    EXPECT_EQ(result.header("retry-after"), "1") << path;
    EXPECT_NE(result.body.find("it reads its models"), std::string::npos) << result.body;
  }
}

TEST(SmallRoutesTest, ThePageLoadsNothingFromElsewhere) {
  TestServer server;
  const bench::HttpResult page = server.connect().request("GET", "/");
  EXPECT_EQ(page.status, 200);
  EXPECT_TRUE(page.header("content-type").starts_with("text/html"));
  for (const char* outside : {"http://", "https://", "src=", "@import", "url("})
    EXPECT_EQ(page.body.find(outside), std::string::npos) << outside;
}

TEST(MetricsTest, CountWhatWasDone) {
  TestServer server;
  server.ask("/v1/completions", {{"prompt", "x"}, {"max_tokens", 5}});
  server.ask("/v1/completions", {{"prompt", "x"}, {"max_tokens", 50}});
  const std::string text = server.connect().request("GET", "/metrics").body;
  for (const char* line :
       {"vllm:request_success_total{model_name=\"test-model\",finished_reason=\"stop\"} 1\n",
        "vllm:request_success_total{model_name=\"test-model\",finished_reason=\"length\"} 1\n",
        "vllm:generation_tokens_total{model_name=\"test-model\"} 19\n",
        "vllm:time_to_first_token_seconds_count{model_name=\"test-model\"} 2\n",
        "vllm:e2e_request_latency_seconds_bucket{model_name=\"test-model\",le=\"+Inf\"} 2\n",
        "vllm:num_requests_running{model_name=\"test-model\"} 0\n", "# TYPE vllm:kv_cache_usage_perc gauge\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line;
  EXPECT_EQ(text.find("swapped"), std::string::npos);  // no request's cache ever leaves for the host
}

}  // namespace
}  // namespace weft
