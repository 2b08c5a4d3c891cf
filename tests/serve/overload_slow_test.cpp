// A real engine behind the real server: ten times more load than it can serve, ten thousand requests in a row, and
// what of the cache lies idle.
#include <unistd.h>

#include <fstream>

#include "pretrained/model_on_ranks.h"
#include "serve/with_engine.h"
#include "weft/serve/api/api.h"
#include "weft/serve/bench/load.h"
#include "weft/serve/http/server.h"
#include "weft/text/byte_tokenizer.h"

namespace weft {
namespace {

ModelConfig config_of(int64_t layers, int64_t hidden) {
  ModelConfig m = family_defaults("llama");
  m.layers = layers, m.hidden = hidden, m.heads = 4, m.kv_heads = 2, m.ffn = 3 * hidden;
  m.vocab = ByteTokenizer::kEndOfDocument + 1, m.context = 2048, m.init_std = 0.1f;
  complete(m);
  return m;
}

void with_engine_of(const ModelConfig& config, const ContinuousOptions& options,
                    const std::function<void(ContinuousEngine&)>& clients) {
  on_ranks(
      config, {}, cpu_kernels(), DType::f32, [](ForwardModel& m) { m.part().initialize(m.context(), 5); },
      [&](ForwardModel& model) { with_engine(model, options, clients); });
}

void with_server_of(const ModelConfig& config, const ContinuousOptions& options,
                    const std::function<void(ContinuousEngine&, uint16_t port)>& clients) {
  const ByteTokenizer tokenizer;
  with_engine_of(config, options, [&](ContinuousEngine& engine) {
    api::Api api({});
    http::Server server({.port = 0});
    server.listen(api);
    api.serve({{.name = "bytes", .engine = &engine, .tokenizer = &tokenizer}});
    clients(engine, server.port());
  });
}

double ms_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

// What one client sees beside a load, until it is told to stop: how long refusals and /health took, in milliseconds.
struct Seen {
  std::vector<double> refusals, health;
};
Seen look(uint16_t port, const std::atomic<bool>& is_over) {
  Seen seen;
  const std::string body = R"({"prompt": "x", "max_tokens": 1})";
  while (!is_over) {
    auto begin = std::chrono::steady_clock::now();
    const int status = bench::HttpClient("127.0.0.1", port).request("POST", "/v1/completions", body).status;
    if (status == 429) seen.refusals.push_back(ms_since(begin));
    begin = std::chrono::steady_clock::now();
    EXPECT_EQ(bench::HttpClient("127.0.0.1", port).request("GET", "/health").status, 200);
    seen.health.push_back(ms_since(begin));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return seen;
}

TEST(OverloadSlowTest, TenTimesWhatItCanServeCostsNeitherGoodputNorPatience) {
  const ContinuousOptions options{.kv_blocks = 512, .max_running = 16, .max_waiting = 16};
  with_server_of(config_of(4, 384), options, [&](ContinuousEngine&, uint16_t port) {
    bench::LoadOptions load{.url = {"127.0.0.1", "/v1", port},
                            .requests = 96,
                            .concurrency = 16,
                            .input_tokens = 64,
                            .output_tokens = 64,
                            .vocab = 256};
    run_load(load);
    const bench::LoadResult alone = run_load(load);
    ASSERT_EQ(alone.failed, 0);
    const double peak = double(alone.complete) / alone.seconds;
    load.rate = 10 * peak, load.requests = 2000, load.concurrency = 200;
    std::atomic<bool> is_over = false;
    auto beside = std::async(std::launch::async, look, port, std::cref(is_over));
    const bench::LoadResult result = run_load(load);
    is_over = true;
    const Seen seen = beside.get();
    const double goodput = double(result.complete) / result.seconds;
    const bench::Percentiles refusals = bench::percentiles_of(seen.refusals),
                             health = bench::percentiles_of(seen.health);
    fmt::print("goodput {:.1f} requests/s of {:.1f}; {} refused; refusals p99 {:.1f} ms, /health p99 {:.1f} ms\n",
               goodput, peak, result.failed, refusals.p99, health.p99);
    EXPECT_GT(goodput, 0.7 * peak) << "the aim is 0.9; clients share the machine";
    EXPECT_GT(result.failures.at("status 429"), 1000);
    EXPECT_EQ(result.failures.size(), 1u);
    EXPECT_LT(refusals.p50, 50);
    EXPECT_LT(health.p50, 100);
  });
}

int64_t resident_bytes() {
  int64_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

TEST(FlatMemorySlowTest, TenThousandRequestsLeaveItAsItWas) {
  with_server_of(config_of(1, 32), {.kv_blocks = 512}, [&](ContinuousEngine&, uint16_t port) {
    bench::LoadOptions load{.url = {"127.0.0.1", "/v1", port},
                            .requests = 1000,
                            .concurrency = 16,
                            .input_tokens = 24,
                            .output_tokens = 8,
                            .vocab = 256};
    EXPECT_EQ(run_load(load).complete, 1000);
    const int64_t before = resident_bytes();
    load.seed = 1, load.requests = 10000;
    EXPECT_EQ(run_load(load).complete, 10000);
    const int64_t grown = resident_bytes() - before;
    fmt::print("10,000 requests: {} KiB more are resident\n", grown >> 10);
    EXPECT_LT(grown, 8 << 20);  // the client's samples are among them
  });
}

// Prompts of 16 to 1,000 tokens and answers of 16 to 200: what of the blocks in use holds nothing, over time.
TEST(CacheWasteSlowTest, IsBelowFourPercentOfAMixedWorkload) {
  with_engine_of(config_of(1, 32), {.kv_blocks = 2048}, [&](ContinuousEngine& engine) {
    std::mt19937 random(8);
    std::vector<std::future<Heard>> open;
    for (int i = 0; i < 300; ++i) {
      std::vector<int32_t> prompt(16 + random() % 985);
      for (int32_t& token : prompt) token = int32_t(random() % 256);
      open.push_back(ask(engine, greedy(prompt, int64_t(16 + random() % 185))));
      while (engine.stats().waiting > 8) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    double waste = 0;
    int64_t moments = 0;
    for (auto& answer : open) {
      while (answer.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
        const EngineStats s = engine.stats();
        if (s.running < 4) continue;
        waste += 1 - double(s.kv_tokens_used) / double(s.kv_blocks_used * s.kv_block_tokens);
        ++moments;
      }
    }
    ASSERT_GT(moments, 10);
    fmt::print("{:.2f}% of the places in used blocks hold nothing\n", 100 * waste / double(moments));
    EXPECT_LT(waste / double(moments), 0.04);
  });
}

}  // namespace
}  // namespace weft
