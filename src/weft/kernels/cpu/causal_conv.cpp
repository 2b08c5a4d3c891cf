// Causal convolution of single channels: vectors of channels, row by row.
#include "weft/kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/causal_conv.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "weft/base/ceil_div.h"
#include "weft/kernels/cpu/cpu.h"
#include "weft/kernels/cpu/simd_chunks.h"
#include "weft/kernels/cpu/simd_loop-inl.h"
#include "weft/kernels/shape_checks.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

constexpr int64_t kChannels = 256;  // at most, of a task

// The taps of some channels as rows, which vectors of channels read, and what their sums begin with.
struct Taps {
  alignas(64) float rows[kMostConvWidth][kChannels];
  alignas(64) float bias[kChannels];

  template <class T>
  void load(const Tensor& weight, const Tensor& biases, int64_t first, int64_t count) {
    for (int64_t c = 0; c < count; ++c) bias[c] = biases ? float(biases.data<T>()[first + c]) : 0.0f;
    const int64_t width = weight.dim(1);
    const T* from = weight.data<T>() + first * width;
    for (int64_t c = 0; c < count; ++c)
      for (int64_t j = 0; j < width; ++j) rows[j][c] = float(*from++);
  }
};

// Where the row that lies so far before row `begin` of a run is; null: zeros.
template <class T>
const T* row_before(const CausalConvArgs& args, const TokenRun& run, int64_t rows) {
  const int64_t kept = args.weight.dim(1) - 1;
  if (run.from < 0) return nullptr;
  return args.states.data<T>() + (run.from * kept + kept - rows) * args.x.dim(1);
}

// Channels [first, first + count) of a row.
template <Activation kF, class T>
void conv_row(const CausalConvArgs& args, const Taps& taps, const TokenRun& run, int64_t t, int64_t first,
              int64_t count) {
  const F32Tag d;
  const int64_t channels = args.x.dim(1), width = args.weight.dim(1);
  const T* rows[kMostConvWidth];
  for (int64_t j = 0; j < width; ++j) {
    const int64_t row = t - width + 1 + j;
    rows[j] = row >= run.begin ? args.x.data<T>() + row * channels : row_before<T>(args, run, run.begin - row);
    if (rows[j]) rows[j] += first;
  }
  T* const y = args.y.data<T>() + t * channels + first;
  for_each_vector(count, [&](int64_t c, auto part) HWY_ATTR {
    F32 sum = load(d, taps.bias + c, part);
    for (int64_t j = 0; j < width; ++j)
      if (rows[j]) sum = hn::MulAdd(load(d, rows[j] + c, part), load(d, taps.rows[j] + c, part), sum);
    store(activate<kF>(d, sum), d, y + c, part);
  });
}

// run: with all that it goes on from.
template <class T>
void keep_rows(const CausalConvArgs& args, const TokenRun& run) {
  const int64_t channels = args.x.dim(1), kept = args.weight.dim(1) - 1, count = run.end - run.begin;
  T* const state = args.states.data<T>() + run.to * kept * channels;
  for (int64_t j = 0; j < kept; ++j) {  // upwards: a run of few rows moves what it has
    const int64_t row = run.end - kept + j;
    const T* const from =
        row >= run.begin ? args.x.data<T>() + row * channels : row_before<T>(args, run, kept - j - count);
    if (from)
      std::copy_n(from, channels, state + j * channels);
    else
      std::fill_n(state + j * channels, channels, T());
  }
}

void causal_conv(Stream& stream, const CausalConvArgs& args) {
  with_dtype("causal_conv", args.x, [&](auto element) {
    using T = decltype(element);
    const auto row = args.f == Activation::silu ? conv_row<Activation::silu, T> : conv_row<Activation::identity, T>;
    const int64_t channels = args.x.dim(1), rows = args.x.dim(0);
    const int64_t parts = ceil_div(channels, kChannels), chunk = rows_per_chunk(2 * kChannels * int64_t(sizeof(T)));
    stream.team().parallel_for(ceil_div(rows, chunk) * parts, 1, [&](int64_t begin, int64_t end, int) {
      Taps taps;
      for (int64_t task = begin; task < end; ++task) {
        const int64_t first = task % parts * kChannels, count = std::min(kChannels, channels - first);
        const int64_t first_row = task / parts * chunk;
        taps.load<T>(args.weight, args.bias, first, count);
        int number = 0;
        for (int64_t t = first_row; t < std::min(first_row + chunk, rows);) {
          while (t >= args.runs[number].end) ++number;
          const TokenRun run = args.runs.whole(number);
          for (; t < std::min<int64_t>({run.end, first_row + chunk, rows}); ++t)
            row(args, taps, run, t, first, count);
        }
      }
    });
    stream.team().parallel_for(args.runs.count, 16, [&](int64_t begin, int64_t end, int) {
      for (auto i = int(begin); i < int(end); ++i) {
        if (args.runs.goes_on(i)) continue;
        int last = i;
        do
          if (args.runs[last].to >= 0) keep_rows<T>(args, args.runs.whole(last));
        while (args.runs.goes_on(++last));
      }
    });
  });
}

// What the lanes of `sums` are, to outputs that lie `stride` apart.
HWY_INLINE void add_up(float* to, int64_t stride, F32 sums, int64_t count, bool accumulate) {
  const F32Tag d;
  alignas(64) float lanes[hn::MaxLanes(F32Tag())];
  hn::Store(sums, d, lanes);
  for (int64_t i = 0; i < count; ++i) to[i * stride] = accumulate ? to[i * stride] + lanes[i] : lanes[i];
}

// A vector of channels from c on, the first of which is number `first` of `taps`, through all rows.
template <Activation kF, class T, class Part>
HWY_INLINE void conv_back(const CausalConvBackwardArgs& args, const Taps& taps, int64_t first, int64_t c, Part part) {
  const F32Tag d;
  const int64_t channels = args.x.dim(1), width = args.weight.dim(1);
  const T *const x = args.x.data<T>() + c, *const dy = args.dy.data<T>() + c;
  T* const dx = args.dx.data<T>() + c;
  F32 tap[kMostConvWidth], dtap[kMostConvWidth], seen[kMostConvWidth], dsums[kMostConvWidth];
  for (int64_t j = 0; j < width; ++j) tap[j] = load(d, taps.rows[j] + first, part), dtap[j] = hn::Zero(d);
  const F32 bias = load(d, taps.bias + first, part);
  F32 dbias = hn::Zero(d);
  for (const TokenRun& run : args.runs) {
    for (int64_t j = 0; j < width; ++j) seen[j] = dsums[j] = hn::Zero(d);  // the last rows, the newest last
    for (int64_t t = run.begin; t < run.end + width - 1; ++t) {
      for (int64_t j = 0; j + 1 < width; ++j) seen[j] = seen[j + 1], dsums[j] = dsums[j + 1];
      F32 newest = hn::Zero(d);
      if (t < run.end) {
        seen[width - 1] = load(d, x + t * channels, part);
        F32 sum = bias, value, slope;
        for (int64_t j = 0; j < width; ++j) sum = hn::MulAdd(seen[j], tap[j], sum);
        activate<kF>(d, sum, value, slope);
        newest = hn::Mul(load(d, dy + t * channels, part), slope);
        for (int64_t j = 0; j < width; ++j) dtap[j] = hn::MulAdd(seen[j], newest, dtap[j]);
        dbias = hn::Add(dbias, newest);
      }
      dsums[width - 1] = newest;
      if (const int64_t row = t - width + 1; row >= run.begin) {  // all that saw it have been here
        F32 sum = hn::Zero(d);
        for (int64_t j = 0; j < width; ++j) sum = hn::MulAdd(dsums[width - 1 - j], tap[j], sum);
        store(sum, d, dx + row * channels, part);
      }
    }
  }
  const int64_t count = std::min(int64_t(hn::Lanes(d)), channels - c);
  if (args.dbias) add_up(args.dbias.data<float>() + c, 1, dbias, count, args.accumulate);
  if (!args.dweight) return;
  for (int64_t j = 0; j < width; ++j)
    add_up(args.dweight.data<float>() + c * width + j, width, dtap[j], count, args.accumulate);
}

void causal_conv_backward(Stream& stream, const CausalConvBackwardArgs& args) {
  with_dtype("causal_conv_backward", args.x, [&](auto element) {
    using T = decltype(element);
    constexpr int64_t kAtOnce = 64;  // whole cache lines
    static_assert(kAtOnce <= kChannels);
    stream.team().parallel_for(args.x.dim(1), kAtOnce, [&](int64_t begin, int64_t end, int) {
      Taps taps;
      taps.load<T>(args.weight, args.bias, begin, end - begin);
      for_each_vector(end - begin, [&](int64_t c, auto part) HWY_ATTR {
        if (args.f == Activation::silu)
          conv_back<Activation::silu, T>(args, taps, c, begin + c, part);
        else
          conv_back<Activation::identity, T>(args, taps, c, begin + c, part);
      });
    });
  });
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(causal_conv);
HWY_EXPORT(causal_conv_backward);

void causal_conv(Stream& stream, const CausalConvArgs& args) {
  shapes::check_causal_conv(args);
  HWY_DYNAMIC_DISPATCH(causal_conv)(stream, args);
}

void causal_conv_backward(Stream& stream, const CausalConvBackwardArgs& args) {
  shapes::check_causal_conv_backward(args);
  HWY_DYNAMIC_DISPATCH(causal_conv_backward)(stream, args);
}

}  // namespace weft::cpu
#endif
