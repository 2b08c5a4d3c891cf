// Routes that generate no text, over real HTTP: vectors, tokens, models, what the server says of itself.
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
