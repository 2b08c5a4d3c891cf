// EncoderEngine: vectors and scores of texts as the model alone makes them, in any company, on any mesh.
#include "weft/serve/encoder_engine.h"

#include <cmath>
#include <new>
#include <thread>

#include "pretrained/golden_models.h"
#include "pretrained/model_on_ranks.h"
#include "serve/recorder.h"
#include "support/message_of.h"
#include "support/rank.h"
#include "weft/comm/single/single.h"
#include "weft/pretrained/bidirectional_model.h"
#include "weft/pretrained/encoders/encoders.h"
#include "weft/tensor/device_lost.h"

namespace weft {
namespace {

constexpr int64_t kVocab = 13;

std::vector<int32_t> text_of(size_t i) {
  std::vector<int32_t> ids;
  for (size_t t = 0; t <= i % 9; ++t) ids.push_back(int32_t((i * 7 + t * t * 3) % kVocab));
  return ids;
}

Request score_of(std::vector<int32_t> ids, int64_t second_text = 0) {
  Request request;
  request.kind = Request::Kind::weigh;
  request.weighed = {0};
  request.prompt = std::move(ids), request.second_text = second_text;
  return request;
}

// A BERT, or a decoder whose tokens see all of their text.
class OpenedEncoder {
 public:
  OpenedEncoder(Context& context, const Mesh& mesh, const std::string& folder) {
    if (encoder_kind(folder)) {
      encoder_ = open_bert(context, folder, {DType::f32, &mesh});
      return;
    }
    source_ = open_model(folder);
    forward_ = std::make_unique<ForwardModel>(context, mesh, *source_, DType::f32, BlockChoice{});
    encoder_ = std::make_unique<BidirectionalModel>(*forward_);
  }
  TextEncoder& operator*() { return *encoder_; }

 private:
  std::unique_ptr<ModelSource> source_;
  std::unique_ptr<ForwardModel> forward_;
  std::unique_ptr<TextEncoder> encoder_;
};

// Calls body(engine) beside an engine on every rank of a mesh.
void with_encoder(const std::string& folder, const MeshShape& shape, const EncoderOptions& options,
                  const std::function<void(EncoderEngine&)>& body) {
  run_ranks(shape.size(), [&](Communicator& world) {
    TestRank rank(cpu_kernels());
    const Mesh mesh(world, shape);
    OpenedEncoder model(rank.context, mesh, folder);
    EncoderEngine engine(*model, rank.context, mesh, options);
    if (!engine.is_driver()) return engine.run();
    std::thread thread([&] {
      body(engine);
      engine.stop();
    });
    engine.run();
    thread.join();
  });
}

struct EncoderCase {
  const char *model, *folder;  // with labels
  MeshShape mesh;
};

class EncoderEngineTest : public testing::TestWithParam<EncoderCase> {
 protected:
  const MeshShape mesh_ = GetParam().mesh;
  const GoldenModel scored_{GetParam().model, GetParam().folder};
  // A text's scores are those of its last token, where there are some of each.
  std::vector<double> scores() const { return scored_.logits().back(); }
};

std::vector<EncoderCase> encoder_cases() {
  std::vector<EncoderCase> all;
  for (const auto& [model, folder] :
       {std::pair("bert_scores", "golden_encoders"), std::pair("modernbert_scores", "golden_encoders"),
        std::pair("gemma3_both_ways_scores", "golden")})
    for (const MeshShape& mesh : {MeshShape{}, MeshShape{.tp = 2}, MeshShape{.pp = 2}, MeshShape{.pp = 2, .tp = 2}})
      all.push_back({model, folder, mesh});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Meshes, EncoderEngineTest, testing::ValuesIn(encoder_cases()), [](const auto& test) {
  return fmt::format("{}_{}", test.param.model, name_of_mesh(test.param.mesh));
});

TEST_P(EncoderEngineTest, GivesWhatTheModelGives) {
  const int64_t context = std::max<int64_t>(16, int64_t(scored_.ids().size()));
  with_encoder(scored_.path(), mesh_, {.context = context}, [&](EncoderEngine& engine) {
    EXPECT_EQ(engine.limits().context, context);
    EXPECT_EQ(engine.limits().labels, int64_t(scores().size()));
    const Heard scored = ask(engine, score_of(scored_.ids(), scored_.number_or("second_text", 0))).get();
    ASSERT_EQ(scored.embedding.size(), 1u);
    EXPECT_NEAR(double(scored.embedding[0]), scores()[0], kSingle);
    EXPECT_EQ(scored.finish.usage.prompt_tokens, int64_t(scored_.ids().size()));
    const auto hidden = scored_.rows("hidden");
    for (const Pooling pooling : {Pooling::last, Pooling::first, Pooling::mean, Pooling::weighted_mean}) {
      Request request = embedding_of(scored_.ids(), pooling);
      request.second_text = scored_.number_or("second_text", 0), request.normalises = false;
      const Heard heard = ask(engine, std::move(request)).get();
      ASSERT_EQ(heard.embedding.size(), hidden[0].size());
      for (size_t i = 0; i < hidden[0].size(); ++i) {
        double sum = 0, weights = 0;
        for (size_t t = 0; t < hidden.size(); ++t) {
          const double weight = pooling == Pooling::last    ? double(t + 1 == hidden.size())
                                : pooling == Pooling::first ? double(t == 0)
                                : pooling == Pooling::mean  ? 1
                                                            : double(t + 1);
          sum += weight * hidden[t][i], weights += weight;
        }
        EXPECT_NEAR(double(heard.embedding[i]), sum / weights, kSingle) << name_of(pooling) << " " << i;
      }
    }
  });
}

// Bit by bit, whatever the steps.
TEST_P(EncoderEngineTest, CompanyChangesNothing) {
  constexpr size_t kTexts = 40;
  std::vector<std::vector<float>> alone;
  for (const EncoderOptions& options :
       {EncoderOptions{.context = 16, .max_running = 1}, EncoderOptions{.context = 16, .tokens_per_step = 1},
        EncoderOptions{.context = 16, .tokens_per_step = 20}, EncoderOptions{.context = 16}}) {
    with_encoder(scored_.path(), mesh_, options, [&](EncoderEngine& engine) {
      std::vector<std::future<Heard>> asked;
      for (size_t i = 0; i < kTexts; ++i)
        asked.push_back(ask(engine, i % 2 == 0 ? embedding_of(text_of(i), Pooling::mean) : score_of(text_of(i))));
      for (size_t i = 0; i < kTexts; ++i) {
        const Heard heard = asked[i].get();
        EXPECT_EQ(heard.finish.reason, FinishReason::stop) << heard.finish.error;
        if (alone.size() == i) alone.push_back(heard.embedding);
        EXPECT_EQ(heard.embedding, alone[i]) << i;
      }
      const EngineStats stats = engine.stats();
      EXPECT_EQ(stats.running, 0);
      EXPECT_EQ(stats.waiting, 0);
      EXPECT_EQ(stats.steps_total >= int64_t(kTexts), options.max_running == 1 || options.tokens_per_step == 1);
    });
  }
}

TEST_P(EncoderEngineTest, EndsWhatIsOpen) {
  std::vector<std::future<Heard>> asked;
  with_encoder(scored_.path(), mesh_, {.context = 16, .max_running = 1}, [&](EncoderEngine& engine) {
    for (size_t i = 0; i < 60; ++i) asked.push_back(ask(engine, embedding_of(text_of(i))));
    engine.drain(std::chrono::milliseconds(0));
    EXPECT_THROW(ask(engine, embedding_of({1})), Busy);
  });
  for (auto& one : asked) {
    const Heard heard = one.get();
    EXPECT_TRUE(heard.finish.reason == FinishReason::stop || heard.finish.reason == FinishReason::cancelled);
    EXPECT_EQ(heard.embedding.empty(), heard.finish.reason == FinishReason::cancelled);
  }
}

// The first text is under way or waits; those behind it are told in the order of their priorities.
TEST(EncoderEngineOrderTest, SmallerPrioritiesComeFirst) {
  const GoldenModel golden("bert", "golden_encoders");
  TestRank rank(cpu_kernels());
  const auto alone = make_single_communicator();
  const Mesh mesh(*alone, {});
  const auto model = open_bert(rank.context, golden.path(), {DType::f32, &mesh});
  EncoderEngine engine(*model, rank.context, mesh, {.context = 16, .max_running = 1});
  std::vector<int32_t> order;
  struct Sink : RequestSink {
    Sink(std::vector<int32_t>& its_order, int32_t its_number) : order(its_order), number(its_number) {}
    void on_tokens(std::span<const TokenEvent>) override {}
    void on_finish(const Finish& finish) override {
      order.push_back(finish.reason == FinishReason::stop ? number : -number);
    }
    std::vector<int32_t>& order;
    int32_t number;
  };
  RequestId cancelled = 0;
  for (const int32_t number : {1, 2, 3, 4, 5}) {
    Request request = embedding_of({1, 2, number});
    request.priority = number == 4 ? -1 : number == 1 ? 7 : 0;
    const RequestId id = engine.submit(std::move(request), std::make_unique<Sink>(order, number));
    if (number == 3) cancelled = id;
  }
  engine.cancel(cancelled);
  std::thread thread([&] {
    engine.drain(std::chrono::seconds(20));
    engine.stop();
  });
  engine.run();
  thread.join();
  EXPECT_EQ(order, (std::vector<int32_t>{-3, 4, 2, 5, 1}));
}

// Of a table whose attention fails at the given calls, from 1.
std::function<void(Stream&, const AttentionArgs&)> fails_at;

Kernels failing_kernels() {
  Kernels kernels = cpu_kernels();
  kernels.attention = [](Stream& stream, const AttentionArgs& args) {
    fails_at(stream, args);
    cpu_kernels().attention(stream, args);
  };
  return kernels;
}

TEST(EncoderEngineFailureTest, AFailedStepEndsItsTextsAlone) {
  const GoldenModel golden("bert", "golden_encoders");
  const Kernels kernels = failing_kernels();
  TestRank rank(kernels);
  const auto alone = make_single_communicator();
  const Mesh mesh(*alone, {});
  const auto model = open_bert(rank.context, golden.path(), {DType::f32, &mesh});
  EncoderEngine engine(*model, rank.context, mesh, {.context = 16, .max_running = 2});
  int calls = 0;
  fails_at = [&](Stream&, const AttentionArgs&) {
    if (++calls == 1) throw Error("the step failed");
  };
  std::vector<std::future<Heard>> asked;
  for (const int32_t id : {1, 2, 3}) asked.push_back(ask(engine, embedding_of({id})));
  std::thread thread([&] {
    engine.drain(std::chrono::seconds(20));
    engine.stop();
  });
  engine.run();
  thread.join();
  for (size_t i = 0; i < asked.size(); ++i) {
    const Heard heard = asked[i].get();
    EXPECT_EQ(heard.finish.reason, i < 2 ? FinishReason::error : FinishReason::stop) << i;
    EXPECT_EQ(heard.finish.error, i < 2 ? "the step failed" : "");
  }
}

// A device that is lost, or memory that is not there, ends the engine.
TEST(EncoderEngineFailureTest, NothingComesOfTheRestWhereNothingGoesOn) {
  const GoldenModel golden("bert", "golden_encoders");
  for (const bool is_lost : {true, false}) {
    const Kernels kernels = failing_kernels();
    TestRank rank(kernels);
    const auto alone = make_single_communicator();
    const Mesh mesh(*alone, {});
    const auto model = open_bert(rank.context, golden.path(), {DType::f32, &mesh});
    EncoderEngine engine(*model, rank.context, mesh, {.context = 16, .max_running = 1});
    fails_at = [&](Stream&, const AttentionArgs&) {
      if (is_lost) throw DeviceLost("an illegal address");
      throw std::bad_alloc();
    };
    auto one = ask(engine, embedding_of({1})), two = ask(engine, embedding_of({2}));
    EXPECT_THROW(engine.run(), std::exception);
    EXPECT_EQ(one.get().finish.reason, FinishReason::error);
    EXPECT_EQ(two.get().finish.reason, FinishReason::error);
    EXPECT_THROW(ask(engine, embedding_of({3})), Busy);
  }
}

TEST(EncoderEngineFailureTest, AFailureOnAMeshEndsEverything) {
  const GoldenModel golden("bert", "golden_encoders");
  std::future<Heard> one;
  fails_at = [](Stream&, const AttentionArgs&) { throw Error("the step failed"); };
  const auto run = [&] {
    run_ranks(2, [&](Communicator& world) {
      const Kernels kernels = world.rank() == 1 ? failing_kernels() : cpu_kernels();
      TestRank rank(kernels);
      const Mesh mesh(world, {.tp = 2});
      const auto model = open_bert(rank.context, golden.path(), {DType::f32, &mesh});
      EncoderEngine engine(*model, rank.context, mesh, {.context = 16});
      if (engine.is_driver()) one = ask(engine, embedding_of({1, 2}));
      engine.run();
    });
  };
  EXPECT_NE(message_of([&] { run(); }).find("the step failed"), std::string::npos);
  EXPECT_EQ(one.get().finish.reason, FinishReason::error);
}

TEST(EncoderEngineRequestsTest, NameWhatIsWrong) {
  const GoldenModel golden("bert", "golden_encoders");
  TestRank rank(cpu_kernels());
  const auto alone = make_single_communicator();
  const Mesh mesh(*alone, {});
  const auto model = open_bert(rank.context, golden.path(), {DType::f32, &mesh});
  EncoderEngine engine(*model, rank.context, mesh, {.context = 4, .max_running = 1, .max_waiting = 1});
  const auto why = [&](Request request) { return message_of([&] { ask(engine, std::move(request)); }); };
  EXPECT_NE(why(greedy({1}, 4)).find("/v1/embeddings"), std::string::npos);
  EXPECT_NE(why(embedding_of({})).find("empty"), std::string::npos);
  EXPECT_NE(why(embedding_of({1, 13})).find("13 is no token"), std::string::npos);
  EXPECT_NE(why(embedding_of({1, 2, 3, 4, 5})).find("5 tokens and the context here is 4"), std::string::npos);
  EXPECT_NE(why(score_of({1})).find("0 is no label"), std::string::npos);
  Request adapted = embedding_of({1});
  adapted.adapter = "poet";
  EXPECT_NE(why(std::move(adapted)).find("no adapter poet"), std::string::npos);
  EXPECT_THROW(engine.load_adapter("poet", "/nowhere", [](const std::string&) {}), Unsupported);
  auto first = ask(engine, embedding_of({1, 2, 3, 4})), second = ask(engine, embedding_of({1}));
  EXPECT_NE(why(embedding_of({1})).find("queue is full"), std::string::npos);
  engine.stop();
  engine.run();
  EXPECT_EQ(first.get().finish.reason, FinishReason::cancelled);
  EXPECT_EQ(second.get().finish.reason, FinishReason::cancelled);
}

}  // namespace
}  // namespace weft
