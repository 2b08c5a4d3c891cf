// Embedding: rows of a table chosen by token ids, plus learned positions where the model has them.
#pragma once
#include "weft/autograd/param.h"
#include "weft/autograd/tape.h"

namespace weft {

// Of a table that is cut by rows this makes a part of a sum: zeros for the tokens of other rows.
struct EmbeddingOp {
  static constexpr std::string_view kName = "embedding";
  Param& table;              // [V, H]
  Param* position_table;     // [context, H], optional
  const int32_t* ids;        // [T], host memory that outlives the backward
  const int32_t* positions;  // [T]
  int64_t num_tokens;
  DType dtype = DType::f32;    // of the result, where the table is held in blocks
  bool ids_are_there = false;  // where tensors lie, of a pass that only goes forward

  Tensor forward(Context& context) {
    if (table.is_only_blocks()) return from_blocks(context);
    Tensor y = context.empty(table.value.dtype(), {num_tokens, table.shape[1]});
    context.kernels.embedding(context.stream, y, table.value, rows(),
                              position_table ? position_table->value : Tensor{}, positions);
    return y;
  }
  void backward_weight(Context& context, const Tensor& dy) {
    scatter(context, table, dy, rows());
    if (position_table) scatter(context, *position_table, dy, positions);
  }

 private:
  TableRows rows() const {
    TableRows rows(ids, table.placement.begin[0], table.placement.whole[0]);
    rows.is_on_device = ids_are_there;
    return rows;
  }

  Tensor from_blocks(Context& context) {
    const Tensor y = context.empty(dtype, {num_tokens, table.shape[1]});
    context.kernels.embedding_of_blocks(context.stream, y, table.blocks(), rows());
    if (!position_table) return y;
    const Tensor places = context.empty(dtype, y.shape());
    context.kernels.embedding(context.stream, places, position_table->value, positions, {}, nullptr);
    context.kernels.add(context.stream, y, y, places);
    return y;
  }

  static void scatter(Context& context, Param& param, const Tensor& dy, const TableRows& rows) {
    if (!param.trainable) return;
    if (!param.accumulate_next()) context.kernels.fill(context.stream, param.grad, 0);
    context.kernels.embedding_backward(context.stream, param.grad, dy, rows);
  }
};

}  // namespace weft
