// The measuring client: what it sends, and what it makes of a server's times.
#include "weft/serve/bench/load.h"

#include "serve/closing_server.h"
#include "serve/test_server.h"
#include "weft/base/authority.h"

namespace weft::bench {
namespace {

TEST(LoadTest, ArrivalsHaveTheirRateAndAreRepeated) {
  const LoadOptions options{.requests = 20000, .rate = 50, .seed = 3};
  const std::vector<double> times = arrival_times(options);
  EXPECT_NEAR(times.back(), 20000 / 50.0, 400 * 0.03);
  EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
  EXPECT_EQ(times, arrival_times(options));
  // Gaps of a Poisson process: about 1/e of them are longer than the mean.
  int64_t longer = 0;
  for (size_t i = 1; i < times.size(); ++i) longer += times[i] - times[i - 1] > 1 / 50.0;
  EXPECT_NEAR(double(longer) / double(times.size()), std::exp(-1.0), 0.02);
  EXPECT_EQ(arrival_times({.requests = 5}), std::vector<double>(5, 0));
}

TEST(LoadTest, PromptsDifferAndAreRepeated) {
  const LoadOptions options{.input_tokens = 10, .vocab = 100};
  EXPECT_EQ(request_body(options, "m", 1), request_body(options, "m", 1));
  EXPECT_NE(request_body(options, "m", 1), request_body(options, "m", 2));
  EXPECT_EQ(nlohmann::json::parse(request_body(options, "m", 1))["prompt"].size(), 10u);
}

TEST(LoadTest, AConnectionThatWasClosedBetweenRequestsIsMadeAgain) {
  ClosingServer server(
      "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
      "E\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
  const LoadResult result = run_load(
      {.url = {"127.0.0.1", "", server.port()}, .model = "m", .requests = 3, .concurrency = 1, .input_tokens = 4});
  EXPECT_EQ(result.complete, 3) << (result.failures.empty() ? "" : result.failures.begin()->first);
  EXPECT_EQ(server.connections, 3);
}

TEST(LoadTest, PercentilesAreNearestRanks) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  const Percentiles p = percentiles_of(values);
  EXPECT_EQ(p.p50, 50);
  EXPECT_EQ(p.p90, 90);
  EXPECT_EQ(p.p99, 99);
  EXPECT_EQ(p.most, 100);
  EXPECT_EQ(p.mean, 50.5);
  EXPECT_EQ(percentiles_of({7}).p99, 7);
  EXPECT_EQ(percentiles_of({}).p99, 0);
}

TEST(LoadTest, GoodputCountsWhatKeepsEveryLimit) {
  const LoadOptions options{.good_first_token_s = 1, .good_token_s = 0.1};
  const Sample good{.first_token_s = 0.5, .total_s = 1.4, .completion_tokens = 10, .is_complete = true};
  Sample late = good, slow = good, failed = good;
  late.first_token_s = 1.1;
  slow.total_s = 5;
  failed.is_complete = false, failed.error = "status 429";
  const LoadResult result = summarize(options, {good, late, slow, failed}, 2);
  EXPECT_EQ(result.complete, 3);
  EXPECT_EQ(result.good, 1);
  EXPECT_EQ(result.failed, 1);
  EXPECT_EQ(result.failures.at("status 429"), 1);
}

TEST(LoadTest, MeasuresAServer) {
  TestServer server({.engine = {.answer = saying("tick "), .step = std::chrono::milliseconds(2)}});
  for (const bool is_chat : {false, true}) {
    const LoadResult result = run_load({.url = {"127.0.0.1", "/v1", server.server.port()},
                                        .is_chat = is_chat,
                                        .requests = 12,
                                        .concurrency = 4,
                                        .rate = is_chat ? 200.0 : 0.0,
                                        .input_tokens = 8,
                                        .output_tokens = 10});
    EXPECT_EQ(result.model, "test-model");
    EXPECT_EQ(result.complete, 12);
    EXPECT_EQ(result.completion_tokens, 120);
    EXPECT_GT(result.first_token_s.p50, 0);
    EXPECT_GT(result.between_tokens_s.p99, 0.001);  // a busy machine brings several at once
    EXPECT_GE(result.total_s.p50, result.first_token_s.p50 + 0.01);
  }
}

TEST(UrlTest, HasBracketsAroundIpv6) {
  EXPECT_EQ(authority("example", 80), "example:80");
  EXPECT_EQ(authority("127.0.0.1", 8000), "127.0.0.1:8000");
  EXPECT_EQ(authority("fd00::2", 8000), "[fd00::2]:8000");
}

TEST(UrlTest, IsTakenApart) {
  const Url url = parse_url("http://example:8001/v1/");
  EXPECT_EQ(url.host, "example");
  EXPECT_EQ(url.port, 8001);
  EXPECT_EQ(url.path, "/v1");
  EXPECT_EQ(parse_url("http://example").port, 80);
  EXPECT_EQ(parse_url("http://[::1]:8001/v1").host, "::1");
  EXPECT_EQ(parse_url("http://[::1]:8001/v1").port, 8001);
  EXPECT_EQ(parse_url("http://[fd00::2]").host, "fd00::2");
  EXPECT_THROW(parse_url("https://example"), UsageError);
  EXPECT_THROW(parse_url("http://example:x"), UsageError);
}

}  // namespace
}  // namespace weft::bench
