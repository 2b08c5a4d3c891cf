// Mutated bodies of every route through the API without a network: each is answered, none with a failure of ours.
#pragma once
#include "serve/mutate.h"
#include "serve/test_server.h"

namespace weft {

// Runs what is posted at once, or when the answer is waited for.
class TestExchange : public http::Exchange {
 public:
  void reply(http::Reply reply) override {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(is_over_) << "answered twice";
    status_ = reply.status, body_ = std::move(reply.body), is_over_ = true;
    changed_.notify_all();
  }
  void begin_stream(http::Reply head) override { status_ = head.status; }
  void write(std::string_view bytes) override {
    const std::lock_guard lock(mutex_);
    body_ += bytes;
  }
  void end_stream() override {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }
  void post(std::function<void()> work) override {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    changed_.notify_all();
  }
  void when_gone(std::function<void()>) override {}

  // The status and the body; 0 when nothing came in time.
  std::pair<int, std::string> wait() {
    std::unique_lock lock(mutex_);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (;;) {
      if (is_over_) return {status_, body_};
      if (!changed_.wait_until(lock, deadline, [&] { return is_over_ || !work_.empty(); })) return {0, ""};
      if (work_.empty()) continue;
      const auto work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      work();
      lock.lock();
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  int status_ = 0;
  std::string body_;
  bool is_over_ = false;
};

inline const std::vector<std::pair<std::string, std::string>>& good_bodies() {
  static const std::vector<std::pair<std::string, std::string>> bodies = {
      {"/v1/completions",
       R"({"model":"test-model","prompt":"Hi","max_tokens":4,"n":2,"logprobs":2,"echo":true,"stop":["a","bc"],"logit_bias":{"65":-100},"allowed_token_ids":[65,66],"return_token_ids":true,"return_tokens_as_token_ids":true,"temperature":0.5,"seed":7})"},
      {"/v1/completions",
       R"({"prompt":[[1,2,3],[4]],"max_tokens":2,"prompt_logprobs":1,"best_of":2,"bad_words":["x"],"stream":true,"stream_options":{"include_usage":true}})"},
      {"/v1/chat/completions",
       R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"Hi"}]},{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]},{"role":"tool","tool_call_id":"a","content":"1"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"x":{"type":"integer"}}}}}],"tool_choice":"auto","max_tokens":4,"logprobs":true,"top_logprobs":3})"},
      {"/v1/chat/completions",
       R"({"messages":[{"role":"user","content":"Hi"}],"stream":true,"max_completion_tokens":3,"response_format":{"type":"text"},"chat_template_kwargs":{"a":[1,{"b":null}]}})"},
      {"/v1/responses",
       R"({"input":[{"role":"user","content":[{"type":"input_text","text":"Hi"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"1"}],"tools":[{"type":"function","name":"f","parameters":{}}],"max_output_tokens":3})"},
      {"/v1/messages",
       R"({"max_tokens":3,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"1"}]}]}],"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"any"}})"},
      {"/v1/messages/count_tokens", R"({"messages":[{"role":"user","content":"Hi"}]})"},
      {"/v1/embeddings", R"({"input":["a","b"],"encoding_format":"base64"})"},
      {"/v1/score", R"({"text_1":"a","text_2":["b","c"]})"},
      {"/v1/rerank", R"({"query":"a","documents":["b",{"text":"c"}],"top_n":1})"},
      {"/v1/classify", R"({"input":["a","b"],"use_activation":false})"},
      {"/v1/classify", R"({"messages":[{"role":"user","content":"Hi"}]})"},
      {"/tokenize", R"({"prompt":"Hi","return_token_strs":true})"},
      {"/tokenize", R"({"messages":[{"role":"user","content":"Hi"}]})"},
      {"/detokenize", R"({"tokens":[72,105]})"},
  };
  return bodies;
}

// "0x" and eight digits or more.
inline bool has_address(const std::string& text) {
  constexpr const char* kDigits = "0123456789abcdefABCDEF";
  for (size_t at = text.find("0x"); at != std::string::npos; at = text.find("0x", at + 2)) {
    if (std::min(text.find_first_not_of(kDigits, at + 2), text.size()) - at >= 10) return true;
  }
  return false;
}

inline void send_mutated_bodies(uint64_t first_seed, uint64_t count) {
  TestServer server;
  const std::vector<std::string> dictionary = {"null",
                                               "-1",
                                               "1e308",
                                               "9223372036854775808",
                                               "[",
                                               "{",
                                               "]",
                                               "}",
                                               "\"",
                                               ",",
                                               ":",
                                               "true",
                                               "\\u0000",
                                               "\\ud800",
                                               "\xFF",
                                               "{\"a\":",
                                               "[[[[[[[[",
                                               "\"n\":",
                                               "\"stream\":true,",
                                               "1.5",
                                               "\"tools\":",
                                               "\"content\":",
                                               "\"role\":",
                                               "-0",
                                               "\"stop\":[\"\"],"};
  for (uint64_t seed = first_seed; seed < first_seed + count; ++seed) {
    const auto& [path, body] = good_bodies()[seed % good_bodies().size()];
    const std::string sent = mutated(body, seed, dictionary);
    const auto exchange = std::make_shared<TestExchange>();
    http::Request request{.method = "POST", .target = {path, ""}, .headers = {{"host", "localhost"}}, .body = sent};
    ASSERT_FALSE(server.api.answer_at_once(request));
    exchange->post([&] { server.api.handle(std::move(request), exchange); });
    const auto [status, answer] = exchange->wait();
    ASSERT_TRUE(status == 200 || (status >= 400 && status < 500))
        << "seed " << seed << ": " << status << " to " << sent << "\n"
        << answer;
    if (status != 200) ASSERT_TRUE(nlohmann::json::accept(answer)) << answer;
    ASSERT_FALSE(has_address(answer)) << answer;
  }
}

// Mutated bytes of whole requests through a connection: each is answered or closed, and the next good one is served.
inline void send_mutated_requests(uint64_t first_seed, uint64_t count) {
  TestSetup setup;
  setup.server.header_timeout = setup.server.body_timeout = setup.server.idle_timeout = std::chrono::milliseconds(20);
  TestServer server(std::move(setup));
  const std::vector<std::string> dictionary = {"\r\n",
                                               "\r\n\r\n",
                                               "\n",
                                               "\r",
                                               "HTTP/1.1",
                                               "HTTP/9.9",
                                               "Content-Length: ",
                                               "Transfer-Encoding: chunked\r\n",
                                               "Host: ",
                                               ":",
                                               " ",
                                               "\t",
                                               "%2e%2e",
                                               "%00",
                                               "//",
                                               "Expect: 100-continue\r\n",
                                               "Connection: close\r\n",
                                               "99999999999999999999",
                                               std::string(1, '\0'),
                                               std::string(300, 'A'),
                                               "0\r\n\r\n"};
  for (uint64_t seed = first_seed; seed < first_seed + count; ++seed) {
    const auto& [path, body] = good_bodies()[seed % good_bodies().size()];
    const std::string text = fmt::format(
        "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n"
        "Connection: close\r\n\r\n{}",
        path, body.size(), body);
    bench::HttpClient client = server.connect();
    std::string answer;
    try {
      client.send_raw(mutated(text, seed, dictionary));
      answer = client.read_raw();
    } catch (const Error&) {  // reset: the server had enough
    }
    if (answer.empty()) continue;
    ASSERT_TRUE(answer.starts_with("HTTP/1.1 ")) << "seed " << seed << ": " << answer;
    ASSERT_FALSE(answer.starts_with("HTTP/1.1 500")) << "seed " << seed << ": " << answer;
    if (seed % 100 == 0) ASSERT_EQ(server.connect().request("GET", "/health").status, 200);
  }
  EXPECT_TRUE(becomes_true([&] { return server.server.stats().connections == 0; }, std::chrono::milliseconds(5000)));
  EXPECT_TRUE(
      becomes_true([&] { return server.engine.stats().kv_blocks_used == 0; }, std::chrono::milliseconds(5000)));
}

}  // namespace weft
