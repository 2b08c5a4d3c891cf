// RemoteEngine and ReplicaServer over a socket: what an engine says there arrives here, whatever happens to either
// end.
#include "weft/serve/remote/remote_engine.h"

#include <sys/socket.h>

#include <chrono>
#include <optional>

#include "serve/company.h"
#include "serve/engine_on_mesh.h"
#include "serve/fake_engine.h"
#include "weft/comm/threads/run_ranks.h"
#include "weft/serve/constrain/constraint_factory.h"
#include "weft/serve/remote/meeting.h"
#include "weft/serve/remote/replica_server.h"
#include "weft/serve/replicated_engine.h"
#include "weft/text/byte_tokenizer.h"

namespace weft::remote {
namespace {

using namespace std::chrono_literals;

std::pair<Socket, Socket> connected() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) throw Error("no sockets");
  return {Socket(ends[0]), Socket(ends[1])};
}

// An engine behind a channel, in this process.
struct Linked {
  explicit Linked(
      Engine& there, std::function<void()> on_stop = [] {}, api::ConstraintFactory* constraints = nullptr,
      std::string name = "replica 1") {
    auto [a, b] = connected();
    server.emplace(std::move(b), there, constraints, std::move(on_stop));
    here.emplace(std::make_unique<Channel>(std::move(a)), std::move(name),
                 [this](const std::string& error) { failure.set_value(error); });
  }
  ~Linked() {
    if (here) here->stop();
    if (server) EXPECT_NO_THROW(server->finish());
  }
  std::optional<ReplicaServer> server;
  std::promise<std::string> failure;
  std::optional<RemoteEngine> here;
};

FakeOptions slow() { return {.answer = saying("abc"), .step = 500us}; }

struct RemoteEngineTest : testing::Test {
  FakeEngine there{slow()};
  Linked linked{there};
  RemoteEngine& engine = *linked.here;

  static Request forever(std::vector<int32_t> prompt) { return greedy(std::move(prompt), 1'000'000); }
  std::vector<std::future<Heard>> heard;
  RequestId submit(Request request, std::function<void()> on_token = {}) {
    std::promise<Heard> promise;
    heard.push_back(promise.get_future());
    return engine.submit(std::move(request), std::make_unique<Recorder>(std::move(promise), std::move(on_token)));
  }
};

TEST_F(RemoteEngineTest, TellsWhatIsToldThere) {
  const auto scored = [] {
    Request request = greedy({'x', 'y', 'z'}, 8);
    request.logprobs = 2, request.prompt_logprobs = 1;
    request.stop_tokens = {256};
    return request;
  };
  const Heard want = ask(there, scored()).get(), got = ask(engine, scored()).get();
  EXPECT_EQ(got.tokens, (std::vector<int32_t>{'a', 'b', 'c'}));
  EXPECT_EQ(got.scores, want.scores);
  EXPECT_EQ(got.prompt_scores, want.prompt_scores);
  EXPECT_EQ(got.prompt_scores.size(), 3u);
  EXPECT_EQ(got.finish.reason, FinishReason::stop);
  EXPECT_EQ(got.finish.stop_token, 256);
  EXPECT_EQ(got.finish.usage.completion_tokens, 4);
  EXPECT_EQ(ask(engine, embedding_of({1, 2})).get().embedding, (std::vector<float>{2, 0.5f}));
  EXPECT_EQ(engine.limits().context, there.limits().context);
  EXPECT_EQ(engine.limits().max_waiting, there.limits().max_waiting);
}

TEST_F(RemoteEngineTest, CancelsSoon) {
  auto least = std::chrono::steady_clock::duration::max();  // other programs may take a core for a while
  for (int i = 0; i < 5; ++i) {
    std::promise<void> began;
    std::atomic<bool> has_begun{false};
    const RequestId id = submit(forever({1}), [&] {
      if (!has_begun.exchange(true)) began.set_value();
    });
    began.get_future().wait();
    const auto begin = std::chrono::steady_clock::now();
    engine.cancel(id);
    EXPECT_EQ(heard.back().get().finish.reason, FinishReason::cancelled);
    least = std::min(least, std::chrono::steady_clock::now() - begin);
    engine.cancel(id);
  }
  EXPECT_LT(least, 250ms);
  engine.cancel(99);
}

TEST_F(RemoteEngineTest, RefusesAtOnceWhatCannotBe) {
  EXPECT_THROW(submit(greedy({}, 1)), UsageError);
  EXPECT_THROW(submit(greedy({257}, 1)), UsageError);
  EXPECT_THROW(submit(greedy(std::vector<int32_t>(4096, 1), 1)), UsageError);
  Request adapted = greedy({1}, 1);
  adapted.adapter = "unknown";
  EXPECT_THROW(submit(std::move(adapted)), UsageError);
}

struct BadField {
  const char* name;
  void (*change)(Request&);
};
void PrintTo(const BadField& c, std::ostream* out) { *out << c.name; }
class BadFieldTest : public RemoteEngineTest, public testing::WithParamInterface<BadField> {};

TEST_P(BadFieldTest, EndsTheRequestAlone) {
  Request request = greedy({1}, 1);
  GetParam().change(request);
  const Heard bad = ask(engine, std::move(request)).get();
  EXPECT_EQ(bad.finish.reason, FinishReason::error);
  EXPECT_FALSE(bad.finish.error.empty());
  EXPECT_EQ(ask(engine, greedy({1}, 2)).get().tokens.size(), 2u);
}

INSTANTIATE_TEST_SUITE_P(Requests, BadFieldTest,
                         testing::Values(BadField{"Temperature", [](Request& r) { r.sampling.temperature = -1; }},
                                         BadField{"Bias",
                                                  [](Request& r) {
                                                    r.sampling.logit_bias = {{-1, 1.0f}};
                                                  }},
                                         BadField{"StopToken", [](Request& r) { r.stop_tokens = {1 << 30}; }},
                                         BadField{"BadWord",
                                                  [](Request& r) {
                                                    r.bad_words = {{1, -7}};
                                                  }},
                                         BadField{"AllowedToken",
                                                  [](Request& r) {
                                                    r.sampling.allowed_tokens = {1, -2};
                                                  }},
                                         BadField{"EmptyBadWord", [](Request& r) { r.bad_words = {{}}; }},
                                         BadField{"Alternatives", [](Request& r) { r.logprobs = -1; }},
                                         BadField{"PromptAlternatives",
                                                  [](Request& r) { r.prompt_logprobs = 1 << 20; }},
                                         BadField{"MaxTokens", [](Request& r) { r.max_tokens = INT64_MIN; }},
                                         BadField{"MinTokens", [](Request& r) { r.min_tokens = -1; }}),
                         [](const auto& one) { return one.param.name; });

TEST(RemoteRefusalTest, WhatOnlyTheEngineKnowsEndsTheRequest) {
  FakeEngine there({.answer = saying("abc"), .embeds = false});
  Linked linked(there);
  const Finish finish = ask(*linked.here, embedding_of({1})).get().finish;
  EXPECT_EQ(finish.reason, FinishReason::error);
  EXPECT_EQ(finish.error, "embeddings are not offered");
}

TEST(RemoteRefusalTest, AFullQueueIsBusy) {
  FakeEngine there({.answer = saying("abc"), .step = 1ms, .limits = {257, 64, 2, 3}});
  Linked linked(there);
  std::vector<std::future<Heard>> heard;
  bool was_busy = false;
  for (int i = 0; i < 20 && !was_busy; ++i) {
    try {
      heard.push_back(ask(*linked.here, greedy({1}, 1'000'000)));
    } catch (const Busy& e) {
      was_busy = true;
      EXPECT_GT(e.retry_after_s(), 0);
    }
  }
  EXPECT_TRUE(was_busy);
  EXPECT_GE(heard.size(), 3u);
  linked.here->drain(0ms);
  for (auto& one : heard) {  // those that the engine itself refused may be tried again
    const Finish finish = one.get().finish;
    if (finish.reason == FinishReason::error) EXPECT_GT(finish.retry_after_s, 0);
  }
}

TEST_F(RemoteEngineTest, CountsWhatIsDoneThere) {
  for (int i = 0; i < 3; ++i) submit(greedy({1, 2}, 5));
  for (auto& one : heard) one.wait();
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.generated_tokens_total, 15);
  EXPECT_EQ(stats.prompt_tokens_total, 6);
  EXPECT_EQ(stats.kv_blocks, 4096);
  heard.clear();
  for (int i = 0; i < 5; ++i) submit(forever({1}));
  EXPECT_EQ(open_of(engine), 5);
  engine.drain(0ms);
  for (auto& one : heard) EXPECT_EQ(one.get().finish.reason, FinishReason::cancelled);
  EXPECT_EQ(open_of(engine), 0);
  EXPECT_THROW(submit(greedy({1}, 1)), Busy);
}

TEST_F(RemoteEngineTest, DrainLetsAnswersEnd) {
  submit(greedy({1}, 50));
  engine.drain(60s);
  EXPECT_EQ(heard.front().get().tokens.size(), 50u);
}

TEST_F(RemoteEngineTest, AdaptersComeAndGo) {
  const auto load = [&](const std::string& name) {
    std::promise<std::string> told;
    engine.load_adapter(name, "folder", [&](const std::string& error) { told.set_value(error); });
    return told.get_future().get();
  };
  EXPECT_EQ(engine.adapters(), std::vector<std::string>{"an-adapter"});
  EXPECT_EQ(load("law"), "");
  EXPECT_EQ(engine.adapters(), (std::vector<std::string>{"an-adapter", "law"}));
  EXPECT_EQ(there.adapter_folder("law"), "folder");
  EXPECT_THROW(load("law"), UsageError);
  Request adapted = greedy({1}, 1);
  adapted.adapter = "law";
  submit(std::move(adapted));
  heard.front().wait();
  EXPECT_EQ(there.last_request().adapter, "law");
  EXPECT_TRUE(engine.unload_adapter("law"));
  EXPECT_FALSE(engine.unload_adapter("law"));
  EXPECT_EQ(ask(engine, greedy({1}, 1)).get().tokens.size(), 1u);  // behind which it is gone there too
  EXPECT_EQ(there.adapters(), std::vector<std::string>{"an-adapter"});
}

TEST(RemoteFormTest, ConstraintsAreMadeThereAnew) {
  ByteTokenizer tokenizer;
  constrain::ConstraintFactory forms(tokenizer, tokenizer.vocab_size(), {256});
  const auto first_allowed = [](const Request& r) -> std::vector<int32_t> {
    std::vector<uint32_t> allowed((257 + 31) / 32);
    r.constraint->fill(allowed);
    for (int32_t token = 0; token < 257; ++token)
      if ((allowed[size_t(token) / 32] >> (token % 32) & 1) != 0) return {token};
    return {};
  };
  FakeEngine there({.answer = first_allowed});
  Linked linked(
      there, [] {}, &forms);
  for (const auto& [form, token] :
       {std::pair(api::OutputForm{api::OutputForm::Kind::regex, "q+"}, 'q'),
        std::pair(api::OutputForm{.kind = api::OutputForm::Kind::choice, .choices = {"yes", "yeah"}}, 'y'),
        std::pair(api::OutputForm{.kind = api::OutputForm::Kind::regex, .text = "z", .trigger = "<go>"}, '\0')}) {
    Request request = greedy({1}, 1);
    request.constraint = forms.make(form);
    EXPECT_EQ(ask(*linked.here, std::move(request)).get().tokens, std::vector<int32_t>{token});
  }
  struct Untold : TokenConstraint {
    void fill(std::span<uint32_t>) override {}
    void accept(int32_t) override {}
    void rewind(int64_t) override {}
  };
  Request request = greedy({1}, 1);
  request.constraint = std::make_unique<Untold>();
  EXPECT_THROW(ask(*linked.here, std::move(request)), Unsupported);
}

TEST_F(RemoteEngineTest, AFailureEndsItsRequestsAndOthersGoOn) {
  FakeEngine own(slow());
  ReplicatedEngine both({&own, &engine});
  for (int i = 0; i < 4; ++i) {
    std::promise<Heard> promise;
    heard.push_back(promise.get_future());
    both.submit(forever({i}), std::make_unique<Recorder>(std::move(promise)));
  }
  linked.server->tell_failure("the disk is full");
  EXPECT_EQ(linked.failure.get_future().get(), "replica 1 ended: the disk is full");
  size_t failed = 0;
  for (int i = 0; i < 4; ++i) {
    if (heard[size_t(i)].wait_for(0s) != std::future_status::ready) continue;
    const Finish finish = heard[size_t(i)].get().finish;
    EXPECT_EQ(finish.reason, FinishReason::error);
    EXPECT_EQ(finish.error, "replica 1 ended: the disk is full");
    ++failed;
  }
  EXPECT_EQ(failed, 2u);
  EXPECT_FALSE(engine.is_alive());
  EXPECT_THROW(submit(greedy({1}, 1)), Busy);
  for (int32_t i = 0; i < 6; ++i) EXPECT_EQ(ask(both, greedy({i}, 3)).get().tokens.size(), 3u);
  EXPECT_EQ(engine.stats().waiting, 0);
  std::string error = "not told";
  both.load_adapter("law", "folder", [&](const std::string& e) { error = e; });
  EXPECT_EQ(error, "");
  both.drain(0ms);
}

// One that failed waits to be told that the job ends, however soon the other end is gone then.
TEST(RemoteEngineStopTest, ReachesAReplicaThatHasFailed) {
  for (int i = 0; i < 200; ++i) {
    FakeEngine there{slow()};
    Linked linked{there};
    linked.server->tell_failure("the disk is full");
    linked.failure.get_future().wait();
    linked.here.reset();
    ASSERT_NO_THROW(linked.server->finish()) << "round " << i;
    linked.server.reset();
  }
}

TEST_F(RemoteEngineTest, AProcessThatIsGoneIsAFailure) {
  submit(forever({1}));
  linked.server.reset();
  const Finish finish = heard.front().get().finish;
  EXPECT_EQ(finish.reason, FinishReason::error);
  EXPECT_NE(finish.error.find("replica 1 ended"), std::string::npos) << finish.error;
  EXPECT_FALSE(engine.is_alive());
  EXPECT_THROW(engine.load_adapter("law", "folder", {}), Error);
}

TEST(ReplicaServerTest, StopsItsEngineOnceItIsTold) {
  FakeEngine there(slow());
  std::promise<void> stopped;
  Linked linked(there, [&] { stopped.set_value(); });
  auto open = ask(*linked.here, greedy({1}, 1'000'000));
  linked.here->stop();
  stopped.get_future().wait();
  EXPECT_EQ(open.get().finish.reason, FinishReason::cancelled);
}

TEST(ReplicaServerTest, StopsItsEngineWhenNobodyListens) {
  FakeEngine there(slow());
  auto [a, b] = connected();
  std::promise<void> stopped;
  ReplicaServer server(std::move(b), there, nullptr, [&] { stopped.set_value(); });
  { const Socket gone = std::move(a); }
  stopped.get_future().wait();
  EXPECT_THROW(server.finish(), Error);
}

// What is said on the wire by something else.
struct Rubbish {
  const char* name;
  std::string bytes;
};
void PrintTo(const Rubbish& c, std::ostream* out) { *out << c.name; }
class RubbishTest : public testing::TestWithParam<Rubbish> {};

void say(const Socket& socket, const std::string& bytes) {
  ASSERT_EQ(::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL), ssize_t(bytes.size()));
  ::shutdown(socket.fd(), SHUT_WR);
}

TEST_P(RubbishTest, EndsTheServerWithASentence) {
  FakeEngine there(slow());
  auto [a, b] = connected();
  ReplicaServer server(std::move(b), there, nullptr, [] {});
  say(a, GetParam().bytes);
  try {
    server.finish();
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("the replica that listens is gone"), std::string::npos) << e.what();
  }
}

TEST_P(RubbishTest, EndsTheRemoteEngineWithASentence) {
  auto [a, b] = connected();
  Channel there(std::move(b));
  there.send(encode(FromReplica(Hello{{257, 64, 2, 3}, {}})));
  RemoteEngine engine(std::make_unique<Channel>(std::move(a)), "replica 3");
  auto open = ask(engine, greedy({1}, 4));
  std::vector<std::byte> submitted;
  ASSERT_TRUE(there.receive(submitted));
  const std::string& text = GetParam().bytes;
  if (text.size() > 4) {  // as a whole message
    there.send(std::as_bytes(std::span(text).subspan(4)));
  } else {
    there.cut();
  }
  const Finish finish = open.get().finish;
  EXPECT_EQ(finish.reason, FinishReason::error);
  EXPECT_NE(finish.error.find("replica 3 ended: "), std::string::npos) << finish.error;
  there.cut();
}

INSTANTIATE_TEST_SUITE_P(Bytes, RubbishTest,
                         testing::Values(Rubbish{"Nothing", ""}, Rubbish{"HalfALength", std::string("\x01\x00", 2)},
                                         Rubbish{"HalfAMessage", std::string("\x09\x00\x00\x00\x01\x02", 6)},
                                         Rubbish{"AnEndlessMessage", std::string("\xff\xff\xff\xff\x01", 5)},
                                         Rubbish{"AnUnknownKind", std::string("\x01\x00\x00\x00\x63", 5)},
                                         Rubbish{"Http", "GET / HTTP/1.1\r\n\r\n"}),
                         [](const auto& one) { return one.param.name; });

// Two replicas of a real model, one of them behind a channel, on meshes of one and two ranks.
class RemoteReplicaTest : public testing::TestWithParam<MeshShape> {};

TEST_P(RemoteReplicaTest, GivesTheSameBits) {
  constexpr size_t kRequests = 24;
  const MeshShape mesh = GetParam();
  const ContinuousOptions options{.kv_blocks = 64};
  std::vector<ServedAnswer> want;
  with_engine_on(small_config(), mesh, options,
                 [&](ContinuousEngine& engine) { want = answers_of(engine, company(kRequests)); });
  with_engine_on(small_config(), mesh, options, [&](ContinuousEngine& there) {
    with_engine_on(small_config(), mesh, options, [&](ContinuousEngine& own) {
      Linked linked(there);
      EXPECT_EQ(answers_of(*linked.here, company(kRequests)), want);
      ReplicatedEngine both({&own, &*linked.here});
      EXPECT_EQ(answers_of(both, company(kRequests)), want);
      EXPECT_GT(own.stats().generated_tokens_total, 0);
      EXPECT_GT(linked.here->stats().generated_tokens_total, own.stats().generated_tokens_total);
      EXPECT_EQ(linked.here->stats().generated_tokens_total, there.stats().generated_tokens_total);
      const Heard embedding = ask(*linked.here, embedding_of({1, 2, 3})).get();
      EXPECT_EQ(embedding.embedding, ask(own, embedding_of({1, 2, 3})).get().embedding);
    });
  });
}

INSTANTIATE_TEST_SUITE_P(Meshes, RemoteReplicaTest, testing::Values(MeshShape{}, MeshShape{.tp = 2}),
                         [](const auto& one) { return fmt::format("Tp{}", one.param.tp); });

TEST(MeetingTest, ConnectsEachReplicaWithTheFirst) {
  constexpr int kReplicas = 3, kRanks = 2;  // of each; the second one speaks
  run_ranks(kReplicas * kRanks, [&](Communicator& job) {
    const ReplicaPlace place{
        .replica = job.rank() / kRanks, .replicas = kReplicas, .is_driver = job.rank() % kRanks == 1, .front = 1};
    std::vector<Socket> sockets = meet(job, place);
    const bool is_front = job.rank() == place.front;
    ASSERT_EQ(sockets.size(), is_front ? 2u : place.is_driver ? 1u : 0u);
    if (!is_front && place.is_driver) {
      const char own = char('0' + place.replica);
      EXPECT_EQ(::send(sockets[0].fd(), &own, 1, MSG_NOSIGNAL), 1);
    }
    for (size_t i = 0; is_front && i < sockets.size(); ++i) {
      char said = 0;
      EXPECT_EQ(::recv(sockets[i].fd(), &said, 1, 0), 1);
      EXPECT_EQ(said, char('1' + i)) << "in order";
    }
  });
}

}  // namespace
}  // namespace weft::remote
