// Causal convolution of single channels: memory bounds it, a thread to each element.
#include <vector>

#include "weft/kernels/cuda/activation.cuh"
#include "weft/kernels/cuda/column_sums.cuh"
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

// Of a row: where its run, with those that it goes on from, begins and ends, and with which state.
struct RunOfRow {
  int32_t begin, end, from;
};

const RunOfRow* runs_of_rows(Stream& stream, const TokenRuns& runs, int64_t rows) {
  std::vector<RunOfRow> all;
  all.reserve(size_t(rows));
  for (int i = 0; i < runs.count; ++i) {
    const TokenRun whole = runs.whole(i);
    all.insert(all.end(), size_t(runs[i].end - runs[i].begin), {whole.begin, whole.end, whole.from});
  }
  return upload(stream, all.data(), rows);
}

// A run with those that it goes on from, and whether there are any.
struct KeptRun {
  TokenRun run;
  bool goes_on;
};

const KeptRun* kept_runs(Stream& stream, const TokenRuns& runs) {
  std::vector<KeptRun> all;
  all.reserve(size_t(runs.count));
  for (int i = 0; i < runs.count; ++i) all.push_back({runs.whole(i), runs.goes_on(i)});
  return upload(stream, all.data(), runs.count);
}

template <class T>
struct Conv {
  const T *x, *weight, *bias, *states;
  int channels, width;
  Activation f;

  // x[row, c] as the rows of a run see it.
  __device__ __forceinline__ float seen(int32_t begin, int32_t from, int64_t row, int c) const {
    if (row >= begin) return load(x + row * channels + c);
    if (from < 0) return 0;
    return load(states + (int64_t(from) * (width - 1) + row - begin + width - 1) * channels + c);
  }
  __device__ __forceinline__ float sum(const RunOfRow& run, int64_t row, int c) const {
    float total = bias ? load(bias + c) : 0.0f;
    for (int j = 0; j < width; ++j)
      total += seen(run.begin, run.from, row - width + 1 + j, c) * load(weight + int64_t(c) * width + j);
    return total;
  }
};

template <class T>
__global__ void conv_kernel(T* y, const Conv<T> conv, const RunOfRow* runs, int64_t count) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    const int64_t row = i / conv.channels;
    store(y + i, activate(conv.f, conv.sum(runs[row], row, int(i % conv.channels))));
  }
}

// A thread to each channel of a run and of those that go on from it, the last of which may write what all of them
// read; upwards: a run of few rows moves what its state has.
template <class T>
__global__ void keep_kernel(T* states, const Conv<T> conv, const KeptRun* runs, int64_t count) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    const int c = int(i % conv.channels);
    const KeptRun *at = runs + i / conv.channels, *const end = runs + count / conv.channels;
    if (at->goes_on) continue;
    do {
      const TokenRun run = at->run;
      for (int j = 0; run.to >= 0 && j < conv.width - 1; ++j)
        store(states + (int64_t(run.to) * (conv.width - 1) + j) * conv.channels + c,
              conv.seen(run.begin, run.from, int64_t(run.end) - conv.width + 1 + j, c));
    } while (++at < end && at->goes_on);
  }
}

template <class T>
__global__ void dsum_kernel(float* dsum, const T* dy, const Conv<T> conv, const RunOfRow* runs, int64_t count) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    const int64_t row = i / conv.channels;
    const float sum = conv.sum(runs[row], row, int(i % conv.channels));
    dsum[i] = load(dy + i) * activation_slope(conv.f, sum);
  }
}

template <class T>
__global__ void conv_dx_kernel(T* dx, const float* dsum, const Conv<T> conv, const RunOfRow* runs, int64_t count) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    const int64_t row = i / conv.channels;
    const int c = int(i % conv.channels);
    float total = 0;
    for (int j = 0; j < conv.width; ++j) {
      const int64_t later = row + conv.width - 1 - j;
      if (later < runs[row].end)
        total += dsum[later * conv.channels + c] * load(conv.weight + int64_t(c) * conv.width + j);
    }
    store(dx + i, total);
  }
}

// Of tap j of channel c, which is column c W + j.
template <class T>
struct TapTerms {
  const float* dsum;
  Conv<T> conv;
  const RunOfRow* runs;

  template <int N>
  __device__ __forceinline__ void at(float (&term)[N], int64_t row, int64_t col) const {
    for (int i = 0; i < N; ++i) {
      const int c = int((col + i) / conv.width), j = int((col + i) % conv.width);
      term[i] = dsum[row * conv.channels + c] * conv.seen(runs[row].begin, -1, row - conv.width + 1 + j, c);
    }
  }
};

template <class T>
Conv<T> conv_of(const auto& args, const Tensor& states) {
  return {.x = device_data<T>(args.x),
          .weight = device_data<T>(args.weight),
          .bias = device_data<T>(args.bias),
          .states = device_data<T>(states),
          .channels = int(args.x.dim(1)),
          .width = int(args.weight.dim(1)),
          .f = args.f};
}

}  // namespace

void causal_conv(Stream& stream, const CausalConvArgs& args) {
  shapes::check_causal_conv(args);
  const int64_t rows = args.x.dim(0), channels = args.x.dim(1);
  with_float("causal_conv", args.x, [&]<class T>() {
    const Conv<T> conv = conv_of<T>(args, args.states);
    launch(stream, conv_kernel<T>, over_elements(rows * channels), device_data<T>(args.y), conv,
           runs_of_rows(stream, args.runs, rows), rows * channels);
    if (!args.states) return;
    const int64_t kept = args.runs.count * channels;
    launch(stream, keep_kernel<T>, over_elements(kept), device_data<T>(args.states), conv,
           kept_runs(stream, args.runs), kept);
  });
}

void causal_conv_backward(Stream& stream, const CausalConvBackwardArgs& args) {
  shapes::check_causal_conv_backward(args);
  const int64_t rows = args.x.dim(0), channels = args.x.dim(1), count = rows * channels;
  const Tensor dsum = stream.allocator().empty(DType::f32, {rows, channels});
  const RunOfRow* const runs = runs_of_rows(stream, args.runs, rows);
  with_float("causal_conv_backward", args.x, [&]<class T>() {
    const Conv<T> conv = conv_of<T>(args, {});
    auto* const sums = device_data<float>(dsum);
    launch(stream, dsum_kernel<T>, over_elements(count), sums, device_data<T>(args.dy), conv, runs, count);
    launch(stream, conv_dx_kernel<T>, over_elements(count), device_data<T>(args.dx), sums, conv, runs, count);
    if (args.dweight)
      sum_columns<1>(stream, device_data<float>(args.dweight), TapTerms<T>{sums, conv, runs}, rows,
                     channels * conv.width, args.accumulate);
    if (args.dbias)
      sum_columns<1>(stream, device_data<float>(args.dbias), ElementTerms<float>{sums, channels}, rows, channels,
                     args.accumulate);
  });
}

}  // namespace weft::cuda
