// A decoder whose tokens are spread over ranks gives the loss and every gradient of one rank, dropout included.
#include "weft/train/context_batch.h"
#include "support/rank.h"
#include "weft/comm/threads/run_ranks.h"
#include "weft/models/decoder.h"
#include "weft/train/pass_of.h"

namespace weft {
namespace {

constexpr int32_t kBatchRows = 2, kBatchSeqLen = 12, kBatchVocab = 19;
constexpr int64_t kFirstToken = 240;

ModelConfig config_of(const std::string& family) {
  ModelConfig m = family_defaults(family);
  m.layers = 2, m.hidden = 16, m.heads = 4, m.ffn = 12, m.vocab = kBatchVocab, m.context = kBatchSeqLen;
  m.kv_heads = m.norm == NormKind::rms ? 2 : 4;
  m.dropout = 0.2f, m.init_std = 0.3f;
  complete(m);
  return m;
}

// Two rows in four documents; a document's last token predicts nothing.
Batch sample_batch() {
  Batch batch;
  batch.reset(kBatchRows, kBatchSeqLen);
  batch.sequence_starts = {0, 4, 12, 19, 24};
  for (size_t s = 0; s + 1 < batch.sequence_starts.size(); ++s) {
    const int32_t begin = batch.sequence_starts[s], end = batch.sequence_starts[s + 1];
    for (int32_t t = begin; t < end; ++t) {
      batch.ids[size_t(t)] = (t * 7 + 3) % kBatchVocab, batch.positions[size_t(t)] = t - begin;
      batch.targets[size_t(t)] = t + 1 == end ? -1 : (t * 7 + 10) % kBatchVocab;
    }
    batch.num_targets += end - begin - 1;
  }
  return batch;
}

struct Gradients {
  double loss = 0;
  std::vector<std::vector<double>> of_params;
};

struct ContextCase {
  std::string family;
  ContextMode mode;
  int size, recompute_every;
};

Gradients run(const ContextCase& c, TestRank& rank, Communicator& group, Pass pass, const int32_t* targets) {
  pass.is_training = true, pass.seed = 9, pass.step = 4;
  Decoder model(config_of(c.family));
  if (c.recompute_every > 0) model.set_recompute({RecomputePolicy::What::block, c.recompute_every});
  model.allocate(rank.context, DType::f64);
  model.initialize(rank.context, 5);
  for (Param* p : model.params()) {
    p->grad = rank.context.empty(DType::f64, p->shape);
    p->clear_grad();
  }
  Tape tape;
  rank.context.tape = &tape;
  Brackets none;
  const Var loss = model.loss(rank.context, pass, {}, targets, 1, none);
  const Tensor dy = rank.context.empty_like(loss.value);
  rank.context.kernels.fill(rank.context.stream, dy, 1);
  tape.backward(loss, dy);
  rank.context.tape = nullptr;
  group.all_reduce(loss.value);
  Gradients result{TestRank::get(loss.value, 0), {}};
  for (Param* p : model.params()) {
    if (!p->accumulate_next()) rank.context.kernels.fill(rank.context.stream, p->grad, 0);
    group.all_reduce(p->grad);
    std::vector<double>& values = result.of_params.emplace_back();
    for (int64_t i = 0; i < p->grad.numel(); ++i) values.push_back(TestRank::get(p->grad, i));
  }
  return result;
}

class ContextBatchTest : public testing::TestWithParam<ContextCase> {};
INSTANTIATE_TEST_SUITE_P(
    Cases, ContextBatchTest,
    testing::Values(ContextCase{"gpt2", ContextMode::ring, 2, 0}, ContextCase{"llama", ContextMode::ring, 3, 1},
                    ContextCase{"gpt2", ContextMode::ulysses, 3, 1}, ContextCase{"llama", ContextMode::ulysses, 2, 0},
                    ContextCase{"gpt2", ContextMode::allgather, 2, 1},
                    ContextCase{"llama", ContextMode::allgather, 3, 0}),
    [](const auto& test) { return fmt::format("{}_{}_{}", test.param.family, test.param.size, test.index); });

TEST_P(ContextBatchTest, EqualsOneRank) {
  const ContextCase& c = GetParam();
  const Batch whole = sample_batch();
  Gradients want, got;
  run_ranks(1, [&](Communicator& group) {
    TestRank rank(reference_kernels());
    SequenceSpans spans;
    const TokenSpan tokens{0, kBatchRows * kBatchSeqLen, kFirstToken};
    Pass pass = pass_of(whole, kFirstToken, spans);
    pass.tokens = {&tokens, 1};
    want = run({c.family, c.mode, 1, 0}, rank, group, pass, whole.targets.data());
  });
  run_ranks(c.size, [&](Communicator& group) {
    TestRank rank(reference_kernels());
    ContextParallel parallel{group, c.mode};
    ContextPlan plan({kBatchRows, kBatchSeqLen, group.rank(), group.size()});
    plan.build(whole.sequence_starts, kFirstToken);
    Batch part;
    take_part(whole, plan.layout(), part);
    std::vector<TokenSpan> tokens = plan.layout().token_spans();
    for (TokenSpan& span : tokens) span.first_token += kFirstToken;
    Pass pass = pass_of(part, plan, parallel);
    pass.tokens = tokens;
    Gradients mine = run(c, rank, group, pass, part.targets.data());
    if (group.rank() == 0) got = std::move(mine);
  });
  EXPECT_NEAR(got.loss, want.loss, 1e-10 * want.loss);
  for (size_t p = 0; p < want.of_params.size(); ++p) {
    double largest = 1e-3;
    for (const double x : want.of_params[p]) largest = std::max(largest, std::abs(x));
    for (size_t i = 0; i < want.of_params[p].size(); ++i) {
      ASSERT_NEAR(got.of_params[p][i], want.of_params[p][i], 1e-10 * largest)
          << "parameter " << p << ", element " << i;
    }
  }
}

TEST(TakePartTest, PartsHoldEveryTargetOnce) {
  const Batch whole = sample_batch();
  int64_t num_targets = 0;
  std::vector<int32_t> ids(whole.ids.size(), -1);
  for (int r = 0; r < 3; ++r) {
    const ContextLayout layout(kBatchRows, kBatchSeqLen, r, 3);
    Batch part;
    take_part(whole, layout, part);
    num_targets += part.num_targets;
    const std::vector<int64_t> tokens = layout.tokens();
    ASSERT_EQ(part.ids.size(), tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) ids[size_t(tokens[i])] = part.ids[i];
  }
  EXPECT_EQ(num_targets, whole.num_targets);
  EXPECT_EQ(ids, whole.ids);
}

}  // namespace
}  // namespace weft
