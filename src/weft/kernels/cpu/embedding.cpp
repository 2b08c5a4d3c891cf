// Rows of a table chosen by ids, and the sum of their gradients.
#include <algorithm>

#include "weft/kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/embedding.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "weft/kernels/block_decode.h"
#include "weft/kernels/cpu/cpu.h"
#include "weft/kernels/cpu/simd_chunks.h"
#include "weft/kernels/cpu/simd_loop-inl.h"
#include "weft/kernels/shape_checks.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

void embedding_with_positions(Stream& stream, const Tensor& y, const Tensor& table, const TableRows& ids,
                              const Tensor& position_table, const int32_t* positions) {
  with_dtype("embedding", y, [&](auto element) {
    using T = decltype(element);
    const int64_t cols = y.cols();
    const T* rows = table.data<T>();
    const T* position_rows = position_table.data<T>();
    T* out = y.data<T>();
    const auto body = [&](int64_t begin, int64_t end, int) {
      const F32Tag d;
      for (int64_t t = begin; t < end; ++t) {
        const T* position_row = position_rows + positions[t] * cols;
        const int64_t id = ids.row(t, table.dim(0));
        if (id < 0) {
          std::memcpy(out + t * cols, position_row, size_t(cols) * sizeof(T));
          continue;
        }
        const T* row = rows + id * cols;
        for_each_vector(cols, [&](int64_t c, auto part) HWY_ATTR {
          store(hn::Add(load(d, row + c, part), load(d, position_row + c, part)), d, out + t * cols + c, part);
        });
      }
    };
    stream.team().parallel_for(y.rows(), rows_per_chunk(3 * cols * int64_t(sizeof(T))), body);
  });
}

void embedding_of_blocks(Stream& stream, const Tensor& y, const BlockMatrix& table, const TableRows& ids) {
  const int64_t cols = y.cols();
  with_dtype("embedding_of_blocks", y, [&](auto element) {
    using T = decltype(element);
    T* const out = y.data<T>();
    stream.team().parallel_for(
        y.rows(), rows_per_chunk(cols * int64_t(sizeof(float))), [&](int64_t begin, int64_t end, int worker) {
          auto* const decoded = reinterpret_cast<float*>(stream.scratch(worker, size_t(cols) * sizeof(float)));
          for (int64_t t = begin; t < end; ++t) {
            const int64_t row = ids.row(t, table.rows);
            if (row < 0) {
              std::fill_n(out + t * cols, cols, T(0.0f));
            } else if constexpr (std::is_same_v<T, float>) {
              decode_row(table, row, out + t * cols);
            } else {
              decode_row(table, row, decoded);
              std::transform(decoded, decoded + cols, out + t * cols, [](float x) { return T(x); });
            }
          }
        });
  });
}

// Each worker sums a range of columns, walking all tokens in order: no two write to one element, and how the columns
// are cut does not change a sum.
void embedding_backward(Stream& stream, const Tensor& dtable, const Tensor& dy, const TableRows& ids) {
  with_dtype("embedding_backward", dy, [&](auto element) {
    using T = decltype(element);
    const int64_t cols = dy.cols(), tokens = dy.rows(), team = stream.team().size();
    const T* gradient = dy.data<T>();
    float* sums = dtable.data<float>();
    const auto body = [&](int64_t begin, int64_t end, int) {
      const F32Tag d;
      for (int64_t t = 0; t < tokens; ++t) {
        const int64_t id = ids.row(t, dtable.dim(0));
        if (id < 0) continue;
        const T* row = gradient + t * cols + begin;
        float* sum = sums + id * cols + begin;
        for_each_vector(end - begin, [&](int64_t c, auto part) HWY_ATTR {
          store(hn::Add(load(d, sum + c, part), load(d, row + c, part)), d, sum + c, part);
        });
      }
    };
    stream.team().parallel_for(cols, std::max<int64_t>((cols + team - 1) / team + 15, 64) / 16 * 16, body);
  });
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(embedding_with_positions);
HWY_EXPORT(embedding_of_blocks);
HWY_EXPORT(embedding_backward);

void embedding(Stream& stream, const Tensor& y, const Tensor& table, const TableRows& ids,
               const Tensor& position_table, const int32_t* positions) {
  shapes::check_embedding(y, table, ids, position_table, positions);
  if (position_table)
    return HWY_DYNAMIC_DISPATCH(embedding_with_positions)(stream, y, table, ids, position_table, positions);
  const size_t row = size_t(y.cols()) * size_of(y.dtype());
  const auto* rows = static_cast<const std::byte*>(table.raw());
  auto* out = static_cast<std::byte*>(y.raw());
  stream.team().parallel_for(y.rows(), rows_per_chunk(2 * int64_t(row)), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t id = ids.row(t, table.dim(0));
      if (id < 0)
        std::memset(out + size_t(t) * row, 0, row);
      else
        std::memcpy(out + size_t(t) * row, rows + size_t(id) * row, row);
    }
  });
}

void embedding_of_blocks(Stream& stream, const Tensor& y, const BlockMatrix& table, const TableRows& ids) {
  shapes::check_embedding_of_blocks(y, table, ids);
  HWY_DYNAMIC_DISPATCH(embedding_of_blocks)(stream, y, table, ids);
}

void embedding_backward(Stream& stream, const Tensor& dtable, const Tensor& dy, const TableRows& ids) {
  shapes::check_embedding_backward(dtable, dy, ids);
  HWY_DYNAMIC_DISPATCH(embedding_backward)(stream, dtable, dy, ids);
}

}  // namespace weft::cpu
#endif
