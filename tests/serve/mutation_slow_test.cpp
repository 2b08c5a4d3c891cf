// A hundred thousand mutated requests and bodies, and ten thousand clients that vanish.
#include <dirent.h>
#include <sys/resource.h>

#include "serve/mutated_bodies.h"

namespace weft {
namespace {

TEST(MutationSlowTest, NinetyThousandBodiesAreAnswered) { send_mutated_bodies(10000, 90000); }
TEST(MutationSlowTest, TenThousandRequestsAreAnsweredOrClosed) { send_mutated_requests(10000, 10000); }

int count_entries(const char* folder) {
  int count = 0;
  DIR* const dir = ::opendir(folder);
  while (::readdir(dir) != nullptr) ++count;
  ::closedir(dir);
  return count;
}

TEST(DisconnectSlowTest, TenThousandLeaveBlocksSocketsAndThreadsWhereTheyWere) {
  TestSetup setup{.engine = {.answer = saying("tick "), .step = std::chrono::milliseconds(1)}};
  TestServer server(std::move(setup));
  server.ask("/v1/completions", {{"prompt", "x"}, {"max_tokens", 3}});
  ASSERT_TRUE(becomes_true([&] { return server.server.stats().connections == 0; }, std::chrono::seconds(2)));
  const int sockets = count_entries("/proc/self/fd"), threads = count_entries("/proc/self/task");
  const std::string body = R"({"prompt": "x", "max_tokens": 1000, "ignore_eos": true, "stream": )";
  std::mt19937_64 random(4);
  for (int i = 0; i < 10000; ++i) {
    bench::HttpClient client = server.connect();
    const std::string whole = body + (i % 2 == 0 ? "true}" : "false}");
    const std::string text = fmt::format(
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{}", whole.size(), whole);
    client.send_raw(std::string_view(text).substr(0, random() % (2 * text.size())));  // half of them are whole
    if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
  }
  EXPECT_TRUE(becomes_true([&] { return server.engine.stats().kv_blocks_used == 0; }, std::chrono::seconds(5)));
  EXPECT_TRUE(becomes_true([&] { return server.server.stats().connections == 0; }, std::chrono::seconds(5)));
  EXPECT_EQ(server.server.stats().exchanges, 0);
  EXPECT_EQ(server.server.stats().body_bytes, 0u);
  EXPECT_EQ(count_entries("/proc/self/fd"), sockets);
  EXPECT_EQ(count_entries("/proc/self/task"), threads);
  EXPECT_EQ(server.ask("/v1/completions", {{"prompt", "x"}, {"max_tokens", 5}})["choices"][0]["text"], "tick ");
}

// The 99th percentile of 400 short requests, in milliseconds.
double slow_end_ms(const TestServer& server) {
  std::vector<double> took;
  for (int i = 0; i < 400; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(server.post("/v1/completions", {{"prompt", "x"}, {"max_tokens", 10}}).status, 200);
    took.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(took.begin(), took.end());
  return took[took.size() * 99 / 100];
}

// Sends each of these clients a byte more in turn, one in four seconds, until it is told; those that are cut off go
// on in vain.
class Drip {
 public:
  explicit Drip(std::vector<bench::HttpClient>& clients)
      : thread_([this, &clients] {
          for (size_t i = 0; !is_over_; i = (i + 1) % clients.size()) {
            try {
              clients[i].send_raw("h");
            } catch (const Error&) {  // it was cut off
            }
            std::this_thread::sleep_for(std::chrono::duration<double>(4) / double(clients.size()));
          }
        }) {}
  ~Drip() { is_over_ = true, thread_.join(); }

 private:
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

TEST(SlowClientsSlowTest, TwoThousandDoNotHinderOthersAndAreCutOff) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur < 5000) GTEST_SKIP() << "a process may open only " << files.rlim_cur << " files here";
  TestSetup setup{.engine = {.answer = saying("tick "), .step = std::chrono::milliseconds(1)}};
  setup.server.header_timeout = std::chrono::seconds(8);
  TestServer server(std::move(setup));
  const double alone = slow_end_ms(server);
  std::vector<bench::HttpClient> slow;
  for (int i = 0; i < 2000; ++i) {
    slow.push_back(server.connect());
    slow.back().send_raw("POST /v1/completions HTTP/1.1\r\nHost: local");
  }
  const Drip drip(slow);
  const double beside = slow_end_ms(server);
  fmt::print("p99 alone {:.1f} ms, beside 2,000 slow connections {:.1f} ms\n", alone, beside);
  EXPECT_LT(beside, 3 * alone + 20) << "the aim is 1.2 times; tests share their machine";
  EXPECT_TRUE(becomes_true([&] { return server.server.stats().connections == 0; }, std::chrono::seconds(20)));
}

}  // namespace
}  // namespace weft
