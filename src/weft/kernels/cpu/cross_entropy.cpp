// Cross entropy of a softmax, and its gradient in place of the logits, row by row while a row is in cache.
#include <limits>

#include "weft/kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/cross_entropy.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "weft/kernels/cpu/cpu.h"
#include "weft/kernels/cpu/simd_chunks.h"
#include "weft/kernels/cpu/simd_loop-inl.h"
#include "weft/kernels/shape_checks.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

// A row is cut into blocks that stay in L1, at most kMaxBlocks of them.
constexpr int64_t kMaxBlocks = 256;
inline int64_t block_size(int64_t vocab) {
  return std::max<int64_t>(2048, ((vocab + kMaxBlocks - 1) / kMaxBlocks + 63) / 64 * 64);
}

// The softmax of a row is exp(x - highest) / sum. The exponentials of block b were taken below shift[b].
struct SoftmaxState {
  float highest = -std::numeric_limits<float>::infinity();
  float sum = 0;
  float shift[kMaxBlocks];
};

// Each block is read for its maximum, then for its exponentials, which go to `exponentials` when that is not null; it
// may be the row itself.
template <class T>
HWY_INLINE void softmax_of_row(const T* row, float* exponentials, int64_t vocab, SoftmaxState& state) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  const F32Tag d;
  const int64_t size = block_size(vocab);
  float* shift = state.shift;
  for (int64_t begin = 0; begin < vocab; begin += size, ++shift) {
    const int64_t count = std::min(size, vocab - begin);
    const T* block = row + begin;
    auto highest = hn::Set(d, kLowest);
    for_each_vector(count, [&](int64_t i, auto part) HWY_ATTR {
      highest = hn::Max(highest, only_elements(d, load(d, block + i, part), highest, part));
    });
    const float block_highest = hn::GetLane(hn::MaxOfLanes(d, highest));
    if (block_highest > state.highest) {
      if (begin > 0) state.sum *= std::exp(state.highest - block_highest);
      state.highest = block_highest;
    }
    // Before the first finite logit any shift will do: exp(-inf - 0) is 0, and NaN stays NaN.
    *shift = state.highest == kLowest ? 0.0f : state.highest;
    const auto shifts = hn::Set(d, *shift);
    const auto sum = sum_over(count, [&](int64_t i, auto part) HWY_ATTR {
      hwy::Prefetch(block + count + i);  // the next block arrives while this one is computed
      const auto e = exp_nonpositive(d, hn::Sub(load(d, block + i, part), shifts));
      if (exponentials) store(e, d, exponentials + begin + i, part);
      return only_elements(d, e, hn::Zero(d), part);
    });
    state.sum += sum_of_lanes(sum);
  }
}

// exponentials: room for the row's; the row itself when it is f32, null when the gradient is not wanted.
template <class T>
HWY_INLINE float cross_entropy_of_row(T* row, float* exponentials, int64_t vocab, int32_t target,
                                      float dlogits_scale) {
  const F32Tag d;
  const float logit = float(row[target]);
  SoftmaxState state;
  softmax_of_row(row, exponentials, vocab, state);
  const float loss = (state.highest - logit) + std::log(state.sum);
  if (!exponentials) return loss;
  const int64_t size = block_size(vocab);
  const float* shift = state.shift;
  for (int64_t begin = 0; begin < vocab; begin += size, ++shift) {
    const float to_highest = *shift == state.highest ? 1.0f : std::exp(*shift - state.highest);
    const auto factor = hn::Set(d, dlogits_scale * to_highest / state.sum);
    for_each_vector(std::min(size, vocab - begin), [&](int64_t i, auto part) HWY_ATTR {
      store(hn::Mul(load(d, exponentials + begin + i, part), factor), d, row + begin + i, part);
    });
  }
  row[target] = T(std::expm1(-loss) * dlogits_scale);  // softmax - 1 without cancellation
  return loss;
}

void cross_entropy(Stream& stream, const Tensor& losses, const Tensor& logits, const int32_t* targets,
                   float dlogits_scale) {
  with_dtype("cross_entropy", logits, [&](auto element) {
    using T = decltype(element);
    const int64_t vocab = logits.cols();
    T* rows = logits.data<T>();
    float* loss = losses.data<float>();
    const auto body = [&](int64_t begin, int64_t end, int worker) {
      float* room = nullptr;
      if (dlogits_scale != 0 && !std::is_same_v<T, float>)
        room = reinterpret_cast<float*>(stream.scratch(worker, size_t(vocab) * sizeof(float)));
      for (int64_t t = begin; t < end; ++t) {
        T* row = rows + t * vocab;
        if (targets[t] >= 0) {
          float* exponentials = room;
          if constexpr (std::is_same_v<T, float>) exponentials = dlogits_scale != 0 ? row : nullptr;
          loss[t] = cross_entropy_of_row(row, exponentials, vocab, targets[t], dlogits_scale);
        } else {
          loss[t] = 0;
          if (dlogits_scale != 0) std::memset(static_cast<void*>(row), 0, size_t(vocab) * sizeof(T));
        }
      }
    };
    stream.team().parallel_for(logits.rows(), rows_per_chunk(vocab * int64_t(sizeof(T))), body);
  });
}

void cross_entropy_stats(Stream& stream, const Tensor& stats, const Tensor& logits, const int32_t* targets,
                         int64_t first_column) {
  with_dtype("cross_entropy_stats", logits, [&](auto element) {
    using T = decltype(element);
    const int64_t cols = logits.dim(1);
    const T* rows = logits.data<T>();
    float* out = stats.data<float>();
    const auto body = [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        const T* row = rows + t * cols;
        SoftmaxState state;
        softmax_of_row(row, nullptr, cols, state);
        const int64_t target = targets[t] - first_column;
        out[3 * t] = state.highest;
        out[3 * t + 1] = state.sum;
        out[3 * t + 2] = target >= 0 && target < cols ? float(row[target]) : 0;
      }
    };
    stream.team().parallel_for(logits.dim(0), rows_per_chunk(cols * int64_t(sizeof(T))), body);
  });
}

void cross_entropy_gradient(Stream& stream, const Tensor& logits, const Tensor& lse, const Tensor& factors,
                            const int32_t* targets, int64_t first_column, float dlogits_scale) {
  with_dtype("cross_entropy_gradient", logits, [&](auto element) {
    using T = decltype(element);
    const int64_t cols = logits.dim(1);
    T* rows = logits.data<T>();
    const float* log_sums = lse.data<float>();
    const float* of_rows = factors ? factors.data<float>() : nullptr;
    const auto body = [&](int64_t begin, int64_t end, int) {
      const F32Tag d;
      for (int64_t t = begin; t < end; ++t) {
        T* row = rows + t * cols;
        const float scale = of_rows ? of_rows[t] * dlogits_scale : dlogits_scale;
        if (targets[t] < 0) {
          std::fill_n(row, cols, T(0.0f));
          continue;
        }
        const int64_t target = targets[t] - first_column;
        const bool is_here = target >= 0 && target < cols;
        const float logit = is_here ? float(row[target]) : 0;
        const auto log_sum = hn::Set(d, log_sums[t]);
        for_each_vector(cols, [&](int64_t i, auto part) HWY_ATTR {
          const auto e = exp_nonpositive(d, hn::Sub(load(d, row + i, part), log_sum));
          store(hn::Mul(e, hn::Set(d, scale)), d, row + i, part);
        });
        if (is_here) row[target] = T(std::expm1(logit - log_sums[t]) * scale);
      }
    };
    stream.team().parallel_for(logits.dim(0), rows_per_chunk(cols * int64_t(sizeof(T))), body);
  });
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(cross_entropy);
HWY_EXPORT(cross_entropy_stats);
HWY_EXPORT(cross_entropy_gradient);

void cross_entropy(Stream& stream, const Tensor& losses, const Tensor& logits, const int32_t* targets,
                   float dlogits_scale) {
  shapes::check_cross_entropy(losses, logits, targets);
  HWY_DYNAMIC_DISPATCH(cross_entropy)(stream, losses, logits, targets, dlogits_scale);
}

void cross_entropy_stats(Stream& stream, const Tensor& stats, const Tensor& logits, const int32_t* targets,
                         int64_t first_column) {
  shapes::check_cross_entropy_stats(stats, logits, targets, first_column);
  HWY_DYNAMIC_DISPATCH(cross_entropy_stats)(stream, stats, logits, targets, first_column);
}

// A row has three numbers a part: nothing for SIMD.
void cross_entropy_combine(Stream& stream, const Tensor& losses, const Tensor& lse, const Tensor& stats,
                           const int32_t* targets) {
  shapes::check_cross_entropy_combine(losses, lse, stats);
  const int64_t parts = stats.dim(0), num_tokens = stats.dim(1);
  const float* values = stats.data<float>();
  float *loss = losses.data<float>(), *log_sum = lse.data<float>();
  stream.team().parallel_for(num_tokens, 1 << 10, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const auto stat = [&](int64_t part, int i) { return values[(part * num_tokens + t) * 3 + i]; };
      float top = -std::numeric_limits<float>::infinity(), sum = 0, target = 0;
      for (int64_t p = 0; p < parts; ++p) top = std::max(top, stat(p, 0));
      for (int64_t p = 0; p < parts; ++p)
        if (stat(p, 1) > 0) sum += stat(p, 1) * std::exp(stat(p, 0) - top);
      for (int64_t p = 0; p < parts; ++p) target += stat(p, 2);
      // Near a loss of 0 the difference of the two large numbers would be all rounding.
      log_sum[t] = top + std::log(sum);
      loss[t] = targets[t] < 0 ? 0 : (top - target) + std::log(sum);
    }
  });
}

void cross_entropy_gradient(Stream& stream, const Tensor& logits, const Tensor& lse, const Tensor& factors,
                            const int32_t* targets, int64_t first_column, float dlogits_scale) {
  shapes::check_cross_entropy_gradient(logits, lse, factors, targets, first_column);
  HWY_DYNAMIC_DISPATCH(cross_entropy_gradient)(stream, logits, lse, factors, targets, first_column, dlogits_scale);
}

}  // namespace weft::cpu
#endif
