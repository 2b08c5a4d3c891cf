// Indexer: every rank of a tensor group computes it whole.
#include "weft/nn/indexer.h"

#include <numeric>

#include "weft/autograd/ops/reshape.h"
#include "weft/base/ceil_div.h"

namespace weft {
namespace {

LinearConfig projection(int64_t in, int64_t out, const IndexerConfig& c, const TensorParallel& t) {
  return {.in = in,
          .out = out,
          .init_std = c.init_std,
          .is_shared = t.size() > 1,
          .is_first_holder = t.rank() == 0,
          .base = c.base};
}
LinearConfig wide(LinearConfig config) {
  config.is_wide = true, config.base = BaseFormat::plain;
  return config;
}

}  // namespace

Indexer::Indexer(const std::string& name, const IndexerConfig& c, const RopeTable* rope, const Partition& partition)
    : config_(c),
      rope_(rope),
      query_(name + ".query", projection(c.query_rank, c.heads * c.head_dim, c, partition.tensor)),
      key_(name + ".key", projection(c.hidden, c.head_dim, c, partition.tensor)),
      key_norm_(name + ".key_norm", partition.tensor.replicated_inside({c.head_dim}),
                {.kind = NormKind::layer, .eps = c.norm_eps, .has_bias = true}),
      weights_(name + ".weights", wide(projection(c.hidden, c.heads, c, partition.tensor))) {
  each_param([](Param& p) { p.trainable = false; });
}

Indexer::Index Indexer::operator()(const Given& in) {
  const int64_t rows = in.asked.value.dim(0), tokens = in.all.value.dim(0);
  const Var queries = reshape(query_(in.latents), {rows, config_.heads, config_.head_dim});
  const Var own_keys = reshape(key_norm_(key_(in.all)), {tokens, 1, config_.head_dim});
  const auto [q, keys] =
      rope_ ? apply(*in.all.context, RopeOp{*rope_, {in.asked_positions, in.all_positions}}, queries, own_keys)
            : std::array{queries, own_keys};
  return {{.most = config_.most, .q = q.value, .weights = weights_(in.asked).value, .selected = {}, .key_bits = {}},
          keys};
}

// Each key is a block of its own.
Tensor Indexer::mark(Context& context, const Index& index, std::span<const AttentionSpan> spans) {
  const KeySelection& by = index.selection;
  const Tensor& keys = index.keys.value;
  std::vector<int32_t> blocks(size_t(keys.dim(0)));
  std::iota(blocks.begin(), blocks.end(), 0);
  std::vector<PagedSequence> sequences;
  for (const AttentionSpan& s : spans)
    sequences.push_back({.q_begin = s.q_begin,
                         .q_end = s.q_end,
                         .num_keys = s.k_end - s.k_begin,
                         .blocks = blocks.data() + s.k_begin});
  const Tensor selected = context.empty(DType::i32, {by.q.dim(0), by.most});
  context.kernels.select_keys(context.stream, {.selected = selected,
                                               .q = by.q,
                                               .weights = by.weights,
                                               .keys = keys.reshape({keys.dim(0), 1, 1, keys.dim(2)}),
                                               .sequences = sequences.data(),
                                               .num_sequences = int(sequences.size())});
  const Tensor marks = context.empty(DType::i32, {by.q.dim(0), ceil_div(keys.dim(0), 32)});
  context.kernels.mark_keys(context.stream, marks, selected);
  return marks;
}

}  // namespace weft
