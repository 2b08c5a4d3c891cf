// Attention over ranks equals attention on one: results and gradients, for every way, size, cut, grouping and
// dropout.
#include "weft/parallel/context/context_attention.h"

#include <mutex>

#include "parallel/context_setup.h"
#include "support/count_allocations.h"
#include "support/rank.h"
#include "weft/comm/threads/run_ranks.h"

namespace weft {
namespace {

struct Backend {
  const char* name;
  const Kernels& (*table)();
  DType dtype;
  double tolerance;  // of the largest element
};

struct Heads {
  int64_t heads, kv_heads;
};

struct Case {
  ContextMode mode;
  Heads heads;
  std::vector<int32_t> starts;
  float dropout;
  bool has_sinks = false;
  int chunk = 0;
};

constexpr int64_t kDim = 8, kTokens = kContextRows * kContextSeqLen, kFirstToken = 12345;
constexpr float kScale = 0.4f;

DropoutKey dropout_of(const Case& c) { return {.p = c.dropout, .seed = 3, .stream = 8}; }

// y, dq, dk, dv of all tokens, and the sum over ranks of dsinks.
using Results = std::array<std::vector<double>, 5>;

// The rows of normal deviates that `tokens` have among all.
Tensor rows_of(TestRank& rank, DType dtype, int64_t heads, std::string_view name,
               const std::vector<int64_t>& tokens) {
  const Tensor all = rank.normal(dtype, {kTokens, heads, kDim}, name);
  const Tensor part = rank.context.empty(dtype, {int64_t(tokens.size()), heads, kDim});
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Tensor row = all.slice_rows(tokens[i], 1);
    std::memcpy(part.slice_rows(int64_t(i), 1).raw(), row.raw(), row.bytes());
  }
  return part;
}

// Runs forward and backward over this rank's tokens and writes their rows of `results`.
void run(TestRank& rank, const Case& c, DType dtype, const std::vector<int64_t>& tokens, Results& results,
         const std::function<Var(const Var&, const Var&, const Var&, const AttentionSinks&)>& attend) {
  Param sinks("sinks", Shape{c.heads.heads}, Init::zeros());
  sinks.value = rank.normal(dtype, sinks.shape, "sinks");
  sinks.grad = rank.context.empty(Context::wide(dtype), sinks.shape);
  Tape tape;
  rank.context.tape = &tape;
  const Var q = tape.leaf(rank.context, rows_of(rank, dtype, c.heads.heads, "q", tokens));
  const Var k = tape.leaf(rank.context, rows_of(rank, dtype, c.heads.kv_heads, "k", tokens));
  const Var v = tape.leaf(rank.context, rows_of(rank, dtype, c.heads.kv_heads, "v", tokens));
  const Var y = attend(q, k, v, {c.has_sinks ? &sinks : nullptr});
  tape.backward(y, rows_of(rank, dtype, c.heads.heads, "dy", tokens));
  rank.context.tape = nullptr;
  if (sinks.has_grad()) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    for (int64_t i = 0; i < c.heads.heads; ++i) results[4][size_t(i)] += TestRank::get(sinks.grad, i);
  }
  const std::array<Tensor, 4> got{y.value, tape.grad(q), tape.grad(k), tape.grad(v)};
  for (size_t r = 0; r < got.size(); ++r) {
    const int64_t row = got[r].numel() / got[r].dim(0);
    for (size_t i = 0; i < tokens.size(); ++i) {
      for (int64_t e = 0; e < row; ++e) {
        results[r][size_t(tokens[i] * row + e)] = TestRank::get(got[r], int64_t(i) * row + e);
      }
    }
  }
}

Results empty_results(const Heads& h) {
  const size_t q = size_t(kTokens * h.heads * kDim), k = size_t(kTokens * h.kv_heads * kDim);
  return {std::vector<double>(q, NAN), std::vector<double>(q, NAN), std::vector<double>(k, NAN),
          std::vector<double>(k, NAN), std::vector<double>(size_t(h.heads), 0)};
}

Results on_one_rank(const Case& c, const Backend& backend) {
  TestRank rank(backend.table());
  Results results = empty_results(c.heads);
  const std::vector<AttentionSpan> spans = causal_spans(c.starts, kFirstToken);
  const AttentionPlan plan{.spans = spans.data(), .num_spans = int(spans.size())};
  run(rank, c, backend.dtype, ContextLayout(1, kTokens, 0, 1).tokens(), results,
      [&](const Var& q, const Var& k, const Var& v, const AttentionSinks& sinks) {
        return apply(rank.context,
                     AttentionOp{.plan = plan,
                                 .layer = 0,
                                 .rule = {.scale = kScale, .chunk = c.chunk},
                                 .dropout = dropout_of(c),
                                 .sinks = sinks},
                     q, k, v);
      });
  return results;
}

Results on_ranks(int size, const Case& c, const Backend& backend) {
  Results results = empty_results(c.heads);
  run_ranks(size, [&](Communicator& group) {
    TestRank rank(backend.table());
    ContextParallel parallel{group, c.mode};
    ContextPlan plan({kContextRows, kContextSeqLen, group.rank(), group.size()});
    plan.build(c.starts, kFirstToken);
    run(rank, c, backend.dtype, plan.layout().tokens(), results,
        [&](const Var& q, const Var& k, const Var& v, const AttentionSinks& sinks) {
          return context_attention(q, k, v,
                                   {.parallel = parallel,
                                    .plan = plan,
                                    .rule = {.scale = kScale, .chunk = c.chunk},
                                    .dropout = dropout_of(c),
                                    .sinks = sinks});
        });
  });
  return results;
}

std::string name_of(ContextMode mode) {
  return mode == ContextMode::ring ? "ring" : mode == ContextMode::ulysses ? "ulysses" : "allgather";
}

void expect_same(const Results& got, const Results& want, double tolerance) {
  for (size_t r = 0; r < want.size(); ++r) {
    double largest = 0;
    for (const double x : want[r]) largest = std::max(largest, std::abs(x));
    // Gradients of sinks are sums over all rows, whose terms cancel and have the rounding of each.
    const double most = r == 4 ? 4 * tolerance : tolerance;
    for (size_t i = 0; i < want[r].size(); ++i) {
      ASSERT_NEAR(got[r][i], want[r][i], most * largest)
          << "element " << i << " of " << std::array{"y", "dq", "dk", "dv", "dsinks"}[r];
    }
  }
}

class ContextAttentionTest : public testing::TestWithParam<std::tuple<ContextMode, int, Backend>> {};

INSTANTIATE_TEST_SUITE_P(
    All, ContextAttentionTest,
    testing::Combine(testing::Values(ContextMode::ring, ContextMode::ulysses, ContextMode::allgather),
                     testing::Values(1, 2, 3, 4),
                     testing::Values(Backend{"reference_f64", reference_kernels, DType::f64, 1e-10},
                                     Backend{"cpu_f32", cpu_kernels, DType::f32, 1e-5},
                                     Backend{"cpu_bf16", cpu_kernels, DType::bf16, 2e-2})),
    [](const auto& test) {
      return fmt::format("{}_{}_{}", name_of(std::get<0>(test.param)), std::get<1>(test.param),
                         std::get<2>(test.param).name);
    });

// Heads that divide among 2 and 3 ranks; that leave groups of heads cut in two; fewer than ranks.
constexpr Heads kHeads[] = {{6, 6}, {8, 2}, {2, 1}};

TEST_P(ContextAttentionTest, EqualsOneRank) {
  const auto& [mode, size, backend] = GetParam();
  for (const Heads& heads : kHeads)
    for (const auto& starts : {whole_rows(), cut_rows()})
      for (const auto& [dropout, chunk] : {std::pair(0.0f, 0), {0.2f, 0}, {0.2f, 5}}) {
        SCOPED_TRACE(fmt::format("{} heads, {} key/value heads, {} sequences, dropout {}, chunk {}", heads.heads,
                                 heads.kv_heads, starts.size() - 1, dropout, chunk));
        const Case c{mode, heads, starts, dropout, starts.size() > 3 || dropout > 0, chunk};
        ASSERT_NO_FATAL_FAILURE(expect_same(on_ranks(size, c, backend), on_one_rank(c, backend), backend.tolerance));
      }
}

class ContextModeTest : public testing::TestWithParam<ContextMode> {};
INSTANTIATE_TEST_SUITE_P(Modes, ContextModeTest,
                         testing::Values(ContextMode::ring, ContextMode::ulysses, ContextMode::allgather),
                         [](const auto& test) { return name_of(test.param); });

TEST_P(ContextModeTest, RunsItsBackwardWithoutAGradient) {
  run_ranks(3, [](Communicator& group) {
    TestRank rank(cpu_kernels());
    ContextParallel parallel{group, GetParam()};
    ContextPlan plan({kContextRows, kContextSeqLen, group.rank(), group.size()});
    plan.build(whole_rows(), 0);
    Tape tape;
    rank.context.tape = &tape;
    const Shape shape{plan.layout().num_tokens(), 4, kDim};
    const Var x = tape.leaf(rank.context, rank.normal(DType::f32, shape, "x"));
    const Var y = context_attention(x, x, x, {.parallel = parallel, .plan = plan, .rule = {.scale = kScale}});
    if (group.rank() == 1) tape.seed(y, rank.normal(DType::f32, shape, "dy"));
    tape.backward();
    for (int64_t i = 0; i < x.value.numel(); ++i) check(std::isfinite(TestRank::get(tape.grad(x), i)), "not finite");
  });
}

TEST_P(ContextModeTest, CountsWithoutData) {
  run_ranks(1, [](Communicator& group) {
    ThreadTeam team(1);
    Allocator memory(Device::meta);
    Stream stream(team, memory);
    Tape tape;
    Context context{meta_kernels(), stream, &tape};
    ContextParallel parallel{group, GetParam()};
    ContextPlan plan({kContextRows, kContextSeqLen, 0, 1});
    plan.build(cut_rows(), 0);
    const Var x = tape.leaf(context, context.empty(DType::bf16, {plan.layout().num_tokens(), 4, kDim}));
    const Var y = context_attention(x, x, x, {.parallel = parallel, .plan = plan, .rule = {.scale = kScale}});
    tape.backward(y, context.empty_like(y.value));
    check(stream.cost.flops > 0, "nothing was counted");
  });
}

TEST_P(ContextModeTest, AllocatesNothingInTheSteadyState) {
  run_ranks(2, [](Communicator& group) {
    TestRank rank(cpu_kernels());
    ContextParallel parallel{group, GetParam()};
    ContextPlan plan({kContextRows, kContextSeqLen, group.rank(), group.size()});
    Tape tape;
    const Shape q_shape{plan.layout().num_tokens(), 4, kDim}, k_shape{plan.layout().num_tokens(), 1, kDim};
    const Tensor q = rank.normal(DType::bf16, q_shape, "q"), k = rank.normal(DType::bf16, k_shape, "k");
    const std::vector<int32_t> cuts[] = {whole_rows(), cut_rows()};
    const auto step = [&](size_t i) {
      plan.build(cuts[i % 2], 0);
      tape.clear();
      rank.context.tape = &tape;
      const Var vq = tape.leaf(rank.context, q), vk = tape.leaf(rank.context, k);
      const Var y = context_attention(vq, vk, vk, {.parallel = parallel, .plan = plan, .rule = {.scale = kScale}});
      tape.backward(y, q);
      rank.stream.level_scratch();
    };
    // A sender that gets further ahead than ever before finds no free message: how far is chance, but it is bounded.
    constexpr int kMostRounds = 20;
    int64_t allocations = -1;
    for (int round = 0; round < kMostRounds && allocations != 0; ++round) {
      group.barrier();
      const int64_t before = num_allocations;
      group.barrier();
      for (size_t i = 0; i < 6; ++i) step(i);
      group.barrier();
      allocations = num_allocations - before;
      group.barrier();
    }
    if (allocations != 0) throw Error("{} allocations", allocations);
  });
}

}  // namespace
}  // namespace weft
