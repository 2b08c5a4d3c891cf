// Residual streams: a token's lie behind each other and fit into a core's caches, so that each is read from memory
// once.
#include <algorithm>
#include <array>
#include <cmath>

#include "weft/kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/streams.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "weft/kernels/cpu/cpu.h"
#include "weft/kernels/cpu/simd_chunks.h"
#include "weft/kernels/cpu/simd_loop-inl.h"
#include "weft/kernels/cpu/stream_mixes.h"
#include "weft/kernels/shape_checks.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

// A number to each weight of reading and writing.
using OfWeights = std::array<float, 2 * kMostStreams>;

inline float sigmoid_of(float x) { return 1 / (1 + std::exp(-x)); }

template <class T>
float logit_of(const float* products, float rstd, const T* base, const T* scale, int64_t i, int64_t streams) {
  return products[i] * rstd * float(scale[kind_of_product(i, streams)]) + float(base[i]);
}

template <class T>
OfWeights sigmoids(const float* products, float rstd, const T* base, const T* scale, int64_t count, int64_t streams) {
  OfWeights s{};
  for (int64_t i = 0; i < std::min(count, 2 * streams); ++i)
    s[size_t(i)] = sigmoid_of(logit_of(products, rstd, base, scale, i, streams));
  return s;
}

// Of which a token's matrix is made.
template <class T>
void mix_logits(float* logits, const float* products, float rstd, const T* base, const T* scale, int64_t streams) {
  for (int64_t i = 0; i < streams * streams; ++i)
    logits[i] = logit_of(products, rstd, base, scale, 2 * streams + i, streams);
}

template <class T>
HWY_INLINE float dot(const T* a, const T* b, int64_t cols) {
  const F32Tag d;
  return sum_of_lanes(sum_over(
      cols, [&](int64_t c, auto part) HWY_ATTR { return hn::Mul(load(d, a + c, part), load(d, b + c, part)); }));
}

template <class T>
void read_token(const ReadStreamsArgs& args, int64_t t) {
  const F32Tag d;
  const int64_t cols = args.y.cols(), all = args.x.cols(), streams = all / cols, count = args.products.cols();
  const T* const x = args.x.data<T>() + t * all;
  T* const y = args.y.data<T>() + t * cols;
  const float rstd = 1 / std::sqrt(dot(x, x, all) / float(all) + args.rule.norm_eps);
  args.rstd.data<float>()[t] = rstd;
  const OfWeights s = sigmoids(args.products.data<float>() + t * count, rstd, args.base.data<T>(),
                               args.scale.data<T>(), count, streams);
  for (int64_t n = 0; args.gates && n < streams; ++n)
    args.gates.data<float>()[t * streams + n] = args.rule.magnitude * s[size_t(streams + n)] + args.rule.gate_eps;
  if (args.mix)
    mix_logits(args.mix.data<float>() + t * streams * streams, args.products.data<float>() + t * count, rstd,
               args.base.data<T>(), args.scale.data<T>(), streams);
  for_each_vector(cols, [&](int64_t c, auto part) HWY_ATTR {
    auto sum = hn::Zero(d);
    for (int64_t n = 0; n < streams; ++n)
      sum = hn::MulAdd(hn::Set(d, s[size_t(n)] + args.rule.eps), load(d, x + n * cols + c, part), sum);
    store(sum, d, y + c, part);
  });
}

// The gradients of logits of mixing are known.
template <class T>
void read_token_backward(const ReadStreamsBackwardArgs& args, int64_t t) {
  const F32Tag d;
  const int64_t cols = args.dy.cols(), all = args.x.cols(), streams = all / cols, count = args.products.cols();
  const int64_t scales = args.dscales.cols();
  const T *const x = args.x.data<T>() + t * all, *const dy = args.dy.data<T>() + t * cols;
  const T* const dsum = args.dsum ? args.dsum.data<T>() + t * all : nullptr;
  T* const dx = args.dx.data<T>() + t * all;
  const float rstd = args.rstd.data<float>()[t];
  const float* const products = args.products.data<float>() + t * count;
  const OfWeights s = sigmoids(products, rstd, args.base.data<T>(), args.scale.data<T>(), count, streams);
  float* const dscales = args.dscales.data<float>() + t * scales;
  std::fill_n(dscales, scales, 0.0f);
  float* const dlogits = args.dlogits.data<float>() + t * count;
  for (int64_t i = 0; i < std::min(count, 2 * streams); ++i) {
    float dweight = 0;
    if (i < streams)
      dweight = dot(x + i * cols, dy, cols);
    else if (args.dgates)
      dweight = args.rule.magnitude * args.dgates.data<float>()[t * streams + i - streams];
    dlogits[i] = dweight * s[size_t(i)] * (1 - s[size_t(i)]);
  }
  float drstd = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t kind = kind_of_product(i, streams);
    const float dp = dlogits[i] * float(args.scale.data<T>()[kind]);
    dscales[kind] += dlogits[i] * products[i] * rstd;
    args.dproducts.data<float>()[t * count + i] = dp * rstd;
    drstd += dp * products[i];
  }
  const auto along = hn::Set(d, -drstd * rstd * rstd * rstd / float(all));
  for (int64_t n = 0; n < streams; ++n) {
    const auto weight = hn::Set(d, s[size_t(n)] + args.rule.eps);
    for_each_vector(cols, [&](int64_t c, auto part) HWY_ATTR {
      const int64_t at = n * cols + c;
      auto sum = dsum ? load(d, dsum + at, part) : hn::Zero(d);
      sum = hn::MulAdd(weight, load(d, dy + c, part), sum);
      store(hn::MulAdd(along, load(d, x + at, part), sum), d, dx + at, part);
    });
  }
}

// The gradients of logits of mixing, of tokens from begin to end.
template <class T>
void mix_backward(const ReadStreamsBackwardArgs& args, int64_t begin, int64_t end) {
  const int64_t count = args.products.cols(), streams = args.x.cols() / args.dy.cols(), mixes = streams * streams;
  float *const dlogits = args.dlogits.data<float>() + 2 * streams,
               *const logits = args.dproducts.data<float>() + 2 * streams;  // until their gradients take their place
  for (int64_t t = begin; t < end; ++t) {
    if (args.dmix)
      std::copy_n(args.dmix.data<float>() + t * mixes, mixes, dlogits + t * count);
    else
      std::fill_n(dlogits + t * count, mixes, 0.0f);
    mix_logits(logits + t * count, args.products.data<float>() + t * count, args.rstd.data<float>()[t],
               args.base.data<T>(), args.scale.data<T>(), streams);
  }
  if (args.dmix)
    make_mixes_backward(dlogits + begin * count, logits + begin * count, count, end - begin, int(streams), args.rule);
}

// What of a token is written to its streams, in places of N: those that are missing are the first with a weight of 0.
template <int N, class T>
struct Streams {
  const T* of[N];

  Streams(const T* all, int64_t cols, int64_t streams) {
    for (int64_t n = 0; n < N; ++n) of[n] = all + (n < streams ? n : 0) * cols;
  }
};

template <int N, class T>
void write_mixed(const WriteStreamsArgs& args, int64_t t) {
  const F32Tag d;
  const int64_t cols = args.branch.cols(), all = args.y.cols(), streams = all / cols;
  const Streams<N, T> x(args.x.data<T>() + t * all, cols, streams);
  const T* const branch = args.branch.data<T>() + t * cols;
  T* const y = args.y.data<T>() + t * all;
  float gates[N] = {}, weights[N][N] = {};
  for (int64_t n = 0; n < streams; ++n) gates[n] = args.gates ? args.gates.data<float>()[t * streams + n] : 1.0f;
  for (int64_t i = 0; i < streams * streams; ++i)
    weights[i % streams][i / streams] = args.mix.data<float>()[t * streams * streams + i];
  for_each_vector(cols, [&](int64_t c, auto part) HWY_ATTR {
    const auto given = load(d, branch + c, part);
    hn::Vec<F32Tag> values[N];
    for (int m = 0; m < N; ++m) values[m] = load(d, x.of[m] + c, part);
    for (int64_t n = 0; n < streams; ++n) {
      auto sum = hn::Mul(hn::Set(d, gates[n]), given);
      for (int m = 0; m < N; ++m) sum = hn::MulAdd(hn::Set(d, weights[n][m]), values[m], sum);
      store(sum, d, y + n * cols + c, part);
    }
  });
}

// drow = sum over n of weights[n] dy[n], and dweights[n] = row dy[n], of all N streams.
template <int N, class T>
void weigh_backward(T* drow, float* dweights, const Streams<N, T>& dy, const T* row, const float* of_streams,
                    int64_t cols, int64_t streams) {
  const F32Tag d;
  float weights[N] = {};
  std::copy_n(of_streams, streams, weights);
  hn::Vec<F32Tag> dots[N];
  for (auto& dot : dots) dot = hn::Zero(d);
  for_each_vector(cols, [&](int64_t c, auto part) HWY_ATTR {
    const auto value = load(d, row + c, part);
    auto sum = hn::Zero(d);
    for (int n = 0; n < N; ++n) {
      const auto gradient = load(d, dy.of[n] + c, part);
      sum = hn::MulAdd(hn::Set(d, weights[n]), gradient, sum);
      dots[n] = hn::MulAdd(value, gradient, dots[n]);
    }
    store(sum, d, drow + c, part);
  });
  for (int n = 0; n < N; ++n)
    if (n < streams) dweights[n] = sum_of_lanes(dots[n]);
}

// run<N>(): with places for so many streams.
template <class Run>
HWY_INLINE void with_places(int64_t streams, Run&& run) {
  if (streams == 1) return run.template operator()<1>();
  streams <= 4 ? run.template operator()<4>() : run.template operator()<8>();
}

template <class T>
void write_token(const WriteStreamsArgs& args, int64_t t) {
  const F32Tag d;
  const int64_t cols = args.branch.cols(), all = args.y.cols(), streams = all / cols;
  if (args.mix) return with_places(streams, [&]<int N>() { write_mixed<N, T>(args, t); });
  const T* const branch = args.branch.data<T>() + t * cols;
  for (int64_t n = 0; n < streams; ++n) {
    const auto gate = hn::Set(d, args.gates ? args.gates.data<float>()[t * streams + n] : 1.0f);
    const T* const x = args.x ? args.x.data<T>() + t * all + n * cols : nullptr;
    T* const y = args.y.data<T>() + t * all + n * cols;
    for_each_vector(cols, [&](int64_t c, auto part) HWY_ATTR {
      store(hn::MulAdd(gate, load(d, branch + c, part), x ? load(d, x + c, part) : hn::Zero(d)), d, y + c, part);
    });
  }
}

template <class T>
void write_token_backward(const WriteStreamsBackwardArgs& args, int64_t t) {
  const int64_t cols = args.dbranch.cols(), all = args.dy.cols(), streams = all / cols;
  const T* const dy = args.dy.data<T>() + t * all;
  T* const dbranch = args.dbranch.data<T>() + t * cols;
  if (args.gates)
    return with_places(streams, [&]<int N>() {
      const Streams<N, T> gradients(dy, cols, streams);
      const auto weigh = [&](T* drow, const Tensor& dweights, const T* row, const Tensor& weights, int64_t at) {
        weigh_backward(drow, dweights.data<float>() + at * streams, gradients, row,
                       weights.data<float>() + at * streams, cols, streams);
      };
      weigh(dbranch, args.dgates, args.branch.data<T>() + t * cols, args.gates, t);
      for (int64_t m = t * streams; args.mix && m < (t + 1) * streams; ++m)
        weigh(args.dx.data<T>() + m * cols, args.dmix, args.x.data<T>() + m * cols, args.mix, m);
    });
  const F32Tag d;
  for_each_vector(cols, [&](int64_t c, auto part) HWY_ATTR {
    auto sum = hn::Zero(d);
    for (int64_t n = 0; n < streams; ++n) sum = hn::Add(sum, load(d, dy + n * cols + c, part));
    store(sum, d, dbranch + c, part);
  });
}

template <class Args, class Token>
void for_tokens(Stream& stream, std::string_view op, const Args& args, const Tensor& x, Token&& token) {
  with_dtype(op, x, [&](auto element) {
    const int64_t chunk = rows_per_chunk(3 * x.cols() * int64_t(sizeof element));
    stream.team().parallel_for(x.rows(), chunk, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) token(element, args, t);
    });
  });
}

constexpr int64_t kTokensToMix = 2 * kMixesAtOnce;  // of a thread

void read_streams(Stream& stream, const ReadStreamsArgs& args) {
  for_tokens(stream, "read_streams", args, args.x,
             [](auto element, const auto& a, int64_t t) { read_token<decltype(element)>(a, t); });
  if (!args.mix) return;
  const int64_t streams = args.x.cols() / args.y.cols();
  stream.team().parallel_for(args.x.rows(), kTokensToMix, [&](int64_t begin, int64_t end, int) {
    make_mixes(args.mix.data<float>() + begin * streams * streams, end - begin, int(streams), args.rule);
  });
}
void read_streams_backward(Stream& stream, const ReadStreamsBackwardArgs& args) {
  if (args.dscales.cols() == 3)
    with_dtype("read_streams_backward", args.x, [&](auto element) {
      stream.team().parallel_for(args.x.rows(), kTokensToMix, [&](int64_t begin, int64_t end, int) {
        mix_backward<decltype(element)>(args, begin, end);
      });
    });
  for_tokens(stream, "read_streams_backward", args, args.x,
             [](auto element, const auto& a, int64_t t) { read_token_backward<decltype(element)>(a, t); });
}
void write_streams(Stream& stream, const WriteStreamsArgs& args) {
  for_tokens(stream, "write_streams", args, args.y,
             [](auto element, const auto& a, int64_t t) { write_token<decltype(element)>(a, t); });
}
void write_streams_backward(Stream& stream, const WriteStreamsBackwardArgs& args) {
  for_tokens(stream, "write_streams_backward", args, args.dy,
             [](auto element, const auto& a, int64_t t) { write_token_backward<decltype(element)>(a, t); });
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(read_streams);
HWY_EXPORT(read_streams_backward);
HWY_EXPORT(write_streams);
HWY_EXPORT(write_streams_backward);

void read_streams(Stream& stream, const ReadStreamsArgs& args) {
  shapes::check_read_streams(args);
  HWY_DYNAMIC_DISPATCH(read_streams)(stream, args);
}

void read_streams_backward(Stream& stream, const ReadStreamsBackwardArgs& args) {
  shapes::check_read_streams_backward(args);
  HWY_DYNAMIC_DISPATCH(read_streams_backward)(stream, args);
}

void write_streams(Stream& stream, const WriteStreamsArgs& args) {
  shapes::check_write_streams(args);
  HWY_DYNAMIC_DISPATCH(write_streams)(stream, args);
}

void write_streams_backward(Stream& stream, const WriteStreamsBackwardArgs& args) {
  shapes::check_write_streams_backward(args);
  HWY_DYNAMIC_DISPATCH(write_streams_backward)(stream, args);
}

}  // namespace weft::cpu
#endif
