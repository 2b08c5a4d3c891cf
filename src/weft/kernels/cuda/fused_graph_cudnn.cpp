// fused_graph: the operations of attention and of its gradients in the order in which cuDNN looks for them.
// Source: NVIDIA, "cuDNN Developer Guide", 9.19, "Fused Flash Attention".
#include "weft/kernels/cuda/fused_graph_cudnn.h"

namespace weft::cuda {
namespace {

using Tensor = CudnnGraph::Tensor;

class AttentionGraph {
 public:
  explicit AttentionGraph(const FusedKey& key)
      : key_(key), io_(key.type == DType::f16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16) {
    if (!key.is_ragged) return;
    const auto numbers = [&](int64_t id, int64_t count) {
      return graph.memory(id, CUDNN_DATA_INT32, CudnnGraph::packed({count, 1, 1, 1}));
    };
    q_begin_ = numbers(kQBegin, key.sequences + 1), k_begin_ = numbers(kKBegin, key.sequences + 1);
    v_begin_ = numbers(kVBegin, key.sequences + 1), y_begin_ = numbers(kYBegin, key.sequences + 1);
    lse_begin_ = numbers(kLseBegin, key.sequences + 1);
    num_queries_ = numbers(kNumQueries, key.sequences), num_keys_ = numbers(kNumKeys, key.sequences);
  }

  void forward() {
    const Tensor q = query_rows(kQ), k = key_rows(kK, true), v = key_rows(kV), y = output_rows(kY);
    const Tensor scores = masked(scaled_scores(q, k), {});
    const Tensor most = graph.reduce(CUDNN_REDUCE_TENSOR_MAX, scores, rows());
    const Tensor terms = exp(graph.pointwise(CUDNN_POINTWISE_SUB, {scores, most}));
    const Tensor sum = graph.reduce(CUDNN_REDUCE_TENSOR_ADD, terms, rows());
    graph.pointwise(CUDNN_POINTWISE_ADD, {most, graph.pointwise(CUDNN_POINTWISE_LOG, {sum})}, CUDNN_DATA_FLOAT,
                    row_numbers());
    const Tensor p = graph.pointwise(CUDNN_POINTWISE_DIV, {terms, sum}, io_);
    graph.matmul(p, v, {.m = num_queries_, .n = {}, .k = num_keys_}, io_, y);
  }

  // Without a sum of dq in memory that several blocks add to: dq's product is then made in a fixed order.
  void backward() {
    const Tensor q = query_rows(kQ), k = key_rows(kK, true), v = key_rows(kV, true), y = output_rows(kY);
    const Tensor dy = output_rows(kDy), lse = row_numbers();
    const Tensor per_row =
        graph.reduce(CUDNN_REDUCE_TENSOR_ADD, graph.pointwise(CUDNN_POINTWISE_MUL, {dy, y}), rows());
    const Tensor row_sums = graph.memory(kRowSums, CUDNN_DATA_FLOAT, CudnnGraph::packed(rows()));
    // Where dropout would scale: without this product plans take more than twice the workspace.
    graph.pointwise(CUDNN_POINTWISE_MUL, {per_row, graph.number(kOne)}, CUDNN_DATA_FLOAT, row_sums);

    const Tensor scale = graph.number(kScale);
    const Tensor p = exp(masked(scaled_scores(q, k, scale), lse));
    join_heads(graph.matmul(graph.transpose(p, io_), dy, {.m = num_keys_, .n = {}, .k = num_queries_}, io_,
                            sum_of_keys(kDv)),
               kDv);
    const Tensor dp = graph.matmul(dy, v, {.m = num_queries_, .n = num_keys_, .k = {}});
    const Tensor centred = graph.pointwise(CUDNN_POINTWISE_SUB, {dp, row_sums});
    const Tensor ds =
        graph.pointwise(CUDNN_POINTWISE_MUL, {graph.pointwise(CUDNN_POINTWISE_MUL, {centred, p}), scale});
    join_heads(graph.matmul(graph.transpose(ds, io_), q, {.m = num_keys_, .n = {}, .k = num_queries_}, io_,
                            sum_of_keys(kDk)),
               kDk);
    graph.matmul(ds, graph.transpose(k, io_), {.m = num_queries_, .n = {}, .k = num_keys_}, io_, query_rows(kDq));
  }

  CudnnGraph graph;

 private:
  std::array<int64_t, 4> rows() const { return {key_.sequences, key_.heads, key_.queries, 1}; }

  CudnnGraph::Layout layout(int64_t heads, int64_t row_heads, int64_t count, int64_t dim) const {
    const int64_t row = row_heads * dim;
    return {{key_.sequences, heads, count, dim}, {count * row, dim, row, 1}};
  }
  // q and dq; y and dy.
  Tensor query_rows(int64_t id) {
    return graph.memory(id, io_, layout(key_.heads, key_.row_heads, key_.queries, key_.dim), q_begin_);
  }
  Tensor output_rows(int64_t id) {
    return graph.memory(id, io_, layout(key_.heads, key_.row_heads, key_.queries, key_.value_dim), y_begin_);
  }
  // k and dk, v and dv; turned: as [dim, keys].
  Tensor key_rows(int64_t id, bool is_turned = false) {
    const bool is_value = id == kV || id == kDv;
    CudnnGraph::Layout l = layout(key_.kv_heads, key_.row_kv_heads, key_.keys, is_value ? key_.value_dim : key_.dim);
    if (is_turned) std::swap(l.dims[2], l.dims[3]), std::swap(l.strides[2], l.strides[3]);
    return graph.memory(id, io_, l, is_value ? v_begin_ : k_begin_);
  }
  Tensor row_numbers() {
    return graph.memory(kLse, CUDNN_DATA_FLOAT, {rows(), {key_.queries, key_.lse_stride, 1, 1}}, lse_begin_);
  }

  Tensor scaled_scores(Tensor q, Tensor k) { return scaled_scores(q, k, graph.number(kScale)); }
  Tensor scaled_scores(Tensor q, Tensor k, Tensor scale) {
    const Tensor products = graph.matmul(q, k, {.m = num_queries_, .n = num_keys_, .k = {}});
    return graph.pointwise(CUDNN_POINTWISE_MUL, {products, scale});
  }

  Tensor exp(Tensor x) { return graph.pointwise(CUDNN_POINTWISE_EXP, {x}); }

  // Minus infinity where no key is, and where one is not seen; `less` is taken from each row in between.
  Tensor masked(Tensor scores, std::optional<Tensor> less) {
    if (key_.is_ragged) {
      const Tensor row = graph.index(scores, 2), col = graph.index(scores, 3);
      const Tensor is_row = graph.pointwise(CUDNN_POINTWISE_CMP_LT, {row, *num_queries_}, CUDNN_DATA_BOOLEAN);
      const Tensor is_col = graph.pointwise(CUDNN_POINTWISE_CMP_LT, {col, *num_keys_}, CUDNN_DATA_BOOLEAN);
      const Tensor is_there = graph.pointwise(CUDNN_POINTWISE_LOGICAL_AND, {is_row, is_col}, CUDNN_DATA_BOOLEAN);
      scores = graph.pointwise(CUDNN_POINTWISE_BINARY_SELECT, {scores, graph.number(kPadding), is_there});
    }
    if (less) scores = graph.pointwise(CUDNN_POINTWISE_SUB, {scores, *less});
    if (key_.is_causal) {
      const Tensor row = graph.index(scores, 2), col = graph.index(scores, 3);
      const Tensor is_seen = graph.pointwise(CUDNN_POINTWISE_CMP_GE, {row, col}, CUDNN_DATA_BOOLEAN);
      scores = graph.pointwise(CUDNN_POINTWISE_BINARY_SELECT, {scores, graph.number(kUnseen), is_seen});
    }
    if (key_.window > 0) {
      const Tensor row = graph.index(scores, 2), col = graph.index(scores, 3);
      const Tensor reach = graph.pointwise(CUDNN_POINTWISE_ADD, {col, graph.number(kWindow)});
      const Tensor is_near = graph.pointwise(CUDNN_POINTWISE_CMP_GT, {reach, row}, CUDNN_DATA_BOOLEAN);
      scores = graph.pointwise(CUDNN_POINTWISE_BINARY_SELECT, {scores, graph.number(kPassed), is_near});
    }
    return scores;
  }

  // Gradients of keys: of each query head first, where several share one of k's.
  std::optional<Tensor> sum_of_keys(int64_t id) {
    if (key_.heads != key_.kv_heads) return {};
    return key_rows(id);
  }
  void join_heads(Tensor of_each, int64_t id) {
    if (key_.heads == key_.kv_heads) return;
    const int64_t dim = id == kDv ? key_.value_dim : key_.dim;
    graph.reduce(CUDNN_REDUCE_TENSOR_ADD, of_each, {key_.sequences, key_.kv_heads, key_.keys, dim}, key_rows(id));
  }

  const FusedKey key_;
  const cudnnDataType_t io_;
  std::optional<Tensor> q_begin_, k_begin_, v_begin_, y_begin_, lse_begin_, num_queries_, num_keys_;
};

}  // namespace

CudnnGraph fused_graph(const FusedKey& key) {
  AttentionGraph attention(key);
  key.is_backward ? attention.backward() : attention.forward();
  return std::move(attention.graph);
}

}  // namespace weft::cuda
