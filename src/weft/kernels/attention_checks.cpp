// Shape checks of attention and of what is done to its heads: positions, rows of a pool, keys that are selected.
#include "weft/kernels/checked_op.h"

namespace weft::shapes {
namespace {

// Of rows of q and keys in the blocks of a pool.
void check_sequences(const Op& op, const Tensor& q, const Tensor& pool, std::span<const PagedSequence> sequences) {
  op.that(sequences.empty() || sequences.data(), "num_sequences is not 0, but sequences is null");
  const int64_t num_blocks = pool.dim(0), block_tokens = pool.dim(1);
  int32_t row = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const PagedSequence& s = sequences[i];
    if (s.q_begin != row || s.q_end < s.q_begin)
      throw Error("{}: sequence {} has rows {} to {}, but must begin with row {}", op.name, i, s.q_begin, s.q_end,
                  row);
    if (s.num_keys < s.q_end - s.q_begin)
      throw Error("{}: sequence {} has {} rows, but only {} keys", op.name, i, s.q_end - s.q_begin, s.num_keys);
    row = s.q_end;
    op.indices(q, "blocks", s.blocks, (s.num_keys + block_tokens - 1) / block_tokens, 0, num_blocks);
  }
  if (row != q.dim(0)) throw Error("{}: the sequences have {} rows, but q has {}", op.name, row, q.dim(0));
}

void check_spans(const Op& op, const AttentionShape& s, int64_t num_queries, int64_t num_keys) {
  op.that(s.num_spans == 0 || s.spans, "num_spans is not 0, but spans is null");
  int32_t row = 0;
  for (int i = 0; i < s.num_spans; ++i) {
    const AttentionSpan& a = s.spans[i];
    if (a.q_begin > a.q_end || a.k_begin > a.k_end)
      throw Error("{}: span {} ends before it begins (query rows {} to {}, key rows {} to {})", op.name, i, a.q_begin,
                  a.q_end, a.k_begin, a.k_end);
    if (a.q_begin < row || a.q_end > num_queries)
      throw Error("{}: span {} covers query rows {} to {}, but must lie in {} to {}", op.name, i, a.q_begin, a.q_end,
                  row, num_queries);
    if (a.k_begin < 0 || a.k_end > num_keys)
      throw Error("{}: span {} covers key rows {} to {}, but there are {}", op.name, i, a.k_begin, a.k_end, num_keys);
    if (a.lead < 0) throw Error("{}: the lead of span {} is {}, but must be at least 0", op.name, i, a.lead);
    if (a.first_key < 0 || a.first_key + int64_t(a.k_end - a.k_begin) > kMaxKeys)
      throw Error("{}: the keys of span {} are at positions {} to {}, but a sequence has at most {}", op.name, i,
                  a.first_key, a.first_key + int64_t(a.k_end - a.k_begin), kMaxKeys);
    row = a.q_end;
  }
}

void check_heads_and_scores(const Op& op, const AttentionShape& s) {
  if (s.num_heads < 0 || s.num_kv_heads < 0 || (s.num_kv_heads ? s.num_heads % s.num_kv_heads : s.num_heads) != 0)
    throw Error("{}: {} query heads cannot share {} key/value heads evenly", op.name, s.num_heads, s.num_kv_heads);
  op.that(s.scale != 0, "the scale of the scores is 0; it is usually 1 / sqrt(head_dim)");
  op.that(s.softcap >= 0, "the cap of the scores is below 0");
  op.that(s.window >= 0, "the window is below 0");
}

void check_qkv(const Op& op, const Tensor& q, const Tensor& k, const Tensor& v, const AttentionShape& s) {
  op.rank("q", q, 3);
  op.rank("k", k, 3);
  op.shape("q", q, {q.dim(0), s.num_heads, s.head_dim});
  op.shape("k", k, {k.dim(0), s.num_kv_heads, s.head_dim});
  op.dtype("k", k, q.dtype());
  op.shape("v", v, {k.dim(0), s.num_kv_heads, s.values_dim()});
  op.dtype("v", v, q.dtype());
  check_heads_and_scores(op, s);
  if (s.first_head < 0 || (s.total_heads && s.first_head + s.num_heads > s.total_heads))
    throw Error("{}: heads {} to {} are not among the layer's {}", op.name, s.first_head, s.first_head + s.num_heads,
                s.total_heads);
  check_spans(op, s, q.dim(0), k.dim(0));
}

void check_key_bits(const Op& op, const Tensor& bits, const Tensor& q, const Tensor& k, const Tensor& bias) {
  op.absent("bias", bias, "keys are selected");
  op.dtype("key_bits", bits, DType::i32);
  op.dims("key_bits", bits, {q.dim(0), (k.dim(0) + 31) / 32});
  op.that(bits.numel() <= std::numeric_limits<int32_t>::max(), "key_bits are more words than 31 bits count");
}

void check_position_bias(const Op& op, const Tensor& bias, const Tensor& q, const AttentionShape& s) {
  op.rank("bias", bias, 2);
  op.statistic("bias", bias, bias.numel(), q);
  if (bias.dim(0) != s.num_heads || bias.dim(1) % 2 == 0)
    throw Error("{}: bias is {}, but must have {} rows and an odd number of columns", op.name, bias.shape(),
                s.num_heads);
}

void check_output(const Op& op, std::string_view what, const Tensor& t, const Tensor& q, const AttentionShape& s) {
  op.shape(what, t, {q.dim(0), s.num_heads, s.values_dim()});
  op.dtype(what, t, q.dtype());
}

}  // namespace

void check_attention(const AttentionArgs& args) {
  const Op op{"attention"};
  check_qkv(op, args.q, args.k, args.v, args.shape);
  op.probability(args.dropout.p);
  check_output(op, "y", args.y, args.q, args.shape);
  if (args.bias) check_position_bias(op, args.bias, args.q, args.shape);
  if (args.key_bits) check_key_bits(op, args.key_bits, args.q, args.k, args.bias);
  if (args.lse) op.statistic("lse", args.lse, args.q.dim(0) * args.shape.num_heads, args.q);
}

void check_attention_backward(const AttentionBackwardArgs& args) {
  const Op op{"attention_backward"};
  check_qkv(op, args.q, args.k, args.v, args.shape);
  op.probability(args.dropout.p);
  op.like("dq", args.dq, args.q);
  op.like("dk", args.dk, args.k);
  op.like("dv", args.dv, args.v);
  check_output(op, "dy", args.dy, args.q, args.shape);
  check_output(op, "y", args.y, args.q, args.shape);
  op.statistic("lse", args.lse, args.q.dim(0) * args.shape.num_heads, args.q);
  if (args.key_bits) check_key_bits(op, args.key_bits, args.q, args.k, args.bias);
  if (!args.bias) return;
  check_position_bias(op, args.bias, args.q, args.shape);
  op.like("dbias", args.dbias, args.bias);
}

void check_attention_merge(const Tensor& acc, const Tensor& acc_lse, const Tensor& part, const Tensor& part_lse) {
  const Op op{"attention_merge"};
  op.rank("part", part, 3);
  op.shape("acc", acc, part.shape());
  op.statistic("acc", acc, part.numel(), part);
  op.shape("acc_lse", acc_lse, {part.dim(1), part.dim(0)});
  op.statistic("acc_lse", acc_lse, acc_lse.numel(), part);
  op.like("part_lse", part_lse, acc_lse);
}

void check_attention_sinks(std::string_view name, const Tensor& y, const Tensor& lse, const Tensor& sinks) {
  const Op op{name};
  op.rank("y", y, 3);
  op.shape("lse", lse, {y.dim(1), y.dim(0)});
  op.statistic("lse", lse, lse.numel(), y);
  op.shape("sinks", sinks, {y.dim(1)});
  op.dtype("sinks", sinks, y.dtype());
}

void check_attention_sinks_backward(const Tensor& dsinks, const Tensor& dy, const Tensor& y, const Tensor& lse,
                                    const Tensor& sinks) {
  const Op op{"attention_sinks_backward"};
  check_attention_sinks(op.name, y, lse, sinks);
  op.like("dy", dy, y);
  op.statistic("dsinks", dsinks, sinks.numel(), y);
}

void check_paged_attention(const PagedAttentionArgs& args) {
  const Op op{"paged_attention"};
  op.rank("q", args.q, 3);
  op.rank("y", args.y, 3);
  op.pool("keys", args.keys, args.codes);
  if (args.values) op.pool("values", args.values, args.codes);
  const int64_t num_rows = args.q.dim(0), num_blocks = args.keys.dim(0), block_tokens = args.keys.dim(1);
  const auto of_width = [&](int64_t dim) {
    return Shape{num_blocks, block_tokens, args.keys.dim(2), row_width(args.codes, dim)};
  };
  op.dims("keys", args.keys, of_width(args.q.dim(2)));
  if (args.values) op.dims("values", args.values, of_width(args.y.dim(2)));
  if (args.values) op.dtype("values", args.values, args.keys.dtype());
  op.that(args.values || args.y.dim(2) <= args.q.dim(2), "values that are elements of keys are not more than these");
  op.shape("y", args.y, {num_rows, args.q.dim(1), args.y.dim(2)});
  op.dtype("y", args.y, args.q.dtype());
  op.that(block_tokens > 0, "a block has room for no token");
  if (args.sinks) op.shape("sinks", args.sinks, {args.q.dim(1)}), op.dtype("sinks", args.sinks, args.q.dtype());
  check_heads_and_scores(op, shape_of(args));
  if (args.selected) {
    op.dims("selected", args.selected, {num_rows, args.selected.cols()});
    op.dtype("selected", args.selected, DType::i32);
    op.that(args.window == 0, "there is no window where keys are selected");
  }
  check_sequences(op, args.q, args.keys, {args.sequences, size_t(args.num_sequences)});
}

void check_select_keys(const SelectKeysArgs& args) {
  const Op op{"select_keys"};
  op.rank("q", args.q, 3);
  op.pool("keys", args.keys, args.codes);
  const int64_t num_rows = args.q.dim(0);
  op.dims("keys", args.keys, {args.keys.dim(0), args.keys.dim(1), 1, row_width(args.codes, args.q.dim(2))});
  op.that(args.keys.dim(1) > 0, "a block has room for no token");
  op.shape("weights", args.weights, {num_rows, args.q.dim(1)});
  op.statistic("weights", args.weights, args.weights.numel(), args.q);
  op.that(args.selected && args.selected.shape().rank() == 2, "selected has a row of keys for each row of q");
  op.dims("selected", args.selected, {num_rows, args.selected.dim(1)});
  op.dtype("selected", args.selected, DType::i32);
  op.that(args.selected.dim(1) > 0, "at least one key is selected");
  check_sequences(op, args.q, args.keys, {args.sequences, size_t(args.num_sequences)});
}

void check_mark_keys(const Tensor& bits, const Tensor& selected) {
  const Op op{"mark_keys"};
  for (const auto& [what, t] : {Named{"bits", bits}, Named{"selected", selected}}) {
    op.that(t && t.shape().rank() == 2, "bits and selected have a row for each row of queries");
    op.dtype(what, t, DType::i32);
  }
  op.that(bits.dim(0) == selected.dim(0), "bits and selected are of the same rows");
}

void check_place_rows(const PlaceRowsArgs& args) {
  const auto& [pool, x, rows, codes] = args;
  const Op op{"place_rows"};
  op.present("x", x);
  op.pool("pool", pool, codes);
  op.that(pool.shape().rank() == x.shape().rank() + 1, "the pool must have a dim more than x");
  Shape row = x.shape();
  row[-1] = row_width(codes, row[-1]);
  op.that(row.rank() > 1 && std::ranges::equal(pool.shape().dims().subspan(2), row.dims().subspan(1)),
          "rows of the pool are not like those of x");
  op.indices(x, "rows", rows, x.dim(0), 0, pool.dim(0) * pool.dim(1));
}

void check_rope(const RopeArgs& args) {
  const Op op{"rope"};
  op.rank("x", args.x, 3);
  op.rank("cos", args.cos, 2);
  op.statistic("cos", args.cos, args.cos.numel(), args.x);
  op.like("sin", args.sin, args.cos);
  if (2 * args.cos.dim(1) > args.x.dim(2))
    throw Error("rope: the tables rotate {} elements, but a head has {}", 2 * args.cos.dim(1), args.x.dim(2));
  if (args.factors) op.statistic("factors", args.factors, args.cos.dim(0), args.x);
  op.indices(args.x, "positions", args.positions, args.x.dim(0), 0, args.cos.dim(0));
}

void check_join_heads(std::string_view name, const Tensor& y, const Tensor& shared, const Tensor& own) {
  const Op op{name};
  op.rank("shared", shared, 2);
  op.rank("own", own, 3);
  op.shape("y", y, {shared.dim(0), own.dim(1), shared.dim(1) + own.dim(2)});
  op.shape("own", own, {shared.dim(0), own.dim(1), own.dim(2)});
  op.dtype("own", own, y.dtype());
  op.dtype("shared", shared, y.dtype());
}

void check_part_of_heads(std::string_view name, const Tensor& by_token, const Tensor& by_head, int64_t first) {
  const Op op{name};
  op.rank("heads by token", by_token, 3);
  op.rank("heads one by one", by_head, 3);
  op.shape("heads one by one", by_head, {by_token.dim(1), by_token.dim(0), by_head.dim(2)});
  op.dtype("heads one by one", by_head, by_token.dtype());
  op.that(first >= 0 && first <= by_token.dim(2) - by_head.dim(2), "the part does not lie in a head");
}

}  // namespace weft::shapes
