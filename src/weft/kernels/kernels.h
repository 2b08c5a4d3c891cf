// Kernels: the whole contract with a hardware backend, one table of functions.
//
// Conventions, for every entry:
//  - outputs come first; tensors are contiguous and row-major; shapes use the letters of docs/notation.md
//    (T tokens, H hidden, N query heads, K key/value heads, D head dim, F ffn, E experts, V vocab);
//  - "x" tensors are f32, bf16 or f16 (the `reference` table also takes f64); statistics, losses, gradients of
//    parameters and optimizer state are f32 (f64 where everything is f64), but for gradients that matmul writes in 16
//    bits; sums accumulate in f32 or wider;
//  - an empty Tensor means "not wanted" where a comment says optional;
//  - `accumulate` adds to what the output holds; otherwise the output is overwritten and may be uninitialised;
//  - results are bitwise reproducible for the same inputs and the same number of threads.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "weft/kernels/activation.h"
#include "weft/kernels/block_matrix.h"
#include "weft/kernels/nf4.h"
#include "weft/kernels/optimizer_args.h"
#include "weft/kernels/recurrence_args.h"
#include "weft/kernels/row_codes.h"
#include "weft/kernels/streams_args.h"
#include "weft/kernels/token_choice.h"
#include "weft/tensor/stream.h"
#include "weft/tensor/tensor.h"

namespace weft {

// What a matrix product does with a tile of its result while the tile is in cache.
//   none                 y = ab + bias
//   activate             y = ab + bias;  act = f(y)
//   gated                y = ab + bias;  act = f(gate) * y          (SwiGLU with f = silu: y is "up")
//   activate_backward    y = (ab) * f'(pre)                         (ab is the gradient of act)
//   gated_backward       y = (ab) * f(gate);  dgate = (ab) * up * f'(gate)     (y is the gradient of up)
struct Epilogue {
  enum class Kind : uint8_t { none, activate, gated, activate_backward, gated_backward };
  Kind kind = Kind::none;
  Activation f = Activation::silu;
  Tensor bias;   // [N], optional, in any kind
  Tensor act;    // out [M, N]: activate, gated
  Tensor gate;   // in  [M, N]: gated, gated_backward
  Tensor up;     // in  [M, N]: gated_backward
  Tensor pre;    // in  [M, N]: activate_backward
  Tensor dgate;  // out [M, N]: gated_backward
};

// y[M, N] = op(a)[M, K] op(b)[K, N], then the epilogue. a and b have the same dtype; y is f32 or that dtype.
struct MatmulArgs {
  Tensor y;
  Tensor a;                  // [M, K], or [K, M] when transpose_a
  Tensor b;                  // [K, N], or [N, K] when transpose_b; optional beside packed_b
  bool transpose_a = false;  // transpose_a && transpose_b is not supported
  bool transpose_b = false;
  bool accumulate = false;  // y += ab, rounded once; only with Epilogue::Kind::none and no bias
  // Beside a and b of bf16, without packed_b, nf4_b and blocks_b: both are rounded to E4M3 first, in groups of 128
  // neighbours along K with a scale each (kernels/float8_groups.h). Codes times scales are exact in bf16, so this is
  // the product of bf16 operands that lie on that grid, summed in f32 or wider, whatever multiplies them.
  bool float8 = false;
  Tensor packed_b;         // optional: what pack_matmul_b made of b, in the dtype of a
  nf4::Matrix nf4_b = {};  // instead of b and packed_b: as b lies, in the dtype of a when it is decoded
  // Instead of b and packed_b, [N, K] with transpose_b and without transpose_a. The backend may round a to 8 bits in
  // blocks of 32 with a scale each, beside int8 with a scale to a row, and beside fp8 to E4M3 in blocks of 128 or
  // with a scale to a row; a row of y depends on that row of a alone.
  BlockMatrix blocks_b = {};
  Epilogue epilogue;
};

inline constexpr size_t kMostMatmulsOfOneA = 4;

// Products of rows, each group's with a matrix of its own: what matmul makes of a group's rows of a and of its
// matrix. Rows are ordered by group, [starts[g], starts[g + 1]) those of group g, which may have none. What a
// device's kernels read without the host: runs of rows that are ordered by group, as order_by_group tells of them; or
// each row's group, in any order, for few rows: each then reads a matrix by itself.
struct GroupedMatmulArgs {
  Tensor y;  // [R, N]
  Tensor a;  // [R, K]
  Tensor b;  // [G, K, N], or [G, N, K] when transpose_b
  bool transpose_b = false;
  bool accumulate = false;          // as of MatmulArgs
  bool float8 = false;              // the same
  nf4::Stack nf4_b = {};            // instead of b: as b lies
  BlockMatrix blocks_b = {};        // instead of b, with transpose_b: [G N, K]
  std::span<const int64_t> starts;  // [G + 1], host memory; or else
  Tensor runs;                      // [R, 3] i32; or else
  Tensor groups;                    // [R] i32
  Epilogue epilogue;                // its tensors have R rows; a bias is [G, N]
};

// Gradients of a stack of weights: y[g] = a_gᵀ b_g of the rows of each group, which `starts` cuts as above; zeros of
// a group without rows.
struct GroupedGradientArgs {
  Tensor y;                         // [G, M, N]
  Tensor a;                         // [R, M]
  Tensor b;                         // [R, N]
  bool accumulate = false;          // y += that
  bool float8 = false;              // as of MatmulArgs
  std::span<const int64_t> starts;  // [G + 1], host memory
};

// Query rows [q_begin, q_end) attend to key rows [k_begin, k_end) and to no others. With `causal`, the last query row
// sees all of these keys, the one before it all but the last, and so on. With a window of W, a query row sees no key
// whose position is W or more before its own.
struct AttentionSpan {
  int32_t q_begin = 0, q_end = 0, k_begin = 0, k_end = 0;
  bool causal = true;
  int64_t first_query = 0;  // global index of row q_begin, for dropout
  int32_t first_key = 0;    // position of key k_begin in its sequence, for dropout
  int32_t lead = 0;         // positions from the last key to the last query row, for the window
};

// Query rows of spans ascend and are disjoint. Key rows of several spans may overlap: their gradients are summed. A
// query row that sees no key gets y = 0, lse = -infinity and dq = 0; a key row of no span gets dk = dv = 0.
struct AttentionShape {
  int num_heads = 0, num_kv_heads = 0, head_dim = 0;  // no heads at all are legal
  const AttentionSpan* spans = nullptr;               // [num_spans], host memory, outlives the call
  int num_spans = 0;
  float scale = 0;    // of the scores; usually 1 / sqrt(D)
  float softcap = 0;  // scaled scores become softcap * tanh(score / softcap); 0: they stay
  int window = 0;     // see AttentionSpan; 0: none
  int value_dim = 0;  // of a head of v and y; 0: head_dim
  int first_head = 0,
      total_heads = 0;  // for dropout: head 0 and the number of heads of the whole layer; 0: num_heads
  int values_dim() const { return value_dim ? value_dim : head_dim; }
};

// Dropout keeps element i when philox(seed, i, stream) says so, and scales it by 1 / (1 - p): no state, no mask.
struct DropoutKey {
  float p = 0;  // 0 switches dropout off
  uint64_t seed = 0;
  uint64_t stream = 0;  // one number per dropout op and step
  uint64_t first = 0;   // global index of element 0; attention takes its rows from the spans instead
};

struct AttentionArgs {
  Tensor y;        // [T, N, D], or value_dim in place of D
  Tensor lse;      // [N, T] f32: log-sum-exp of each row's scores, scaled and capped; optional
  Tensor q, k, v;  // [T, N, D], [S, K, D], [S, K, D], or value_dim in place of v's D
  AttentionShape shape;
  DropoutKey dropout;  // element: (global query row * total_heads + first_head + head) * 2^24 + key's position
  // [N, 2P - 1] f32, optional: what is added to the score, scaled and capped, of a key that stands d positions behind
  // the query, for d from 1 - P to P - 1; keys further off have the first or the last. Source: Raffel et al., 2020.
  Tensor bias;
  // [T, S / 32 rounded up] i32, optional: of the keys of its span a row sees those alone whose bits are set, as
  // mark_keys sets them. Where there are such, there is no bias.
  Tensor key_bits;
};

// y and lse may be those of more keys than are given here: dq, dk and dv then are what these keys contribute.
struct AttentionBackwardArgs {
  Tensor dq, dk, dv;  // like q, k, v
  Tensor dy, y, lse, q, k, v;
  AttentionShape shape;
  DropoutKey dropout;
  Tensor bias;   // the cpu table has no gradients with one
  Tensor dbias;  // like bias
  Tensor key_bits;
};

// One sequence's query rows in a step of serving. The last of them sees all of the sequence's keys, the one before it
// all but the last, and so on.
struct PagedSequence {
  int32_t q_begin = 0, q_end = 0;
  int32_t num_keys = 0;             // those of these query rows among them
  const int32_t* blocks = nullptr;  // [num_keys / block_tokens, rounded up], host memory: where its keys lie in order
};

// Attention whose keys and values lie in blocks of a pool that many sequences share. A row of y is a function of its
// q and of its sequence's keys and values, bit for bit: whatever other rows are computed with it, however many of its
// own sequence, wherever the blocks lie and however large they are, and however many threads there are.
// Source: Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023.
struct PagedAttentionArgs {
  Tensor y;  // [T, N, D], or value_dim in place of D
  Tensor q;  // [T, N, D]
  // [blocks, block_tokens, K, D], or value_dim in place of values' D; any float dtype. Of codes u8, each D wider by
  // its scale. Without values, those are the first elements of keys, of as many as y has.
  Tensor keys, values;
  RowCodes codes = RowCodes::none;  // of both
  const Tensor& value_pool() const { return values ? values : keys; }
  const PagedSequence* sequences = nullptr;  // [num_sequences], host memory; their rows ascend and are all of T
  int num_sequences = 0;
  float scale = 0, softcap = 0;  // as in AttentionShape
  int window = 0;
  Tensor sinks;  // [N] in the dtype of q, optional: as attention_sinks takes them
  // [T, most] i32, optional, without a window: a row sees these rows of the pool in place of its sequence's keys, of
  // which it has so many, or `most` where it has more. Its bits are those of a sequence of these keys in this order.
  Tensor selected;
};

// The keys that each row of sparse attention sees: of those of its sequence up to its own, in the order of
// paged_attention, the ones whose scores are the `most` highest, the first of equals first. The score of key j is the
// sum over heads h of weights[t, h] max(0, q[t, h] . keys[j]). Which they are does not depend on company, as there.
// Source: DeepSeek-AI, "DeepSeek-V3.2", 2025: the lightning indexer.
struct SelectKeysArgs {
  Tensor selected;  // out [T, most] i32: rows of the pool, in the order of keys; -1 behind the last
  Tensor q;         // [T, N, D]
  Tensor weights;   // [T, N] f32
  Tensor keys;      // [blocks, block_tokens, 1, D], as of paged_attention
  RowCodes codes = RowCodes::none;
  const PagedSequence* sequences = nullptr;  // [num_sequences], as of paged_attention
  int num_sequences = 0;
};

enum class NormKind : uint8_t { rms, layer };

// sum = x + residual; y = norm(sum) * weight + bias. Without residual, sum is x and is not written.
struct NormArgs {
  NormKind kind = NormKind::rms;
  Tensor y;           // [T, H]
  Tensor sum;         // [T, H], written when residual is given
  Tensor mean, rstd;  // [T] f32; mean only for layer
  Tensor x;           // [T, H]
  Tensor residual;    // [T, H], optional
  Tensor weight;      // [H]
  Tensor bias;        // [H], optional
  float eps = 1e-5f;
  float weight_offset = 0;  // what y multiplies by is weight + weight_offset
};

// dx = d norm / d x applied to dy, plus dsum (the gradient that reaches `sum` around the norm).
struct NormBackwardArgs {
  NormKind kind = NormKind::rms;
  Tensor dx;               // [T, H]; may be dsum
  Tensor dweight, dbias;   // [H] f32, optional
  bool accumulate = true;  // of dweight and dbias
  Tensor dy, dsum;         // [T, H]; dsum optional
  Tensor x;                // what was normalised: `sum`
  Tensor mean, rstd;       // [T]
  Tensor weight;           // [H]
  float weight_offset = 0;
};

// pool[rows[t]] = x[t], in the dtype of the pool; rows [T] is host memory. pool and x agree behind the dims that
// count rows: pool [blocks, block_tokens, ...], x [T, ...]. As codes x is rounded vector by vector of its last dim,
// which is wider in the pool: nearest, ties to even, of x times the inverse of the CodeScale, all in f32.
struct PlaceRowsArgs {
  Tensor pool, x;
  const int32_t* rows;
  RowCodes codes = RowCodes::none;
};

// Rotary position embedding, in place, on x[T, heads, D]: halves (x1, x2) of the first 2R elements of a head become
// (x1 cos - x2 sin, x2 cos + x1 sin). inverse rotates back, which is the gradient. Source: Su et al., 2021.
struct RopeArgs {
  Tensor x;                            // [T, heads, D]
  Tensor cos, sin;                     // [positions, R] f32, 2R <= D
  const int32_t* positions = nullptr;  // [T], host memory
  bool inverse = false;
  Tensor factors = {};  // [positions] f32, optional: all D elements are multiplied by that of their position
};

// Rows of a table of which a rank may hold a part: tokens of other rows give zeros, and take no gradient here.
struct TableRows {
  const int32_t* ids;         // [T], host memory; in [0, total)
  int64_t first;              // row of the whole table that is row 0 here
  int64_t total;              // rows of the whole table; 0: as many as the table has
  bool is_on_device = false;  // to look up rows: ids are in the memory of tensors

  TableRows(const int32_t* ids_, int64_t first_ = 0, int64_t total_ = 0)  // NOLINT: ids stand for rows of a table
      : ids(ids_), first(first_), total(total_) {}
  // The row here, or -1 where another rank holds it.
  int64_t row(int64_t t, int64_t rows_here) const {
    const int64_t row = ids[t] - first;
    return row >= 0 && row < rows_here ? row : -1;
  }
};

// How a router's logits choose experts and weigh them.
enum class RouterGate : uint8_t { softmax, sigmoid };
struct RouteRule {
  RouterGate gate = RouterGate::softmax;
  bool normalises = true;  // the weights of a token add up to `scale`; else they are its scores times `scale`
  float scale = 1;
  int groups = 1, groups_per_token = 1;  // experts come from so many of as many groups of neighbours
  bool ranks_logits = false;             // logits stand in place of scores where experts are chosen
};
inline constexpr int kMostExpertsPerToken = 64;

// scores = gate(logits). A token goes to the k experts with the highest score + bias, the first of equals first.
// Where there are groups, these come from the groups that rank first: by their best score + bias, or, of sigmoid
// gates, by the sum of their two best. Sources: DeepSeek-AI, "DeepSeek-V2", 2024, and "DeepSeek-V3", 2024.
struct RouteArgs {
  Tensor scores;     // out [T, E] f32
  Tensor weights;    // out [T, k] f32, best expert first
  int32_t* experts;  // out [T, k], host memory: a device is waited for; or else
  Tensor chosen;     // out [T, k] i32
  Tensor logits;     // [T, E] f32
  Tensor bias;       // [E] f32, optional
  Tensor factors;    // [E] f32, optional: the weight of an expert is multiplied by its factor
  RouteRule rule;
  bool are_given = false;  // `experts` is read: each token's differ, and nothing is chosen

  // For kernels to which tensors are memory of the host.
  int32_t* on_host() const { return chosen ? chosen.data<int32_t>() : experts; }
};

// The gradient of the sum over tokens of
//   weights . dweights  +  balance[row of the token] . scores / sum(scores)  +  z_scale * logsumexp(logits)^2
struct RouteBackwardArgs {
  Tensor dlogits;          // out [T, E] f32
  Tensor dweights;         // [T, k] f32, optional
  Tensor logits, scores;   // [T, E] f32
  const int32_t* experts;  // [T, k], host memory
  int k = 0;
  Tensor balance;                 // [rows, E] f32, optional
  const int32_t* rows = nullptr;  // [T], host memory; only with balance
  float z_scale = 0;
  RouteRule rule;
  Tensor factors = {};   // [E] f32, optional
  Tensor dfactors = {};  // out [T, E] f32, optional: what each token adds to their gradient; only with both
};

// Where the copies of tokens lie among other rows: copy j of token t is row at[t * k + j], or nowhere if that is -1.
// No two copies share a row.
struct RowCopies {
  const int32_t* at;  // [T, k], host memory
  int64_t k;
  bool is_on_device = false;  // else the memory of tensors
};

// Copies of tokens in the order of their groups, and of one group in that of tokens, made where the choice lies.
struct GroupOrderArgs {
  Tensor at;      // out [T, k] i32: the row of each copy
  Tensor tokens;  // out [T k] i32: the token of each row
  Tensor runs;    // out [T k, 3] i32: first row, rows and group of each run; those after the last have no rows
  Tensor chosen;  // [T, k] i32: groups
  int64_t groups = 0;
};
inline constexpr int64_t kMostOrderedGroups = 4096;

struct Kernels {
  std::string_view name;

  // ---- matrix products ----
  void (*matmul)(Stream&, const MatmulArgs&);
  // At most kMostMatmulsOfOneA products of one a, none of them transpose_a: with the bits of matmul of each in their
  // order, so that a gated epilogue's `gate` may be the y of the product before. The backend may read a once, and do
  // all of them together.
  void (*matmuls_of_one_a)(Stream&, std::span<const MatmulArgs>);
  // At most kMostMatmulsOfOneA grouped products of one a and one `starts`, as matmuls_of_one_a has those of each
  // group. The backend may do all groups together.
  void (*grouped_matmuls)(Stream&, std::span<const GroupedMatmulArgs>);
  void (*grouped_gradients)(Stream&, const GroupedGradientArgs&);
  // Whether grouped_matmuls makes y[rows, n] of a[rows, k] and weights of the dtype of a, which is of 16 bits, or in
  // blocks, of runs without the host.
  bool (*multiplies_runs)(int64_t rows, int64_t groups, int64_t n, int64_t k, bool is_in_blocks);
  // The layout matmul likes b in; packing once serves many calls. Bytes are 0 when packing brings nothing.
  size_t (*packed_matmul_b_bytes)(DType, int64_t k, int64_t n, bool transpose_b);
  void (*pack_matmul_b)(Stream&, const Tensor& packed, const Tensor& b, bool transpose_b);

  // ---- attention ----
  void (*attention)(Stream&, const AttentionArgs&);
  void (*attention_backward)(Stream&, const AttentionBackwardArgs&);
  // Joins attention over some keys to attention over others: acc and acc_lse become y and lse over all of them.
  // acc[T, N, D], acc_lse and part_lse[N, T] are f32 (f64 beside f64); part[T, N, D] is of any dtype. An lse of
  // -infinity means no keys. Sources: Milakov and Gimelshein, 2018; Liu et al., "Ring Attention", 2023.
  void (*attention_merge)(Stream&, const Tensor& acc, const Tensor& acc_lse, const Tensor& part,
                          const Tensor& part_lse);
  // What attention gives, y[T, N, D] and lse[N, T], becomes what it would be if each row saw a key more, whose score
  // is sinks[n] and whose value is 0. sinks [N] are in the dtype of y. Source: Xiao et al., "Efficient Streaming
  // Language Models with Attention Sinks", 2023; as weights: OpenAI, gpt-oss, 2025.
  void (*attention_sinks)(Stream&, const Tensor& y, const Tensor& lse, const Tensor& sinks);
  // dsinks [N] f32 += their gradient; those of q, k and v are what attention_backward makes of this y and lse.
  void (*attention_sinks_backward)(Stream&, const Tensor& dsinks, const Tensor& dy, const Tensor& y,
                                   const Tensor& lse, const Tensor& sinks);
  void (*paged_attention)(Stream&, const PagedAttentionArgs&);
  void (*select_keys)(Stream&, const SelectKeysArgs&);
  // Bit i % 32 of bits[t, i / 32], i32, is set where i is one of selected[t], and no other is.
  void (*mark_keys)(Stream&, const Tensor& bits, const Tensor& selected);
  // Of several, as keys and values or queries and keys are: none writes what another reads or writes, so that the
  // backend may do them together.
  void (*place_rows)(Stream&, std::span<const PlaceRowsArgs>);
  void (*rope)(Stream&, std::span<const RopeArgs>);
  // y[T, N, A + B]: the first A elements of every head are shared[T, A], the others own[T, N, B].
  void (*join_heads)(Stream&, const Tensor& y, const Tensor& shared, const Tensor& own);
  // The gradients; that of `shared` is the sum over heads, in their order.
  void (*split_heads)(Stream&, const Tensor& dshared, const Tensor& down, const Tensor& dy);
  // y[N, T, D] = x[T, N, first : first + D]: a part of every head, head by head; and the way back, y[T, N, first :
  // first + D] = x[N, T, D], which leaves the rest of y as it is.
  void (*take_heads)(Stream&, const Tensor& y, const Tensor& x, int64_t first);
  void (*put_heads)(Stream&, const Tensor& y, const Tensor& x, int64_t first);

  // ---- states in place of keys and values ----
  // Of several that share nothing they write, as place_rows.
  void (*causal_conv)(Stream&, std::span<const CausalConvArgs>);
  void (*causal_conv_backward)(Stream&, const CausalConvBackwardArgs&);
  void (*recurrence)(Stream&, const RecurrenceArgs&);
  void (*recurrence_backward)(Stream&, const RecurrenceBackwardArgs&);

  // ---- norms and activations ----
  void (*norm)(Stream&, const NormArgs&);
  void (*norm_backward)(Stream&, const NormBackwardArgs&);
  void (*read_streams)(Stream&, const ReadStreamsArgs&);
  void (*read_streams_backward)(Stream&, const ReadStreamsBackwardArgs&);
  void (*write_streams)(Stream&, const WriteStreamsArgs&);
  void (*write_streams_backward)(Stream&, const WriteStreamsBackwardArgs&);
  void (*activation)(Stream&, const Tensor& y, const Tensor& x, Activation);
  void (*activation_backward)(Stream&, const Tensor& dx, const Tensor& dy, const Tensor& x, Activation);
  void (*gated_activation)(Stream&, const Tensor& y, const Tensor& gate, const Tensor& up, Activation);
  void (*gated_activation_backward)(Stream&, const Tensor& dgate, const Tensor& dup, const Tensor& dy,
                                    const Tensor& gate, const Tensor& up, Activation);
  // y = alpha_p x^2 + x / 2 where x is above 0, else alpha_n (exp(x) - 1 - x) + x / 2, with alpha_p =
  // softplus(positive) and alpha_n = 1 / 2 + softplus(negative) of numbers [1] in the dtype of x. Source: Huang and
  // Schlag, "Deriving Activation Functions Using Integration", 2024.
  void (*xielu)(Stream&, const Tensor& y, const Tensor& x, const Tensor& positive, const Tensor& negative);
  // dpositive and dnegative, [T] f32, optional together: what each row of x [T, C] adds to the gradients of the two.
  void (*xielu_backward)(Stream&, const Tensor& dx, const Tensor& dpositive, const Tensor& dnegative,
                         const Tensor& dy, const Tensor& x, const Tensor& positive, const Tensor& negative);
  void (*softcap)(Stream&, const Tensor& y, const Tensor& x, float cap);  // y = cap tanh(x / cap); y may be x
  // dx = dy (1 - (y / cap)^2); dx may be dy
  void (*softcap_backward)(Stream&, const Tensor& dx, const Tensor& dy, const Tensor& y, float cap);
  void (*dropout)(Stream&, const Tensor& y, const Tensor& x, const DropoutKey&);  // its own backward; y may be x

  // ---- tokens and loss ----
  // y[t] = table[ids[t]] + (position_table ? position_table[positions[t]] : 0)
  void (*embedding)(Stream&, const Tensor& y, const Tensor& table, const TableRows& ids, const Tensor& position_table,
                    const int32_t* positions);
  // The same of a table in blocks.
  void (*embedding_of_blocks)(Stream&, const Tensor& y, const BlockMatrix& table, const TableRows& ids);
  // dtable[ids[t]] += dy[t], in the order of t
  void (*embedding_backward)(Stream&, const Tensor& dtable, const Tensor& dy, const TableRows& ids);
  // losses[t] = -log softmax(logits[t])[targets[t]]; a target of -1 is ignored: loss 0, gradient 0.
  // With `dlogits_scale` != 0, logits become (softmax - one_hot) * dlogits_scale in place.
  void (*cross_entropy)(Stream&, const Tensor& losses, const Tensor& logits, const int32_t* targets,
                        float dlogits_scale);
  // Cross entropy of a vocabulary whose columns lie on several ranks. These logits [T, V here] are the columns from
  // `first_column` on; V here may be 0; a target counts among all columns. Ranks combine the stats of a row, [T, 3]:
  // the maximum (-inf of no columns), the sum of exp(logit - maximum), and the logit of the target or 0 where the
  // target is not among these columns.
  void (*cross_entropy_stats)(Stream&, const Tensor& stats, const Tensor& logits, const int32_t* targets,
                              int64_t first_column);
  // What the stats of all parts, [parts, T, 3], say together: the losses [T], 0 where the target is -1, and lse [T].
  void (*cross_entropy_combine)(Stream&, const Tensor& losses, const Tensor& lse, const Tensor& stats,
                                const int32_t* targets);
  // logits become (exp(logit - lse) - one_hot) * factors[t] * dlogits_scale in place, 0 where the target is -1; lse
  // [T] is the log-sum-exp of the whole row, as are the optional factors f32 (f64 beside f64): 1 where there are
  // none.
  void (*cross_entropy_gradient)(Stream&, const Tensor& logits, const Tensor& lse, const Tensor& factors,
                                 const int32_t* targets, int64_t first_column, float dlogits_scale);

  // What the choice of the next tokens needs of rows of logits, so that a device tells no more of them.
  void (*find_tokens)(Stream&, const FindTokensArgs&);
  // Ids for `embedding` where tensors lie, i32 [T], of tokens that the host knows and others that it does not yet:
  // ids[t] = said[t] (host memory) where that is a token, else that of found[-1 - said[t]]; found: as find_tokens
  // leaves it, [queries, bytes of FoundTokens] u8.
  void (*place_tokens)(Stream&, const Tensor& ids, const int32_t* said, const Tensor& found);

  // ---- experts ----
  void (*route)(Stream&, const RouteArgs&);
  void (*route_backward)(Stream&, const RouteBackwardArgs&);
  void (*order_by_group)(Stream&, const GroupOrderArgs&);
  // y[t] = sum over the copies j of token t of weights[t, j] * x[row of the copy], 0 without copies. weights [T, k]
  // f32; optional: 1.
  void (*combine_rows)(Stream&, const Tensor& y, const Tensor& x, const RowCopies&, const Tensor& weights);
  // dx[row of the copy] = weights[t, j] * dy[t], dweights[t, j] = dy[t] . x[row of the copy], 0 without a copy. Rows
  // of dx that are no copy are left alone. Optional: dx, or dweights and x.
  void (*combine_rows_backward)(Stream&, const Tensor& dx, const Tensor& dweights, const Tensor& dy, const Tensor& x,
                                const RowCopies&, const Tensor& weights);

  // ---- element-wise and reductions ----
  void (*add)(Stream&, const Tensor& y, const Tensor& a, const Tensor& b);  // y may be a or b
  void (*accumulate)(Stream&, const Tensor& sum, const Tensor& x);          // sum += x; sum is f32 (f64 beside f64)
  void (*scale)(Stream&, const Tensor& y, const Tensor& x, float factor);   // y may be x
  void (*convert)(Stream&, const Tensor& y, const Tensor& x);               // any float dtype to any other
  void (*fill)(Stream&, const Tensor& y, float value);
  // y[c] = sum of x[r, c] over rows r, f32: the gradient of a bias
  void (*sum_rows)(Stream&, const Tensor& y, const Tensor& x, bool accumulate);
  // y[t, c] = x[t, c] * factors[c]; y may be x, factors [C] is f32 (f64 beside f64)
  void (*scale_columns)(Stream&, const Tensor& y, const Tensor& x, const Tensor& factors);
  // y[c] = sum of a[t, c] * b[t, c] over rows t, and y[t] = that over columns c; f32 (f64 beside f64)
  void (*dot_columns)(Stream&, const Tensor& y, const Tensor& a, const Tensor& b, bool accumulate);
  void (*dot_rows)(Stream&, const Tensor& y, const Tensor& a, const Tensor& b);
  // Of all elements of all xs, in double; not finite exactly when an element is not finite (or the sum overflows
  // double). A device is waited for once.
  double (*sum_of_squares)(Stream&, std::span<const Tensor> xs);

  // ---- optimizer ----
  // Masters x [n] f32 as bf16 values and the 16 bits below them, u16, and back: see master_halves.h.
  void (*split_masters)(Stream&, const Tensor& upper, const Tensor& lower, const Tensor& x);
  void (*join_masters)(Stream&, const Tensor& x, const Tensor& upper, const Tensor& lower);
  // Decoupled weight decay: master -= lr * (m_hat / (sqrt(v_hat) + eps) + weight_decay * master), in one pass.
  // Source: Loshchilov and Hutter, 2019.
  void (*adamw)(Stream&, const AdamWArgs&);
  // The same with moments of 8 bits. Source: Dettmers et al., 2021.
  void (*adamw8)(Stream&, const AdamW8Args&);
  void (*sgd)(Stream&, const SgdArgs&);
  void (*lion)(Stream&, const LionArgs&);  // Source: Chen et al., 2023
  // Codes of 8 bits to numbers and back: x [n] f32, codes [n] u8, scales [blocks] f32. See block_codes.h.
  void (*encode_blocks)(Stream&, const Tensor& codes, const Tensor& scales, const Tensor& x, bool is_signed);
  void (*decode_blocks)(Stream&, const Tensor& x, const Tensor& codes, const Tensor& scales, bool is_signed);
  // Of Adafactor, for a part of a matrix. Source: Shazeer and Stern, 2018. First: rows and cols += the sums of
  // (x * scale)^2 over each row and column.
  void (*add_factor_sums)(Stream&, const MatrixPiece&);
  void (*factor_moment)(Stream&, const FactorMomentArgs&);
  // The sum of (x * scale * row * col)^2, in double.
  double (*factored_squares)(Stream&, const MatrixPiece&);
  void (*adafactor)(Stream&, const AdafactorArgs&);
};

// An entry for several of a table that gains nothing by doing them together.
template <auto kOne>
struct Each;
template <class Args, void (*kOne)(Stream&, const Args&)>
struct Each<kOne> {
  static void call(Stream& stream, std::span<const Args> all) {
    for (const Args& args : all) kOne(stream, args);
  }
};
template <auto kOne>
inline constexpr auto each = Each<kOne>::call;

// The tables. Each throws Error saying what to install or configure when it was not built.
const Kernels& reference_kernels();  // plain loops in double precision: the oracle
const Kernels& cpu_kernels();        // SIMD and threads
const Kernels& meta_kernels();       // counts FLOPs and bytes into Stream::cost; touches no data
const Kernels& cuda_kernels();
bool has_cudnn();  // whether the cuda table may use fused kernels of cuDNN; else all of attention is its own
const Kernels& kernels_of(Device device);

}  // namespace weft
