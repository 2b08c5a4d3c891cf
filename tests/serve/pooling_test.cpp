// Vectors of texts: the last hidden state or means of them, the same bits in any company and on any mesh.
#include <cmath>

#include "serve/company.h"
#include "serve/engine_on_mesh.h"
#include "support/message_of.h"
#include "weft/comm/single/single.h"

namespace weft {
namespace {

const std::vector<int32_t> kPrompt{5, 7, 11, 2, 30, 8, 9};
constexpr auto kLength = int64_t(7);

class PoolingTest : public testing::TestWithParam<Pooling> {
 protected:
  PoolingTest() { initial_values(11)(model_); }

  // By plain loops over what the head would read.
  std::vector<double> want(bool normalises) {
    std::vector<int32_t> positions(kPrompt.size());
    for (size_t i = 0; i < positions.size(); ++i) positions[i] = int32_t(i);
    const AttentionSpan span{.q_end = int32_t(kLength), .k_end = int32_t(kLength)};
    const Tensor hidden =
        model_
            .before_head({.ids = kPrompt.data(),
                          .num_tokens = kLength,
                          .attention = {.positions = positions.data(), .spans = &span, .num_spans = 1}})
            .hidden;
    const int64_t width = hidden.dim(1);
    std::vector<double> vector(size_t(width), 0.0);
    double weights = 0, squares = 0;
    for (int64_t t = 0; t < kLength; ++t) {
      const double weight = GetParam() == Pooling::last    ? double(t + 1 == kLength)
                            : GetParam() == Pooling::first ? double(t == 0)
                            : GetParam() == Pooling::mean  ? 1
                                                           : double(t + 1);
      weights += weight;
      for (int64_t i = 0; i < width; ++i) vector[size_t(i)] += weight * double(hidden.data<float>()[t * width + i]);
    }
    for (double& x : vector) x /= weights, squares += x * x;
    for (double& x : vector) x /= normalises ? std::sqrt(squares) : 1;
    return vector;
  }

  TestRank rank_{cpu_kernels(), 2};
  const std::unique_ptr<Communicator> alone_ = make_single_communicator();
  const Mesh mesh_{*alone_, {}};
  ForwardModel model_{rank_.context, mesh_, small_config(), DType::f32};
};

INSTANTIATE_TEST_SUITE_P(Ways, PoolingTest,
                         testing::Values(Pooling::last, Pooling::first, Pooling::mean, Pooling::weighted_mean),
                         [](const auto& test) { return std::string(name_of(test.param)); });

TEST_P(PoolingTest, IsThatOfPlainLoops) {
  for (const bool normalises : {true, false}) {
    const std::vector<double> expected = want(normalises);
    std::vector<float> first_bits;
    for (const int64_t tokens_per_step : {1, 3, 256}) {
      with_engine(model_, {.kv_blocks = 64, .tokens_per_step = tokens_per_step}, [&](Engine& engine) {
        auto beside = ask(engine, greedy({1, 2, 3}, 20));
        const auto asked = [&] {
          Request request = embedding_of(kPrompt, GetParam());
          request.normalises = normalises;
          return ask(engine, std::move(request)).get();
        };
        const Heard first = asked(), again = asked();
        ASSERT_EQ(first.embedding.size(), expected.size());
        for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(first.embedding[i], expected[i], 1e-5);
        if (first_bits.empty()) first_bits = first.embedding;
        EXPECT_EQ(first.embedding, first_bits);
        EXPECT_EQ(again.embedding, first.embedding);
        EXPECT_EQ(first.finish.reason, FinishReason::stop);
        EXPECT_EQ(first.finish.usage.prompt_tokens, kLength);
        EXPECT_TRUE(first.tokens.empty());
        EXPECT_EQ(beside.get().tokens.size(), 20u);
      });
    }
  }
}

// Blocks for one or two of these at a time: some lose theirs on the way, and what was pooled of them stays.
TEST_P(PoolingTest, GivesTheSameBitsToThoseWhoLoseTheirBlocks) {
  const auto prompt = [](int i) {
    std::vector<int32_t> ids;
    for (int t = 0; t < 20 + i; ++t) ids.push_back((t * t + 7 * i) % 40);
    return ids;
  };
  std::vector<std::vector<float>> alone, together;
  with_engine(model_, {.kv_blocks = 64}, [&](Engine& engine) {
    for (int i = 0; i < 8; ++i) alone.push_back(ask(engine, embedding_of(prompt(i), GetParam())).get().embedding);
  });
  with_engine(model_, {.kv_blocks = 18, .block_tokens = 4, .tokens_per_step = 5}, [&](Engine& engine) {
    std::vector<std::future<Heard>> answers, heard;
    for (int i = 0; i < 4; ++i) answers.push_back(ask(engine, greedy({1, 2, 3 + i}, 40)));
    for (int i = 0; i < 8; ++i) heard.push_back(ask(engine, embedding_of(prompt(i), GetParam())));
    for (auto& one : heard) together.push_back(one.get().embedding);
    for (auto& one : answers) EXPECT_EQ(one.get().tokens.size(), 40u);
  });
  EXPECT_EQ(together, alone);
}

TEST_P(PoolingTest, IsTheSameOnMeshes) {
  const std::vector<double> expected = want(true);
  for (const MeshShape& mesh : {MeshShape{.tp = 2}, MeshShape{.pp = 2}, MeshShape{.cp = 2}})
    with_engine_on(small_config(), mesh, {.kv_blocks = 64, .tokens_per_step = 4}, [&](Engine& engine) {
      const Heard heard = ask(engine, embedding_of(kPrompt, GetParam())).get();
      ASSERT_EQ(heard.embedding.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_NEAR(heard.embedding[i], expected[i], 1e-4) << name_of_mesh(mesh);
    });
}

// Logits of chosen tokens behind a prompt, beside others.
TEST(WeighingTest, GivesTheLogitsBehindAPrompt) {
  const std::vector<int32_t> tokens{3, 0, 39};
  const Logits all = logits_on(small_config(), {}, initial_values(11), kPrompt);
  for (const MeshShape& mesh : {MeshShape{}, MeshShape{.tp = 2}, MeshShape{.pp = 2}})
    for (const int64_t tokens_per_step : {3, 256})
      with_engine_on(small_config(), mesh, {.kv_blocks = 64, .tokens_per_step = tokens_per_step},
                     [&](Engine& engine) {
                       auto beside = ask(engine, greedy({1, 2, 3}, 20));
                       Request request = embedding_of(kPrompt);
                       request.kind = Request::Kind::weigh, request.weighed = tokens;
                       const Heard heard = ask(engine, std::move(request)).get();
                       ASSERT_EQ(heard.embedding.size(), tokens.size());
                       for (size_t i = 0; i < tokens.size(); ++i)
                         EXPECT_NEAR(heard.embedding[i], all.back()[size_t(tokens[i])], 1e-4);
                       EXPECT_TRUE(heard.tokens.empty());
                       EXPECT_EQ(beside.get().tokens.size(), 20u);
                       request = embedding_of(kPrompt);
                       request.kind = Request::Kind::weigh, request.weighed = {kCompanyVocab};
                       EXPECT_THROW(ask(engine, std::move(request)), UsageError);
                     });
}

// Scores of labels in place of logits of tokens, which nothing else is asked for.
TEST(WeighingTest, GivesTheScoresOfAText) {
  ModelConfig config = small_config();
  config.labels = 3;
  complete(config);
  const Logits all = logits_on(config, {}, initial_values(11), kPrompt);
  ASSERT_EQ(all.back().size(), 3u);
  for (const MeshShape& mesh : {MeshShape{}, MeshShape{.tp = 2}, MeshShape{.pp = 2}, MeshShape{.cp = 2}})
    for (const int64_t tokens_per_step : {3, 256})
      with_engine_on(config, mesh, {.kv_blocks = 64, .tokens_per_step = tokens_per_step}, [&](Engine& engine) {
        EXPECT_EQ(engine.limits().labels, 3);
        const auto asked = [&](std::vector<int32_t> labels) {
          Request request = embedding_of(kPrompt);
          request.kind = Request::Kind::weigh, request.weighed = std::move(labels);
          return ask(engine, std::move(request));
        };
        auto beside = asked({1});
        const Heard heard = asked({0, 1, 2}).get();
        ASSERT_EQ(heard.embedding.size(), 3u);
        for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(heard.embedding[i], all.back()[i], 1e-4) << name_of_mesh(mesh);
        EXPECT_NEAR(beside.get().embedding.front(), heard.embedding[1], 1e-4);
        EXPECT_NE(message_of([&] { asked({3}); }).find("3 is no label of this model"), std::string::npos);
        EXPECT_NE(message_of([&] {
                    ask(engine, greedy({1, 2, 3}, 20));
                  }).find("scores texts and writes none"),
                  std::string::npos);
      });
}

}  // namespace
}  // namespace weft
