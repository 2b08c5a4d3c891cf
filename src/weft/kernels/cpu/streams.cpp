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
#include "weft/kernels/shape_checks.h"
#include "weft/kernels/stream_mix.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

// A number to each weight of a token: of reading, of writing, of mixing.
using OfWeights = std::array<float, 2 * kMostStreams + kMostStreams * kMostStreams>;

inline float sigmoid_of(float x) { return 1 / (1 + std::exp(-x)); }

// What weights are made of, of mixing as it is, and sigmoids of the others.
template <class T>
OfWeights sigmoids(const float* products, float rstd, const T* base, const T* scale, int64_t count, int64_t streams) {
  OfWeights s{};
  for (int64_t i = 0; i < count; ++i) {
    const float logit = products[i] * rstd * float(scale[kind_of_product(i, streams)]) + float(base[i]);
    s[size_t(i)] = i < 2 * streams ? sigmoid_of(logit) : logit;
  }
  return s;
}

// body(mix): the matrix of logits[streams, streams], in one of 4 or of 8; keep: see make_mix().
template <class Keep, class Body>
void with_mix(const float* logits, int streams, const StreamRule& rule, Keep&& keep, Body&& body) {
  const auto with = [&]<int N>() {
    float mix[N][N];
    make_mix(
        mix, streams, rule.mix_steps, rule.eps, [&](int m, int n) { return logits[m * streams + n]; },
        [](float x) { return std::exp(x); }, keep);
    body(mix);
  };
  streams <= 4 ? with.template operator()<4>() : with.template operator()<8>();
}

// dlogits[streams, streams] of dmix, which is like it.
inline void mix_backward(float* dlogits, const float* dmix, const float* logits, int streams,
                         const StreamRule& rule) {
  float divisors[num_divisions(int(kMostMixSteps))][kMostStreams];
  const auto keep = [&](int k, int i, float divisor) { divisors[k][i] = divisor; };
  with_mix(logits, streams, rule, keep, [&]<int N>(float(&mix)[N][N]) {
    float gradient[N][N] = {};
    for (int i = 0; i < streams * streams; ++i) gradient[i / streams][i % streams] = dmix[i];
    make_mix_backward(gradient, mix, streams, rule.mix_steps, rule.eps, [&](int k, int i) { return divisors[k][i]; });
    for (int i = 0; i < streams * streams; ++i) dlogits[i] = gradient[i / streams][i % streams];
  });
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
  if (args.mix) {
    float* const to = args.mix.data<float>() + t * streams * streams;
    with_mix(
        &s[size_t(2 * streams)], int(streams), args.rule, [](int, int, float) {},
        [&](const auto& mix) {
          for (int64_t i = 0; i < streams * streams; ++i) to[i] = mix[i / streams][i % streams];
        });
  }
  for_each_vector(cols, [&](int64_t c, auto part) HWY_ATTR {
    auto sum = hn::Zero(d);
    for (int64_t n = 0; n < streams; ++n)
      sum = hn::MulAdd(hn::Set(d, s[size_t(n)] + args.rule.eps), load(d, x + n * cols + c, part), sum);
    store(sum, d, y + c, part);
  });
}

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
  if (args.dmix)
    mix_backward(dlogits + 2 * streams, args.dmix.data<float>() + t * streams * streams, &s[size_t(2 * streams)],
                 int(streams), args.rule);
  else
    std::fill(dlogits + std::min(count, 2 * streams), dlogits + count, 0.0f);
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

template <class T>
void write_token(const WriteStreamsArgs& args, int64_t t) {
  const F32Tag d;
  const int64_t cols = args.branch.cols(), all = args.y.cols(), streams = all / cols;
  const T* const branch = args.branch.data<T>() + t * cols;
  const float* const mix = args.mix ? args.mix.data<float>() + t * streams * streams : nullptr;
  for (int64_t n = 0; n < streams; ++n) {
    const auto gate = hn::Set(d, args.gates ? args.gates.data<float>()[t * streams + n] : 1.0f);
    const T* const x = args.x ? args.x.data<T>() + t * all : nullptr;
    T* const y = args.y.data<T>() + t * all + n * cols;
    for_each_vector(cols, [&](int64_t c, auto part) HWY_ATTR {
      auto sum = x && !mix ? load(d, x + n * cols + c, part) : hn::Zero(d);
      for (int64_t m = 0; mix && m < streams; ++m)
        sum = hn::MulAdd(hn::Set(d, mix[m * streams + n]), load(d, x + m * cols + c, part), sum);
      store(hn::MulAdd(gate, load(d, branch + c, part), sum), d, y + c, part);
    });
  }
}

template <class T>
void write_token_backward(const WriteStreamsBackwardArgs& args, int64_t t) {
  const F32Tag d;
  const int64_t cols = args.dbranch.cols(), all = args.dy.cols(), streams = all / cols;
  const T* const dy = args.dy.data<T>() + t * all;
  T* const dbranch = args.dbranch.data<T>() + t * cols;
  const float* const gates = args.gates ? args.gates.data<float>() + t * streams : nullptr;
  for_each_vector(cols, [&](int64_t c, auto part) HWY_ATTR {
    auto sum = hn::Zero(d);
    for (int64_t n = 0; n < streams; ++n)
      sum = hn::MulAdd(hn::Set(d, gates ? gates[n] : 1.0f), load(d, dy + n * cols + c, part), sum);
    store(sum, d, dbranch + c, part);
  });
  for (int64_t n = 0; gates && n < streams; ++n)
    args.dgates.data<float>()[t * streams + n] = dot(dy + n * cols, args.branch.data<T>() + t * cols, cols);
  if (!args.mix) return;
  const float* const mix = args.mix.data<float>() + t * streams * streams;
  float* const dmix = args.dmix.data<float>() + t * streams * streams;
  for (int64_t m = 0; m < streams; ++m) {
    const T* const x = args.x.data<T>() + t * all + m * cols;
    T* const dx = args.dx.data<T>() + t * all + m * cols;
    for (int64_t n = 0; n < streams; ++n) dmix[m * streams + n] = dot(x, dy + n * cols, cols);
    for_each_vector(cols, [&](int64_t c, auto part) HWY_ATTR {
      auto sum = hn::Zero(d);
      for (int64_t n = 0; n < streams; ++n)
        sum = hn::MulAdd(hn::Set(d, mix[m * streams + n]), load(d, dy + n * cols + c, part), sum);
      store(sum, d, dx + c, part);
    });
  }
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

void read_streams(Stream& stream, const ReadStreamsArgs& args) {
  for_tokens(stream, "read_streams", args, args.x,
             [](auto element, const auto& a, int64_t t) { read_token<decltype(element)>(a, t); });
}
void read_streams_backward(Stream& stream, const ReadStreamsBackwardArgs& args) {
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
