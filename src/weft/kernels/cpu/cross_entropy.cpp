// Cross entropy of a softmax, and its gradient in place of the logits, row by row while a row is in cache.
#include "weft/kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/cross_entropy.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "weft/kernels/cpu/cpu.h"
#include "weft/kernels/cpu/simd_chunks.h"
#include "weft/kernels/cpu/simd_loop-inl.h"
#include "weft/kernels/shape_checks.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

// The softmax of a row is exp(x - highest) / sum.
struct SoftmaxState {
  float highest = -std::numeric_limits<float>::infinity();
  float sum = 0;
};

// Blocks of a row are read twice, for their maximum and for the exponentials below it, while they are in L1.
template <class T>
HWY_INLINE SoftmaxState softmax_of_row(const T* row, int64_t vocab) {
  constexpr int64_t kBlock = 2048;
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  const F32Tag d;
  SoftmaxState state;
  for (int64_t begin = 0; begin < vocab; begin += kBlock) {
    const int64_t size = std::min(kBlock, vocab - begin);
    const T* block = row + begin;
    auto highest = hn::Set(d, kLowest);
    for_each_vector(size, [&](int64_t i, auto part) HWY_ATTR {
      highest = hn::Max(highest, only_elements(d, load(d, block + i, part), highest, part));
    });
    const float block_highest = hn::GetLane(hn::MaxOfLanes(d, highest));
    if (block_highest > state.highest) {
      state.sum *= std::exp(state.highest - block_highest);
      state.highest = block_highest;
    }
    // Before the first finite logit any shift will do: exp(-inf - 0) is 0, and NaN stays NaN.
    const auto shift = hn::Set(d, state.highest == kLowest ? 0.0f : state.highest);
    auto sum = hn::Zero(d);
    for_each_vector(size, [&](int64_t i, auto part) HWY_ATTR {
      const auto e = exp_nonpositive(d, hn::Sub(load(d, block + i, part), shift));
      sum = hn::Add(sum, only_elements(d, e, hn::Zero(d), part));
    });
    state.sum += sum_of_lanes(sum);
  }
  return state;
}

template <class T>
HWY_INLINE float cross_entropy_of_row(T* row, int64_t vocab, int32_t target, float dlogits_scale) {
  const F32Tag d;
  const SoftmaxState state = softmax_of_row(row, vocab);
  const float logit = float(row[target]);
  const float loss = (state.highest - logit) + std::log(state.sum);
  if (dlogits_scale == 0) return loss;
  const auto shift = hn::Set(d, state.highest), factor = hn::Set(d, dlogits_scale / state.sum);
  for_each_vector(vocab, [&](int64_t i, auto part) HWY_ATTR {
    const auto e = exp_nonpositive(d, hn::Sub(load(d, row + i, part), shift));
    store(hn::Mul(e, factor), d, row + i, part);
  });
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
    const auto body = [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        T* row = rows + t * vocab;
        if (targets[t] >= 0) {
          loss[t] = cross_entropy_of_row(row, vocab, targets[t], dlogits_scale);
        } else {
          loss[t] = 0;
          if (dlogits_scale != 0) std::memset(static_cast<void*>(row), 0, size_t(vocab) * sizeof(T));
        }
      }
    };
    stream.team().parallel_for(logits.rows(), rows_per_chunk(vocab * int64_t(sizeof(T))), body);
  });
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(cross_entropy);

void cross_entropy(Stream& stream, const Tensor& losses, const Tensor& logits, const int32_t* targets,
                   float dlogits_scale) {
  shapes::check_cross_entropy(losses, logits, targets);
  HWY_DYNAMIC_DISPATCH(cross_entropy)(stream, losses, logits, targets, dlogits_scale);
}

}  // namespace weft::cpu
#endif
