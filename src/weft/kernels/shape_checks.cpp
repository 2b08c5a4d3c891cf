// Shape checks: what every kernel of the table demands of its arguments, said once for the backends that check.
// Those of attention, states and optimizers have files of their own.
#include "weft/kernels/checked_op.h"

namespace weft::shapes {
namespace {

void check_epilogue(const Op& op, const MatmulArgs& args) {
  using Kind = Epilogue::Kind;
  const Epilogue& e = args.epilogue;
  if (e.bias) op.count("bias", e.bias, args.y.dim(1));
  if (args.accumulate)
    op.that(e.kind == Kind::none && !e.bias, "accumulate goes with neither an epilogue nor a bias");
  const bool is_gated = e.kind == Kind::gated || e.kind == Kind::gated_backward;
  if (e.kind == Kind::activate || e.kind == Kind::gated) op.shape("act", e.act, args.y.shape());
  if (is_gated) op.shape("gate", e.gate, args.y.shape());
  if (e.kind == Kind::activate_backward) op.shape("pre", e.pre, args.y.shape());
  if (e.kind == Kind::gated_backward) {
    op.shape("up", e.up, args.y.shape());
    op.shape("dgate", e.dgate, args.y.shape());
  }
}

void check_block_matrix(const Op& op, std::string_view name, const BlockMatrix& b, int64_t rows, int64_t cols) {
  if (b.rows != rows || b.cols != cols)
    throw Error("{}: {} is [{}, {}], but must be [{}, {}]", op.name, name, b.rows, b.cols, rows, cols);
  if (b.skip < 0 || b.skip >= block_elements(b.type))
    throw Error("{}: {} skips a whole block or less than nothing", op.name, name);
  if (b.blocks.dtype() != DType::u8 || b.blocks.numel() != b.rows * b.row_bytes())
    throw Error("{}: the blocks of {} are not rows of so many blocks", op.name, name);
}

void check_blocks_b(const Op& op, const MatmulArgs& args, int64_t n, int64_t k) {
  const BlockMatrix& b = args.blocks_b;
  op.that(args.transpose_b && !args.transpose_a, "blocks_b is multiplied as b transposed, with a as it is");
  op.that(!args.packed_b && !args.nf4_b, "blocks_b takes the place of packed_b and nf4_b");
  check_block_matrix(op, "blocks_b", b, n, k);
  if (b.type == BlockType::int8 && b.cols > kMostInt8Cols)
    throw Error("{}: an int8 matrix of {} columns, but {} are the most", op.name, b.cols, kMostInt8Cols);
}

void check_ids(const Op& op, const Tensor& y, const TableRows& ids, int64_t rows_here) {
  const bool is_of_device = ids.is_on_device && y.device() == Device::cuda;  // whose kernels made them
  if (!is_of_device) op.indices(y, "ids", ids.ids, y.dim(0), 0, ids.total ? ids.total : rows_here);
}

}  // namespace

void check_alike(std::string_view name, std::initializer_list<Named> tensors) {
  const Op op{name};
  const Tensor& first = tensors.begin()->tensor;
  op.present(tensors.begin()->name, first);
  for (const Named& t : tensors) op.like(t.name, t.tensor, first);
}

void check_matmul(const MatmulArgs& args) {
  const Op op{"matmul"};
  op.that(!(args.transpose_a && args.transpose_b), "transposing both a and b is not supported");
  op.rank("y", args.y, 2);
  op.rank("a", args.a, 2);
  const int64_t m = args.y.dim(0), n = args.y.dim(1), k = args.a.dim(args.transpose_a ? 0 : 1);
  op.shape("a", args.a, args.transpose_a ? Shape{k, m} : Shape{m, k});
  const Shape b = args.transpose_b ? Shape{n, k} : Shape{k, n};
  if (args.blocks_b) {
    check_blocks_b(op, args, n, k);
  } else if (args.nf4_b) {
    const nf4::Layout& layout = *args.nf4_b.layout;
    op.that(layout.rows() == b[0] && layout.cols() == b[1], "nf4_b has another shape than the product needs");
    op.that(
        args.nf4_b.blocks && args.nf4_b.blocks.dtype() == DType::u8 && args.nf4_b.blocks.numel() == layout.bytes(),
        "nf4_b.blocks are not those of its layout");
    op.shape("nf4_b.scales", args.nf4_b.scales, {nf4::num_groups(layout.whole_numel()) + 1});
  } else if (args.b || !args.packed_b) {
    op.shape("b", args.b, b);
    op.dtype("b", args.b, args.a.dtype());
  }
  if (args.y.dtype() != DType::f32) op.dtype("y", args.y, args.a.dtype());
  if (args.float8) {
    op.that(args.b && !args.packed_b && !args.nf4_b && !args.blocks_b, "float8 rounds b, which must be given plain");
    op.dtype("a", args.a, DType::bf16);
  }
  check_epilogue(op, args);
}

void check_matmuls_of_one_a(std::span<const MatmulArgs> products) {
  const Op op{"matmuls_of_one_a"};
  op.that(!products.empty() && products.size() <= kMostMatmulsOfOneA, "so many products are not made at once");
  for (const MatmulArgs& product : products) {
    check_matmul(product);
    op.that(product.a.raw() == products[0].a.raw() && product.a.shape() == products[0].a.shape(),
            "products have one a");
    op.that(!product.transpose_a, "a is not transposed");
  }
}

void check_accumulate(const Tensor& sum, const Tensor& x) {
  const Op op{"accumulate"};
  op.present("x", x);
  op.shape("sum", sum, x.shape());
  op.statistic("sum", sum, x.numel(), x);
}

void check_norm(const NormArgs& args) {
  const Op op{args.kind == NormKind::rms ? "rms norm" : "layer norm"};
  op.present("x", args.x);
  op.like("y", args.y, args.x);
  if (args.residual) {
    op.like("residual", args.residual, args.x);
    op.like("sum", args.sum, args.x);
  }
  op.count("weight", args.weight, args.x.cols());
  if (args.bias) op.count("bias", args.bias, args.x.cols());
  op.statistic("rstd", args.rstd, args.x.rows(), args.x);
  if (args.kind == NormKind::layer) op.statistic("mean", args.mean, args.x.rows(), args.x);
}

void check_norm_backward(const NormBackwardArgs& args) {
  const Op op{args.kind == NormKind::rms ? "rms norm backward" : "layer norm backward"};
  op.present("x", args.x);
  op.like("dx", args.dx, args.x);
  op.like("dy", args.dy, args.x);
  if (args.dsum) op.like("dsum", args.dsum, args.x);
  op.count("weight", args.weight, args.x.cols());
  if (args.dweight) op.statistic("dweight", args.dweight, args.x.cols(), args.x);
  if (args.dbias) op.statistic("dbias", args.dbias, args.x.cols(), args.x);
  op.statistic("rstd", args.rstd, args.x.rows(), args.x);
  if (args.kind == NormKind::layer) op.statistic("mean", args.mean, args.x.rows(), args.x);
}

void check_xielu(const Tensor& y, const Tensor& x, const Tensor& positive, const Tensor& negative) {
  const Op op{"xielu"};
  op.present("x", x);
  op.like("y", y, x);
  op.count("positive", positive, 1);
  op.dtype("positive", positive, x.dtype());
  op.like("negative", negative, positive);
}

void check_xielu_backward(const Tensor& dx, const Tensor& dpositive, const Tensor& dnegative, const Tensor& dy,
                          const Tensor& x, const Tensor& positive, const Tensor& negative) {
  const Op op{"xielu_backward"};
  check_xielu(dx, x, positive, negative);
  op.like("dy", dy, x);
  op.that(bool(dpositive) == bool(dnegative), "dpositive and dnegative are given together");
  if (!dpositive) return;
  op.statistic("dpositive", dpositive, x.rows(), x);
  op.statistic("dnegative", dnegative, x.rows(), x);
}

void check_dropout(const Tensor& y, const Tensor& x, const DropoutKey& key) {
  check_alike("dropout", {{"x", x}, {"y", y}});
  Op{"dropout"}.probability(key.p);
}

void check_embedding(const Tensor& y, const Tensor& table, const TableRows& ids, const Tensor& position_table,
                     const int32_t* positions) {
  const Op op{"embedding"};
  op.rank("y", y, 2);
  op.rank("table", table, 2);
  op.shape("table", table, {table.dim(0), y.dim(1)});
  op.dtype("table", table, y.dtype());
  check_ids(op, y, ids, table.dim(0));
  if (!position_table) return;
  op.rank("position_table", position_table, 2);
  op.shape("position_table", position_table, {position_table.dim(0), y.dim(1)});
  op.dtype("position_table", position_table, y.dtype());
  op.indices(y, "positions", positions, y.dim(0), 0, position_table.dim(0));
}

void check_embedding_of_blocks(const Tensor& y, const BlockMatrix& table, const TableRows& ids) {
  const Op op{"embedding_of_blocks"};
  op.rank("y", y, 2);
  check_block_matrix(op, "table", table, table.rows, y.dim(1));
  check_ids(op, y, ids, table.rows);
}

void check_embedding_backward(const Tensor& dtable, const Tensor& dy, const TableRows& ids) {
  const Op op{"embedding_backward"};
  op.rank("dtable", dtable, 2);
  op.rank("dy", dy, 2);
  op.shape("dtable", dtable, {dtable.dim(0), dy.dim(1)});
  op.statistic("dtable", dtable, dtable.numel(), dy);
  op.indices(dy, "ids", ids.ids, dy.dim(0), 0, ids.total ? ids.total : dtable.dim(0));
}

void check_cross_entropy(const Tensor& losses, const Tensor& logits, const int32_t* targets) {
  const Op op{"cross_entropy"};
  op.rank("logits", logits, 2);
  op.statistic("losses", losses, logits.dim(0), logits);
  op.indices(logits, "targets", targets, logits.dim(0), -1, logits.dim(1));
}

namespace {

// Of a row, these are the columns from `first_column` on: a target may lie in any other.
void check_columns(const Op& op, const Tensor& logits, const int32_t* targets, int64_t first_column) {
  op.rank("logits", logits, 2);
  op.indices(logits, "targets", targets, logits.dim(0), -1, std::numeric_limits<int32_t>::max());
  op.that(first_column >= 0, "first_column is negative");
}

}  // namespace

void check_cross_entropy_stats(const Tensor& stats, const Tensor& logits, const int32_t* targets,
                               int64_t first_column) {
  const Op op{"cross_entropy_stats"};
  check_columns(op, logits, targets, first_column);
  op.shape("stats", stats, {logits.dim(0), 3});
  op.statistic("stats", stats, 3 * logits.dim(0), logits);
}

void check_cross_entropy_combine(const Tensor& losses, const Tensor& lse, const Tensor& stats) {
  const Op op{"cross_entropy_combine"};
  op.rank("stats", stats, 3);
  op.shape("stats", stats, {stats.dim(0), lse.numel(), 3});
  op.like("losses", losses, lse);
  op.dtype("stats", stats, lse.dtype());
}

void check_cross_entropy_gradient(const Tensor& logits, const Tensor& lse, const Tensor& factors,
                                  const int32_t* targets, int64_t first_column) {
  const Op op{"cross_entropy_gradient"};
  check_columns(op, logits, targets, first_column);
  op.statistic("lse", lse, logits.dim(0), logits);
  if (factors) op.statistic("factors", factors, logits.dim(0), logits);
}

void check_find_tokens(const FindTokensArgs& args) {
  const Op op{"find_tokens"};
  const auto queries = int64_t(args.queries.size());
  const auto masks = int64_t(args.masks.size()) / std::max<int64_t>(args.mask_words(), 1);
  op.rank("logits", args.logits, 2);
  op.dtype("logits", args.logits, DType::f32);
  op.that(args.vocab > 0 && args.vocab <= args.logits.dim(1), "there are not as many columns as tokens");
  op.dtype("found", args.found, DType::u8);
  op.dims("found", args.found, {queries, int64_t(sizeof(FoundTokens))});
  for (const TokenQuery& q : args.queries) {
    op.that(q.row >= 0 && q.row < args.logits.dim(0), "a query is about a row that is not there");
    op.that(q.first_change >= 0 && q.first_change + q.num_changes() <= int64_t(args.changes.size()),
            "a query has changes that are not there");
    op.that(q.mask < masks, "a query has a mask that is not there");
    op.that(q.want != TokenQuery::Want::given || (q.given >= 0 && q.given < args.vocab),
            "a query is about a token that is not there");
  }
}

void check_place_tokens(const Tensor& ids, const int32_t* said, const Tensor& found) {
  const Op op{"place_tokens"};
  op.dtype("ids", ids, DType::i32);
  op.dims("ids", ids, {ids.numel()});
  op.dtype("found", found, DType::u8);
  op.dims("found", found, {found.dim(0), int64_t(sizeof(FoundTokens))});
  for (int64_t t = 0; t < ids.numel(); ++t)
    op.that(said[t] >= -found.dim(0), "a token is one that was not looked for");
}

void check_route(const RouteArgs& args) {
  const Op op{"route"};
  op.rank("logits", args.logits, 2);
  op.rank("weights", args.weights, 2);
  const int64_t tokens = args.logits.dim(0), k = args.weights.dim(1);
  op.that(args.logits.dtype() == DType::f32 || args.logits.dtype() == DType::f64, "logits must hold f32 or f64");
  op.like("scores", args.scores, args.logits);
  op.shape("weights", args.weights, {tokens, k});
  op.dtype("weights", args.weights, args.logits.dtype());
  if (args.bias) op.statistic("bias", args.bias, args.logits.dim(1), args.logits);
  if (args.factors) op.statistic("factors", args.factors, args.logits.dim(1), args.logits);
  if (k < 1 || k > args.logits.dim(1) || k > kMostExpertsPerToken)
    throw Error("{}: {} experts for each token, but there are {} and at most {} are supported", op.name, k,
                args.logits.dim(1), kMostExpertsPerToken);
  op.that(tokens == 0 || args.experts || args.chosen, "experts is null");
  op.that(!args.chosen || (args.chosen.shape() == Shape{tokens, k} && args.chosen.dtype() == DType::i32),
          "chosen must hold an i32 to each choice");
  op.that(!args.are_given || !args.chosen, "experts that are given lie on the host");
  for (int64_t i = 0; args.are_given && i < tokens * k; ++i)
    op.that(args.experts[i] >= 0 && args.experts[i] < args.logits.dim(1), "an expert that is given is none of them");
  const int64_t groups = args.rule.groups, chosen = args.rule.groups_per_token;
  if (groups < 1 || args.logits.dim(1) % groups != 0 || chosen < 1 || chosen > groups ||
      args.logits.dim(1) / groups * chosen < k)
    throw Error("{}: {} of {} groups of {} experts cannot serve a token with {}", op.name, chosen, groups,
                args.logits.dim(1), k);
}

void check_route_backward(const RouteBackwardArgs& args) {
  const Op op{"route backward"};
  op.rank("logits", args.logits, 2);
  const int64_t tokens = args.logits.dim(0), experts = args.logits.dim(1);
  op.like("scores", args.scores, args.logits);
  op.like("dlogits", args.dlogits, args.logits);
  if (args.dweights) {
    op.shape("dweights", args.dweights, {tokens, args.k});
    op.dtype("dweights", args.dweights, args.logits.dtype());
  }
  op.indices(args.logits, "experts", args.experts, tokens * args.k, 0, experts);
  if (args.factors) op.statistic("factors", args.factors, experts, args.logits);
  if (args.dfactors) op.like("dfactors", args.dfactors, args.logits);
  op.that(!args.dfactors || (args.dweights && args.factors), "dfactors are made of dweights, beside factors");
  if (!args.balance) return;
  op.rank("balance", args.balance, 2);
  op.shape("balance", args.balance, {args.balance.dim(0), experts});
  op.dtype("balance", args.balance, args.logits.dtype());
  op.indices(args.logits, "rows", args.rows, tokens, 0, args.balance.dim(0));
}

void check_order_by_group(const GroupOrderArgs& args) {
  const Op op{"order_by_group"};
  op.that(args.chosen && args.chosen.shape().rank() == 2, "chosen must be given, with two dims");
  const int64_t copies = args.chosen.numel();
  op.dims("at", args.at, args.chosen.shape());
  op.dims("tokens", args.tokens, {copies});
  op.dims("runs", args.runs, {copies, 3});
  for (const Tensor& t : {args.chosen, args.at, args.tokens, args.runs}) op.dtype("numbers", t, DType::i32);
  op.that(args.groups >= 0 && args.groups <= kMostOrderedGroups, "so many groups are not put in order");
}

void check_combine_rows(const Tensor& y, const Tensor& x, const RowCopies& copies, const Tensor& weights) {
  const Op op{"combine_rows"};
  op.rank("y", y, 2);
  op.rank("x", x, 2);
  op.shape("x", x, {x.dim(0), y.dim(1)});
  op.dtype("x", x, y.dtype());
  if (weights) {
    op.shape("weights", weights, {y.dim(0), copies.k});
    op.statistic("weights", weights, weights.numel(), y);
  }
  if (!copies.is_on_device || y.device() != Device::cuda)
    op.indices(y, "copies", copies.at, y.dim(0) * copies.k, -1, x.dim(0));
}

void check_combine_rows_backward(const Tensor& dx, const Tensor& dweights, const Tensor& dy, const Tensor& x,
                                 const RowCopies& copies, const Tensor& weights) {
  check_combine_rows(dy, x ? x : dx, copies, weights);
  const Op op{"combine_rows backward"};
  op.present("weights", weights);
  if (x && dx) op.like("dx", dx, x);
  op.that(bool(x) == bool(dweights), "gradients of weights are of x");
  if (dweights) op.like("dweights", dweights, weights);
}

void check_convert(const Tensor& y, const Tensor& x) {
  const Op op{"convert"};
  op.present("x", x);
  op.shape("y", y, x.shape());
}

void check_fill(const Tensor& y) { Op{"fill"}.present("y", y); }

void check_sum_rows(const Tensor& y, const Tensor& x) {
  const Op op{"sum_rows"};
  op.present("x", x);
  op.statistic("y", y, x.cols(), x);
}

void check_scale_columns(const Tensor& y, const Tensor& x, const Tensor& factors) {
  const Op op{"scale_columns"};
  op.present("x", x);
  op.like("y", y, x);
  op.statistic("factors", factors, x.cols(), x);
}

void check_dot_columns(const Tensor& y, const Tensor& a, const Tensor& b) {
  const Op op{"dot_columns"};
  op.present("a", a);
  op.like("b", b, a);
  op.statistic("y", y, a.cols(), a);
}

void check_dot_rows(const Tensor& y, const Tensor& a, const Tensor& b) {
  const Op op{"dot_rows"};
  op.present("a", a);
  op.like("b", b, a);
  op.statistic("y", y, a.rows(), a);
}

void check_sum_of_squares(std::span<const Tensor> xs) {
  for (const Tensor& x : xs) Op{"sum_of_squares"}.present("x", x);
}

}  // namespace weft::shapes
