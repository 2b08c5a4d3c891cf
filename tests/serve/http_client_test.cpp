// What the measuring client makes of servers that are silent or break HTTP's rules.
#include "weft/serve/bench/http_client.h"

#include "serve/closing_server.h"
#include "support/message_of.h"

namespace weft::bench {
namespace {

TEST(HttpClientTest, ConnectingEndsWithItsTimeout) {
  // Connections that nobody accepts: as soon as the queue is full, the next one is not answered at all.
  uint32_t port = 0;
  const remote::Socket listener = remote::listen_at(remote::Address::loopback(), 0, port);
  const auto began = std::chrono::steady_clock::now();
  std::vector<HttpClient> queued;
  const std::string failure = message_of([&] {
    for (int i = 0; i < 16; ++i) queued.emplace_back("127.0.0.1", uint16_t(port), std::chrono::milliseconds(200));
  });
  EXPECT_NE(failure.find("is silent: it does not take a connection"), std::string::npos) << failure;
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(30));
}

struct BrokenCase {
  const char* name;
  std::string answer;
  const char* said;
};

class BrokenAnswersTest : public ::testing::TestWithParam<BrokenCase> {};

TEST_P(BrokenAnswersTest, AreNamed) {
  ClosingServer server(GetParam().answer);
  HttpClient client("127.0.0.1", server.port(), std::chrono::seconds(60));
  const std::string failure = message_of([&] { client.request("GET", "/"); });
  EXPECT_NE(failure.find(GetParam().said), std::string::npos) << failure;
}

std::string many_headers() {
  std::string text = "HTTP/1.1 200 OK\r\n";
  for (int i = 0; i < 300; ++i) text += fmt::format("x-{}: 1\r\n", i);
  return text + "\r\n";
}

INSTANTIATE_TEST_SUITE_P(
    Answers, BrokenAnswersTest,
    ::testing::Values(BrokenCase{"no_http", "SSH-2.0-OpenSSH_9.2\r\n", "does not speak HTTP"},
                      BrokenCase{"no_status", "HTTP/1.1 abc\r\n\r\n", "does not speak HTTP"},
                      BrokenCase{"long_line", std::string(1 << 20, 'x'), "a line is longer than 64 KiB"},
                      BrokenCase{"many_headers", many_headers(), "more than 256 headers"},
                      BrokenCase{"length", "HTTP/1.1 200 OK\r\ncontent-length: 1e3\r\n\r\n", "which is no number"},
                      BrokenCase{"length_of_a_terminal", "HTTP/1.1 200 OK\r\ncontent-length: \x1b[2J\r\n\r\n",
                                 "content-length: ?[2J"},
                      BrokenCase{"huge_length", "HTTP/1.1 200 OK\r\ncontent-length: 18446744073709551615\r\n\r\n",
                                 "more than 256 MiB"},
                      BrokenCase{"huge_chunk",
                                 "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n",
                                 "more than 256 MiB"},
                      BrokenCase{"cut", "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc", "closed the connection"}),
    [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace weft::bench
