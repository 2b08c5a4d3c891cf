// The meta table: checks shapes and counts FLOPs and bytes of main memory into Stream::cost; touches no data.
//
// A multiply-add is 2 FLOPs. Bytes count every input as read once and every output as written once: what a kernel
// with a perfect cache would move. Only visible pairs of causal attention count.
#include <algorithm>

#include "weft/kernels/grouped_matmul.h"
#include "weft/kernels/selected_keys.h"
#include "weft/kernels/shape_checks.h"

namespace weft {
namespace {

// FLOPs per element of what is not a matrix product. These ops are bound by memory, so the figures only need to be
// of the right size; an exponential, a division or a root counts as one.
constexpr double kActivationFlops = 8;
constexpr double kActivationSlopeFlops = 12;
constexpr double kSoftmaxFlops = 5;          // scale, maximum, subtract, exponential, sum
constexpr double kSoftmaxBackwardFlops = 6;  // scale, subtract, exponential, then p * (dp - sum) * scale
constexpr double kMergeFlops = 8;            // per row and head: maximum, three exponentials and a logarithm
constexpr double kDeltaFlops = 7;            // per element of a state and token: forget, project, learn, read
constexpr double kDeltaBackwardFlops = 23;   // the same again, and the gradients
constexpr double kSelectiveFlops = 5, kSelectiveBackwardFlops = 17;  // without what the delta rule projects
constexpr double kCapFlops = 4;  // divide, tanh, multiply; its slope about as much
constexpr double kDropoutFlops = 2;
constexpr double kRopeFlops = 3;  // 6 per pair
constexpr double kRmsNormFlops = 4;
constexpr double kLayerNormFlops = 7;
constexpr double kRmsNormBackwardFlops = 9;
constexpr double kLayerNormBackwardFlops = 12;
constexpr double kAdamWFlops = 15;
constexpr double kEncodeFlops = 10;
constexpr double kAdamW8Flops = kAdamWFlops + 2 + 2 * kEncodeFlops;
constexpr double kSgdFlops = 7;
constexpr double kLionFlops = 12;
constexpr double kFloat8Flops = 6;

// Adds to the stream's cost. An empty tensor has no bytes; one that is read and written is named twice.
template <class... Tensors>
void count(Stream& stream, double flops, const Tensors&... tensors) {
  stream.cost.flops += flops;
  stream.cost.bytes += (0.0 + ... + (tensors ? double(tensors.bytes()) : 0.0));
}

double elements(const Tensor& t) { return t ? double(t.numel()) : 0; }

double epilogue_flops(Epilogue::Kind kind) {
  switch (kind) {
    case Epilogue::Kind::none: return 0;
    case Epilogue::Kind::activate: return kActivationFlops;
    case Epilogue::Kind::gated: return kActivationFlops + 1;
    case Epilogue::Kind::activate_backward: return kActivationSlopeFlops + 1;
    case Epilogue::Kind::gated_backward: return kActivationFlops + kActivationSlopeFlops + 3;
  }
  return 0;
}

const Tensor& bytes_of_b(const MatmulArgs& args) {
  if (args.blocks_b) return args.blocks_b.blocks;
  if (args.nf4_b) return args.nf4_b.blocks;
  return args.b ? args.b : args.packed_b;
}

// Operands are rounded before the product, which reads what was made of them.
void count_float8(Stream& stream, const MatmulArgs& args) {
  const Tensor a = stream.allocator().empty(args.a.dtype(), args.a.shape());
  const Tensor b = stream.allocator().empty(args.b.dtype(), args.b.shape());
  count(stream, kFloat8Flops * (elements(a) + elements(b)), a, b, args.a, args.b);
}

void matmul(Stream& stream, const MatmulArgs& args) {
  shapes::check_matmul(args);
  const Epilogue& e = args.epilogue;
  const double k = double(args.a.dim(args.transpose_a ? 0 : 1));
  const double per_element = 2 * k + (e.bias ? 1 : 0) + epilogue_flops(e.kind);
  count(stream, elements(args.y) * per_element, args.y, args.a, bytes_of_b(args), e.bias);
  if (args.accumulate) count(stream, 0, args.y);
  if (args.float8) count_float8(stream, args);
  switch (e.kind) {
    case Epilogue::Kind::none: return;
    case Epilogue::Kind::activate: return count(stream, 0, e.act);
    case Epilogue::Kind::gated: return count(stream, 0, e.act, e.gate);
    case Epilogue::Kind::activate_backward: return count(stream, 0, e.pre);
    case Epilogue::Kind::gated_backward: return count(stream, 0, e.gate, e.up, e.dgate);
  }
}

// Nothing is packed: a plan counts the plain tensor.
size_t packed_matmul_b_bytes(DType, int64_t, int64_t, bool) { return 0; }

void pack_matmul_b(Stream& stream, const Tensor& packed, const Tensor& b, bool) { count(stream, 0, packed, b); }

// Pairs of a query row and a key row it sees, of one head.
double visible_pairs(const AttentionShape& s) {
  double pairs = 0;
  for (int i = 0; i < s.num_spans; ++i) {
    const AttentionSpan& a = s.spans[i];
    const int64_t queries = a.q_end - a.q_begin, keys = a.k_end - a.k_begin;
    if (s.window > 0) {
      for (int64_t q = 0; q < queries; ++q) pairs += double(shapes::visible_keys(a, s.window, q).count());
      continue;
    }
    // With `causal` the last n = min(queries, keys) query rows see keys, keys - 1, ... of them.
    const int64_t n = std::min(queries, keys);
    pairs += a.causal ? double(n) * double(2 * keys - n + 1) / 2 : double(queries) * double(keys);
  }
  return pairs;
}

// Only the key rows that belong to a span are read.
double key_value_bytes(const AttentionShape& s, const Tensor& k) {
  int64_t rows = 0;
  for (int i = 0; i < s.num_spans; ++i) rows += s.spans[i].k_end - s.spans[i].k_begin;
  return double(std::min(rows, k.dim(0))) * s.num_kv_heads * (s.head_dim + s.values_dim()) *
         double(size_of(k.dtype()));
}

double cap_flops(const AttentionShape& s) { return s.softcap > 0 ? kCapFlops : 0; }

void attention(Stream& stream, const AttentionArgs& args) {
  shapes::check_attention(args);
  const AttentionShape& s = args.shape;
  const double per_pair =
      2.0 * (s.head_dim + s.values_dim()) + kSoftmaxFlops + cap_flops(s) + (args.dropout.p > 0 ? kDropoutFlops : 0);
  count(stream, visible_pairs(s) * s.num_heads * per_pair, args.y, args.lse, args.q, args.key_bits);
  stream.cost.bytes += key_value_bytes(s, args.k);
}

// Five products (scores again, dp, dq, dk, dv), and dy . y of every row.
void attention_backward(Stream& stream, const AttentionBackwardArgs& args) {
  shapes::check_attention_backward(args);
  const AttentionShape& s = args.shape;
  const double per_pair = 6.0 * s.head_dim + 4.0 * s.values_dim() + kSoftmaxBackwardFlops + 2 * cap_flops(s) +
                          (args.dropout.p > 0 ? 2 * kDropoutFlops : 0);
  count(stream, visible_pairs(s) * s.num_heads * per_pair + 2 * elements(args.y), args.dq, args.dk, args.dv, args.dy,
        args.y, args.lse, args.q, args.key_bits);
  stream.cost.bytes += key_value_bytes(s, args.k);
}

void attention_merge(Stream& stream, const Tensor& acc, const Tensor& acc_lse, const Tensor& part,
                     const Tensor& part_lse) {
  shapes::check_attention_merge(acc, acc_lse, part, part_lse);
  count(stream, 3 * elements(acc) + kMergeFlops * elements(acc_lse), acc, acc, acc_lse, acc_lse, part, part_lse);
}

void attention_sinks(Stream& stream, const Tensor& y, const Tensor& lse, const Tensor& sinks) {
  shapes::check_attention_sinks("attention_sinks", y, lse, sinks);
  count(stream, elements(y) + kMergeFlops * elements(lse), y, y, lse, lse, sinks);
}

void attention_sinks_backward(Stream& stream, const Tensor& dsinks, const Tensor& dy, const Tensor& y,
                              const Tensor& lse, const Tensor& sinks) {
  shapes::check_attention_sinks_backward(dsinks, dy, y, lse, sinks);
  count(stream, 2 * elements(y) + 3 * elements(lse), dsinks, dsinks, dy, y, lse, sinks);
}

// Of rows that see at most so many keys.
double selected_pairs(const PagedSequence& s, int64_t most) {
  const int64_t rows = s.q_end - s.q_begin, first = keys_up_to(s, s.q_begin);
  const int64_t see_all = std::clamp<int64_t>(most - first + 1, 0, rows);
  return double(see_all) * double(2 * first + see_all - 1) / 2 + double(rows - see_all) * double(most);
}

void paged_attention(Stream& stream, const PagedAttentionArgs& args) {
  shapes::check_paged_attention(args);
  AttentionShape s = shapes::shape_of(args);
  double pairs = 0, keys = 0;
  for (int i = 0; i < args.num_sequences; ++i) {
    const AttentionSpan span = shapes::span_of(args.sequences[i]);
    if (span.q_begin == span.q_end) continue;
    if (args.selected) {  // each row reads its own
      const double read = selected_pairs(args.sequences[i], args.selected.cols());
      pairs += read, keys += read;
      continue;
    }
    s.spans = &span, s.num_spans = 1;
    pairs += visible_pairs(s);
    keys += double(span.k_end - shapes::visible_keys(span, s.window, 0).begin);
  }
  const double per_pair = 2.0 * (s.head_dim + s.values_dim()) + kSoftmaxFlops + cap_flops(s);
  count(stream, pairs * s.num_heads * per_pair, args.y, args.q);
  const RowFormat format{args.keys.dtype(), args.codes};
  const int64_t value_bytes = args.values ? format.bytes(s.values_dim()) : 0;
  stream.cost.bytes += keys * s.num_kv_heads * double(format.bytes(s.head_dim) + value_bytes);
}

// Keys are read once, and their scores written and read.
void select_keys(Stream& stream, const SelectKeysArgs& args) {
  shapes::check_select_keys(args);
  double pairs = 0, keys = 0;
  for (const PagedSequence& s : std::span(args.sequences, size_t(args.num_sequences))) {
    if (s.num_keys <= args.selected.dim(1)) continue;
    pairs += selected_pairs(s, s.num_keys), keys += s.num_keys;
  }
  count(stream, pairs * double(args.q.dim(1)) * (2.0 * double(args.q.dim(2)) + 2), args.q, args.weights);
  stream.cost.bytes += keys * double(RowFormat{args.keys.dtype(), args.codes}.bytes(args.q.dim(2))) +
                       2 * pairs * sizeof(float) + double(args.selected.bytes());
}

void mark_keys(Stream& stream, const Tensor& bits, const Tensor& selected) {
  shapes::check_mark_keys(bits, selected);
  count(stream, 0, bits, selected);
}

void place_rows(Stream& stream, const PlaceRowsArgs& args) {
  shapes::check_place_rows(args);
  count(stream, 0, args.x);
  stream.cost.bytes += double(args.x.rows() * RowFormat{args.pool.dtype(), args.codes}.bytes(args.x.cols()));
}

void rope(Stream& stream, const RopeArgs& args) {
  shapes::check_rope(args);
  const double angles = double(args.x.dim(0) * args.cos.dim(1));
  const double rotated = args.factors ? double(args.x.numel()) : 2 * angles * double(args.x.dim(1));
  stream.cost.flops += kRopeFlops * rotated;
  stream.cost.bytes += 2 * rotated * double(size_of(args.x.dtype())) + 2 * angles * double(size_of(args.cos.dtype()));
}

void take_heads(Stream& stream, const Tensor& y, const Tensor& x, int64_t first) {
  shapes::check_part_of_heads("take_heads", x, y, first);
  count(stream, 0, y, y);
}

void put_heads(Stream& stream, const Tensor& y, const Tensor& x, int64_t first) {
  shapes::check_part_of_heads("put_heads", y, x, first);
  count(stream, 0, x, x);
}

void join_heads(Stream& stream, const Tensor& y, const Tensor& shared, const Tensor& own) {
  shapes::check_join_heads("join_heads", y, shared, own);
  count(stream, 0, y, shared, own);
}

void split_heads(Stream& stream, const Tensor& dshared, const Tensor& down, const Tensor& dy) {
  shapes::check_join_heads("split_heads", dy, dshared, down);
  count(stream, elements(dy) - elements(down), dshared, down, dy);
}

void causal_conv(Stream& stream, const CausalConvArgs& args) {
  shapes::check_causal_conv(args);
  count(stream, elements(args.x) * (2 * double(args.weight.dim(1)) + kActivationFlops), args.y, args.x, args.weight);
}

void causal_conv_backward(Stream& stream, const CausalConvBackwardArgs& args) {
  shapes::check_causal_conv_backward(args);
  count(stream, elements(args.x) * (6 * double(args.weight.dim(1)) + kActivationSlopeFlops), args.dx, args.dweight,
        args.dbias, args.dy, args.x, args.weight, args.bias);
}

// A head's state stays where it is computed, but for its first and its last of a run.
void recurrence(Stream& stream, const RecurrenceArgs& args) {
  shapes::check_recurrence(args);
  const double per_element = args.rule == StateRule::delta ? kDeltaFlops : kSelectiveFlops;
  count(stream, per_element * elements(args.v) * double(args.q.dim(2)), args.y, args.q, args.k, args.v, args.a,
        args.b);
  for (const TokenRun& run : args.runs)
    stream.cost.bytes += double((run.from >= 0) + (run.to >= 0)) *
                         double(args.v.dim(1) * args.q.dim(2) * args.v.dim(2)) * double(sizeof(float));
}

void recurrence_backward(Stream& stream, const RecurrenceBackwardArgs& args) {
  shapes::check_recurrence_backward(args);
  const double per_element = args.rule == StateRule::delta ? kDeltaBackwardFlops : kSelectiveBackwardFlops;
  count(stream, per_element * elements(args.v) * double(args.q.dim(2)), args.dq, args.dk, args.dv, args.da, args.db,
        args.dy, args.q, args.k, args.v, args.a, args.b);
}

void norm(Stream& stream, const NormArgs& args) {
  shapes::check_norm(args);
  const double per_element = (args.kind == NormKind::rms ? kRmsNormFlops : kLayerNormFlops) + (args.residual ? 1 : 0);
  count(stream, elements(args.x) * per_element, args.y, args.rstd, args.x, args.weight, args.bias);
  if (args.residual) count(stream, 0, args.residual, args.sum);
  if (args.kind == NormKind::layer) count(stream, 0, args.mean);
}

void norm_backward(Stream& stream, const NormBackwardArgs& args) {
  shapes::check_norm_backward(args);
  const double per_element =
      (args.kind == NormKind::rms ? kRmsNormBackwardFlops : kLayerNormBackwardFlops) + (args.dsum ? 1 : 0);
  count(stream, elements(args.x) * per_element, args.dx, args.dweight, args.dbias, args.dy, args.dsum, args.x,
        args.rstd, args.weight);
  if (args.accumulate) count(stream, 0, args.dweight, args.dbias);
  if (args.kind == NormKind::layer) count(stream, 0, args.mean);
}

void read_streams(Stream& stream, const ReadStreamsArgs& args) {
  shapes::check_read_streams(args);
  count(stream, 4 * elements(args.x) + kActivationFlops * elements(args.products), args.y, args.gates, args.mix,
        args.rstd, args.x, args.products, args.base, args.scale);
}

void read_streams_backward(Stream& stream, const ReadStreamsBackwardArgs& args) {
  shapes::check_read_streams_backward(args);
  count(stream, 6 * elements(args.x) + 2 * kActivationFlops * elements(args.products), args.dx, args.dproducts,
        args.dlogits, args.dscales, args.dy, args.dsum, args.dgates, args.dmix, args.x, args.products, args.rstd,
        args.base, args.scale);
}

void write_streams(Stream& stream, const WriteStreamsArgs& args) {
  shapes::check_write_streams(args);
  const double of_x = args.mix ? 2 * elements(args.mix) * double(args.branch.cols()) : 0;
  count(stream, of_x + (args.gates ? 2 * elements(args.y) : 0), args.y, args.x, args.branch, args.gates, args.mix);
}

void write_streams_backward(Stream& stream, const WriteStreamsBackwardArgs& args) {
  shapes::check_write_streams_backward(args);
  const double of_x = args.mix ? 4 * elements(args.mix) * double(args.dbranch.cols()) : 0;
  count(stream, of_x + (args.gates ? 4 : 1) * elements(args.dy), args.dx, args.dbranch, args.dgates, args.dmix,
        args.dy, args.branch, args.gates, args.x, args.mix);
}

void activation(Stream& stream, const Tensor& y, const Tensor& x, Activation) {
  shapes::check_alike("activation", {{"x", x}, {"y", y}});
  count(stream, elements(x) * kActivationFlops, y, x);
}

void activation_backward(Stream& stream, const Tensor& dx, const Tensor& dy, const Tensor& x, Activation) {
  shapes::check_alike("activation_backward", {{"x", x}, {"dy", dy}, {"dx", dx}});
  count(stream, elements(x) * (kActivationSlopeFlops + 1), dx, dy, x);
}

void gated_activation(Stream& stream, const Tensor& y, const Tensor& gate, const Tensor& up, Activation) {
  shapes::check_alike("gated_activation", {{"gate", gate}, {"up", up}, {"y", y}});
  count(stream, elements(y) * (kActivationFlops + 1), y, gate, up);
}

void gated_activation_backward(Stream& stream, const Tensor& dgate, const Tensor& dup, const Tensor& dy,
                               const Tensor& gate, const Tensor& up, Activation) {
  shapes::check_alike("gated_activation_backward",
                      {{"gate", gate}, {"up", up}, {"dy", dy}, {"dgate", dgate}, {"dup", dup}});
  count(stream, elements(dy) * (kActivationFlops + kActivationSlopeFlops + 3), dgate, dup, dy, gate, up);
}

void xielu(Stream& stream, const Tensor& y, const Tensor& x, const Tensor& positive, const Tensor& negative) {
  shapes::check_xielu(y, x, positive, negative);
  count(stream, elements(x) * kActivationFlops, y, x, positive, negative);
}

void xielu_backward(Stream& stream, const Tensor& dx, const Tensor& dpositive, const Tensor& dnegative,
                    const Tensor& dy, const Tensor& x, const Tensor& positive, const Tensor& negative) {
  shapes::check_xielu_backward(dx, dpositive, dnegative, dy, x, positive, negative);
  const double sums = dpositive ? 2 * elements(x) : 0;
  count(stream, elements(x) * (kActivationSlopeFlops + 1) + sums, dx, dpositive, dnegative, dy, x, positive,
        negative);
}

void softcap(Stream& stream, const Tensor& y, const Tensor& x, float) {
  shapes::check_alike("softcap", {{"x", x}, {"y", y}});
  count(stream, elements(y) * kCapFlops, y, x);
}

void softcap_backward(Stream& stream, const Tensor& dx, const Tensor& dy, const Tensor& y, float) {
  shapes::check_alike("softcap_backward", {{"y", y}, {"dy", dy}, {"dx", dx}});
  count(stream, elements(y) * kCapFlops, dx, dy, y);
}

void dropout(Stream& stream, const Tensor& y, const Tensor& x, const DropoutKey& key) {
  shapes::check_dropout(y, x, key);
  count(stream, elements(x) * kDropoutFlops, y, x);
}

// A row of the table is read for every token, not the whole table.
void embedding(Stream& stream, const Tensor& y, const Tensor& table, const TableRows& ids,
               const Tensor& position_table, const int32_t* positions) {
  shapes::check_embedding(y, table, ids, position_table, positions);
  count(stream, position_table ? elements(y) : 0, y, y);
  if (position_table) count(stream, 0, y);
}

void embedding_of_blocks(Stream& stream, const Tensor& y, const BlockMatrix& table, const TableRows& ids) {
  shapes::check_embedding_of_blocks(y, table, ids);
  count(stream, elements(y), y);
  stream.cost.bytes += double(y.dim(0)) * double(table.row_bytes());
}

void embedding_backward(Stream& stream, const Tensor& dtable, const Tensor& dy, const TableRows& ids) {
  shapes::check_embedding_backward(dtable, dy, ids);
  count(stream, elements(dy), dy);
  stream.cost.bytes += 2 * elements(dy) * double(size_of(dtable.dtype()));
}

void cross_entropy(Stream& stream, const Tensor& losses, const Tensor& logits, const int32_t* targets,
                   float dlogits_scale) {
  shapes::check_cross_entropy(losses, logits, targets);
  count(stream, elements(logits) * kSoftmaxFlops, losses, logits);
  if (dlogits_scale != 0) count(stream, 2 * elements(logits), logits);
}

void cross_entropy_stats(Stream& stream, const Tensor& stats, const Tensor& logits, const int32_t* targets,
                         int64_t first_column) {
  shapes::check_cross_entropy_stats(stats, logits, targets, first_column);
  count(stream, elements(logits) * kSoftmaxFlops, stats, logits);
}

void cross_entropy_combine(Stream& stream, const Tensor& losses, const Tensor& lse, const Tensor& stats,
                           const int32_t*) {
  shapes::check_cross_entropy_combine(losses, lse, stats);
  count(stream, elements(stats), losses, lse);
}

void cross_entropy_gradient(Stream& stream, const Tensor& logits, const Tensor& lse, const Tensor& factors,
                            const int32_t* targets, int64_t first_column, float) {
  shapes::check_cross_entropy_gradient(logits, lse, factors, targets, first_column);
  count(stream, 3 * elements(logits), logits, logits, lse, factors);
}

void place_tokens(Stream& stream, const Tensor& ids, const int32_t* said, const Tensor& found) {
  shapes::check_place_tokens(ids, said, found);
  count(stream, 0, ids, found);
}

void find_tokens(Stream& stream, const FindTokensArgs& args) {
  shapes::check_find_tokens(args);
  const double share = double(args.queries.size()) / double(std::max<int64_t>(args.logits.dim(0), 1));
  count(stream, share * elements(args.logits) * kSoftmaxFlops, args.found, args.logits);
}

// Without data, nobody has chosen: Route::assign_evenly.
void route(Stream& stream, const RouteArgs& args) {
  shapes::check_route(args);
  count(stream, elements(args.logits) * kSoftmaxFlops, args.scores, args.weights, args.logits, args.bias);
}

void route_backward(Stream& stream, const RouteBackwardArgs& args) {
  shapes::check_route_backward(args);
  count(stream, elements(args.logits) * kSoftmaxBackwardFlops, args.dlogits, args.dweights, args.scores,
        args.balance);
  if (args.z_scale != 0) count(stream, elements(args.logits) * kSoftmaxFlops, args.logits);
}

void order_by_group(Stream& stream, const GroupOrderArgs& args) {
  shapes::check_order_by_group(args);
  count(stream, 0, args.at, args.tokens, args.runs, args.chosen);
}

void combine_rows(Stream& stream, const Tensor& y, const Tensor& x, const RowCopies& copies, const Tensor& weights) {
  shapes::check_combine_rows(y, x, copies, weights);
  count(stream, elements(x) * (weights ? 2 : 1), y, x, weights);
}

void combine_rows_backward(Stream& stream, const Tensor& dx, const Tensor& dweights, const Tensor& dy,
                           const Tensor& x, const RowCopies& copies, const Tensor& weights) {
  shapes::check_combine_rows_backward(dx, dweights, dy, x, copies, weights);
  const double rows = elements(x ? x : dx);
  count(stream, (x ? 2 : 0) * rows + (dx ? 1 : 0) * rows, dx, dweights, dy, x, weights);
}

void add(Stream& stream, const Tensor& y, const Tensor& a, const Tensor& b) {
  shapes::check_alike("add", {{"a", a}, {"b", b}, {"y", y}});
  count(stream, elements(y), y, a, b);
}

void accumulate(Stream& stream, const Tensor& sum, const Tensor& x) {
  shapes::check_accumulate(sum, x);
  count(stream, elements(sum), sum, sum, x);
}

void scale(Stream& stream, const Tensor& y, const Tensor& x, float) {
  shapes::check_alike("scale", {{"x", x}, {"y", y}});
  count(stream, elements(y), y, x);
}

void convert(Stream& stream, const Tensor& y, const Tensor& x) {
  shapes::check_convert(y, x);
  count(stream, 0, y, x);
}

void fill(Stream& stream, const Tensor& y, float) {
  shapes::check_fill(y);
  count(stream, 0, y);
}

void sum_rows(Stream& stream, const Tensor& y, const Tensor& x, bool accumulate) {
  shapes::check_sum_rows(y, x);
  count(stream, elements(x), y, x);
  if (accumulate) count(stream, 0, y);
}

void scale_columns(Stream& stream, const Tensor& y, const Tensor& x, const Tensor& factors) {
  shapes::check_scale_columns(y, x, factors);
  count(stream, elements(x), y, x, factors);
}

void dot_columns(Stream& stream, const Tensor& y, const Tensor& a, const Tensor& b, bool accumulate) {
  shapes::check_dot_columns(y, a, b);
  count(stream, 2 * elements(a), y, a, b);
  if (accumulate) count(stream, 0, y);
}

void dot_rows(Stream& stream, const Tensor& y, const Tensor& a, const Tensor& b) {
  shapes::check_dot_rows(y, a, b);
  count(stream, 2 * elements(a), y, a, b);
}

double sum_of_squares(Stream& stream, std::span<const Tensor> xs) {
  shapes::check_sum_of_squares(xs);
  for (const Tensor& x : xs) count(stream, 2 * elements(x), x);
  return 0;
}

void split_masters(Stream& stream, const Tensor& upper, const Tensor& lower, const Tensor& x) {
  shapes::check_halves("split_masters", upper, lower, x);
  count(stream, 0, upper, lower, x);
}

void join_masters(Stream& stream, const Tensor& x, const Tensor& upper, const Tensor& lower) {
  shapes::check_halves("join_masters", upper, lower, x);
  count(stream, 0, x, upper, lower);
}

// The value is read too where it is the upper half of its master.
Tensor read_value(const auto& args) { return args.master.dtype() == DType::u16 ? args.value : Tensor(); }

void adamw(Stream& stream, const AdamWArgs& args) {
  shapes::check_adamw(args);
  count(stream, elements(args.master) * kAdamWFlops, args.master, args.m, args.v, args.master, args.m, args.v,
        args.grad, args.value, read_value(args));
}

void adamw8(Stream& stream, const AdamW8Args& args) {
  shapes::check_adamw8(args);
  const AdamWArgs& a = args.adamw;
  count(stream, elements(a.master) * kAdamW8Flops, a.master, args.m, args.v, args.m_scale, args.v_scale, a.master,
        args.m, args.v, args.m_scale, args.v_scale, a.grad, a.value, read_value(a));
}

void sgd(Stream& stream, const SgdArgs& args) {
  shapes::check_sgd(args);
  count(stream, elements(args.master) * kSgdFlops, args.master, args.m, args.master, args.m, args.grad, args.value,
        read_value(args));
}

void lion(Stream& stream, const LionArgs& args) {
  shapes::check_lion(args);
  count(stream, elements(args.master) * kLionFlops, args.master, args.m, args.master, args.m, args.grad, args.value,
        read_value(args));
}

void encode_blocks(Stream& stream, const Tensor& codes, const Tensor& scales, const Tensor& x, bool) {
  shapes::check_blocks("encode_blocks", codes, scales, x);
  count(stream, elements(x) * kEncodeFlops, codes, scales, x);
}

void decode_blocks(Stream& stream, const Tensor& x, const Tensor& codes, const Tensor& scales, bool) {
  shapes::check_blocks("decode_blocks", codes, scales, x);
  count(stream, elements(x), codes, scales, x);
}

void add_factor_sums(Stream& stream, const MatrixPiece& p) {
  shapes::check_matrix_piece("add_factor_sums", p);
  count(stream, 4 * elements(p.x), p.x, p.rows, p.cols, p.rows, p.cols);
}

void factor_moment(Stream& stream, const FactorMomentArgs& args) {
  shapes::check_factor_moment(args);
  count(stream, 6 * elements(args.moment), args.moment, args.sums, args.moment, args.sums);
}

double factored_squares(Stream& stream, const MatrixPiece& p) {
  shapes::check_matrix_piece("factored_squares", p);
  count(stream, 5 * elements(p.x), p.x, p.rows, p.cols);
  return 0;
}

void adafactor(Stream& stream, const AdafactorArgs& args) {
  shapes::check_adafactor(args);
  count(stream, 6 * elements(args.master), args.master, args.master, args.grad.x, args.grad.rows, args.grad.cols,
        args.value, read_value(args));
}

}  // namespace

const Kernels& meta_kernels() {
  static constexpr Kernels table{
      .name = "meta",
      .matmul = matmul,
      .matmuls_of_one_a = each<matmul>,
      .grouped_matmuls = each_group<each<matmul>>,
      .grouped_gradients = each_gradient<matmul, fill>,
      .multiplies_runs = multiplies_no_runs,
      .packed_matmul_b_bytes = packed_matmul_b_bytes,
      .pack_matmul_b = pack_matmul_b,
      .attention = attention,
      .attention_backward = attention_backward,
      .attention_merge = attention_merge,
      .attention_sinks = attention_sinks,
      .attention_sinks_backward = attention_sinks_backward,
      .paged_attention = paged_attention,
      .select_keys = select_keys,
      .mark_keys = mark_keys,
      .place_rows = each<place_rows>,
      .rope = each<rope>,
      .join_heads = join_heads,
      .split_heads = split_heads,
      .take_heads = take_heads,
      .put_heads = put_heads,
      .causal_conv = each<causal_conv>,
      .causal_conv_backward = causal_conv_backward,
      .recurrence = recurrence,
      .recurrence_backward = recurrence_backward,
      .norm = norm,
      .norm_backward = norm_backward,
      .read_streams = read_streams,
      .read_streams_backward = read_streams_backward,
      .write_streams = write_streams,
      .write_streams_backward = write_streams_backward,
      .activation = activation,
      .activation_backward = activation_backward,
      .gated_activation = gated_activation,
      .gated_activation_backward = gated_activation_backward,
      .xielu = xielu,
      .xielu_backward = xielu_backward,
      .softcap = softcap,
      .softcap_backward = softcap_backward,
      .dropout = dropout,
      .embedding = embedding,
      .embedding_of_blocks = embedding_of_blocks,
      .embedding_backward = embedding_backward,
      .cross_entropy = cross_entropy,
      .cross_entropy_stats = cross_entropy_stats,
      .cross_entropy_combine = cross_entropy_combine,
      .cross_entropy_gradient = cross_entropy_gradient,
      .find_tokens = find_tokens,
      .place_tokens = place_tokens,
      .route = route,
      .route_backward = route_backward,
      .order_by_group = order_by_group,
      .combine_rows = combine_rows,
      .combine_rows_backward = combine_rows_backward,
      .add = add,
      .accumulate = accumulate,
      .scale = scale,
      .convert = convert,
      .fill = fill,
      .sum_rows = sum_rows,
      .scale_columns = scale_columns,
      .dot_columns = dot_columns,
      .dot_rows = dot_rows,
      .sum_of_squares = sum_of_squares,
      .split_masters = split_masters,
      .join_masters = join_masters,
      .adamw = adamw,
      .adamw8 = adamw8,
      .sgd = sgd,
      .lion = lion,
      .encode_blocks = encode_blocks,
      .decode_blocks = decode_blocks,
      .add_factor_sums = add_factor_sums,
      .factor_moment = factor_moment,
      .factored_squares = factored_squares,
      .adafactor = adafactor,
  };
  return table;
}

}  // namespace weft
