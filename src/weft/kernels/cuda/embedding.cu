// Rows of a table chosen by ids, and the sum of their gradients, each row's in the order of its tokens.
#include <algorithm>
#include <vector>

#include "weft/kernels/cuda/block_rows.cuh"
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/rows.cuh"
#include "weft/kernels/cuda/token_lists.h"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

template <class T>
struct Embedding {
  T* y;
  const T *table, *position_table;
  const int32_t *ids, *positions;
  int64_t first, table_rows, tokens, cols;
};

template <class T, int N, bool kIsWarp>
__global__ void embedding_kernel(const Embedding<T> a) {
  const Worker<kIsWarp> worker;
  const int64_t t = worker.index;
  if (t >= a.tokens) return;
  const int64_t row = a.ids[t] - a.first;
  const bool is_here = row >= 0 && row < a.table_rows;
  for (int64_t c = worker.rank * N; c < a.cols; c += worker.size * N) {
    float x[N] = {}, position[N] = {};
    if (is_here) load_n(x, a.table + row * a.cols + c);
    if (a.position_table) load_n(position, a.position_table + int64_t(a.positions[t]) * a.cols + c);
    for (int i = 0; i < N; ++i) x[i] += position[i];
    store_n(a.y + t * a.cols + c, x);
  }
}

// A chunk of a row to each thread; rows have `chunks` of them.
template <class T, class Rows>
__global__ void embedding_of_blocks_kernel(T* y, const Rows table, const int32_t* ids, int64_t first,
                                           int64_t table_rows, int64_t tokens, int64_t chunks) {
  for (int64_t i = first_element(); i < tokens * chunks; i += element_stride()) {
    const int64_t t = i / chunks, row = ids[t] - first;
    const auto chunk = unsigned(i % chunks);
    float x[kChunk] = {};
    if (row >= 0 && row < table_rows) floats_of_columns(table, row, chunk, x);
    const int64_t col = int64_t(chunk) * kChunk - table.skip;
    for (int j = 0; j < kChunk; ++j)
      if (col + j >= 0 && col + j < table.cols) store(y + t * table.cols + col + j, x[j]);
  }
}

// A block to each row that has tokens, and to a tile of columns.
template <class T, int N>
__global__ void embedding_backward_kernel(float* dtable, const T* dy, const TokenList* lists, const int32_t* tokens,
                                          int64_t cols) {
  const TokenList list = lists[blockIdx.x];
  const int64_t c = (int64_t(blockIdx.y) * blockDim.x + threadIdx.x) * N;
  if (c >= cols) return;
  float* const to = dtable + list.row * cols + c;
  float sum[N];
  load_n(sum, to);
  for (int32_t i = list.begin; i < list.end; ++i) {
    float x[N];
    load_n(x, dy + int64_t(tokens[i]) * cols + c);
    for (int j = 0; j < N; ++j) sum[j] += x[j];
  }
  store_n(to, sum);
}

}  // namespace

void embedding(Stream& stream, const Tensor& y, const Tensor& table, const TableRows& ids,
               const Tensor& position_table, const int32_t* positions) {
  shapes::check_embedding(y, table, ids, position_table, positions);
  const int64_t tokens = y.dim(0), cols = y.dim(1);
  if (y.numel() == 0) return;
  const int32_t* const ids_there = ids.is_on_device ? ids.ids : upload(stream, ids.ids, tokens);
  const int32_t* const positions_there = upload(stream, position_table ? positions : nullptr, tokens);
  with_float("embedding", y, [&]<class T>() {
    const Embedding<T> a{.y = device_data<T>(y),
                         .table = device_data<T>(table),
                         .position_table = device_data<T>(position_table),
                         .ids = ids_there,
                         .positions = positions_there,
                         .first = ids.first,
                         .table_rows = table.dim(0),
                         .tokens = tokens,
                         .cols = cols};
    with_rows<T>(tokens, cols, are_aligned(y, table, position_table), kAnyNumber,
                 [&]<int N, bool kIsWarp>(const RowsShape& shape) {
                   launch(stream, embedding_kernel<T, N, kIsWarp>, shape.launch, a);
                 });
  });
}

void embedding_of_blocks(Stream& stream, const Tensor& y, const BlockMatrix& table, const TableRows& ids) {
  shapes::check_embedding_of_blocks(y, table, ids);
  const int64_t tokens = y.dim(0), chunks = ceil_div(table.skip + table.cols, int64_t(kChunk));
  if (y.numel() == 0) return;
  const int32_t* const ids_there = ids.is_on_device ? ids.ids : upload(stream, ids.ids, tokens);
  with_float("embedding_of_blocks", y, [&]<class T>() {
    with_block_rows(table, [&]<class Rows>(const Rows& rows) {
      launch(stream, embedding_of_blocks_kernel<T, Rows>, over_elements(tokens * chunks, 1), device_data<T>(y), rows,
             ids_there, ids.first, table.rows, tokens, chunks);
    });
  });
}

void embedding_backward(Stream& stream, const Tensor& dtable, const Tensor& dy, const TableRows& ids) {
  shapes::check_embedding_backward(dtable, dy, ids);
  const int64_t cols = dy.dim(1);
  const TokenLists lists = token_lists(ids, dy.dim(0), dtable.dim(0));
  if (lists.lists.empty() || cols == 0) return;
  const TokenList* const lists_there = upload(stream, lists.lists.data(), int64_t(lists.lists.size()));
  const int32_t* const tokens = upload(stream, lists.tokens.data(), int64_t(lists.tokens.size()));
  with_float("embedding_backward", dy, [&]<class T>() {
    constexpr int N = kVector<T, float>;
    const bool has_vectors = are_aligned(dtable, dy) && cols % N == 0;
    LaunchShape shape = over_rows(int64_t(lists.lists.size()), has_vectors ? cols / N : cols, 128);
    shape.blocks_y = unsigned(ceil_div(has_vectors ? cols / N : cols, int64_t(shape.threads)));
    launch(stream, has_vectors ? embedding_backward_kernel<T, N> : embedding_backward_kernel<T, 1>, shape,
           device_data<float>(dtable), device_data<T>(dy), lists_there, tokens, cols);
  });
}

}  // namespace weft::cuda
