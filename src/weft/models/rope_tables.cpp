// RopeTables: frequencies, then cos and sin of every position. See RopeScaling for the sources.
#include "weft/models/rope_tables.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "weft/tensor/host_access.h"

namespace weft {
namespace {

using Kind = RopeScaling::Kind;

std::vector<double> plain_frequencies(double theta, int64_t dim) {
  std::vector<double> f(size_t(dim / 2));
  for (size_t i = 0; i < f.size(); ++i) f[i] = std::pow(theta, -2.0 * double(i) / double(dim));
  return f;
}

// Long waves are stretched, short ones are not, and between the two is a ramp.
void stretch_llama3(std::vector<double>& frequencies, const RopeScaling& s) {
  for (double& f : frequencies) {
    const double turns = double(s.original_context) * f / (2 * std::numbers::pi);
    const double ramp = s.high_freq_factor - s.low_freq_factor;  // 0: a step
    const double share = ramp > 0 ? (turns - s.low_freq_factor) / ramp : double(turns >= s.low_freq_factor);
    const double kept = std::clamp(share, 0.0, 1.0);
    f = (1 - kept) * f / s.factor + kept * f;
  }
}

// The same by the number of the pair, whose wave turns beta times in the original context.
void stretch_yarn(std::vector<double>& frequencies, const RopeScaling& s, double theta, int64_t dim) {
  const auto pair_that_turns = [&](double turns) {
    return double(dim) * std::log(double(s.original_context) / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(theta));
  };
  const double first = pair_that_turns(s.beta_fast), last = pair_that_turns(s.beta_slow);
  const double low = std::max(s.is_ramp_exact ? first : std::floor(first), 0.0);
  double high = std::min(s.is_ramp_exact ? last : std::ceil(last), double(dim - 1));
  if (high == low) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double stretched = std::clamp((double(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / s.factor * stretched + frequencies[i] * (1 - stretched);
  }
}

template <class T>
void fill_row_of(const RopeTable& table, const std::vector<double>& frequencies, double factor, int64_t position) {
  const int64_t pairs = int64_t(frequencies.size());
  T* const cos = table.cos.data<T>() + position * pairs;
  T* const sin = table.sin.data<T>() + position * pairs;
  for (int64_t i = 0; i < pairs; ++i) {
    const double angle = double(position) * frequencies[size_t(i)];
    cos[i] = T(std::cos(angle) * factor), sin[i] = T(std::sin(angle) * factor);
  }
}

void fill_row(const RopeTable& table, const std::vector<double>& frequencies, double factor, int64_t position) {
  if (table.cos.dtype() == DType::f64)
    fill_row_of<double>(table, frequencies, factor, position);
  else
    fill_row_of<float>(table, frequencies, factor, position);
}

int64_t length_of(const Pass& pass) {
  if (pass.context_plan) return pass.seq_len;
  int64_t length = 0;
  for (int64_t t = 0; t < pass.num_tokens; ++t) length = std::max<int64_t>(length, pass.attention.positions[t] + 1);
  return length;
}

}  // namespace

std::vector<double> rope_frequencies(const ModelConfig& config, int64_t length) {
  const RopeScaling& s = config.rope_scaling;
  const int64_t dim = config.global_turned_dim();
  double theta = config.rope_theta;
  if (s.kind == Kind::dynamic && length > s.original_context) {
    const double stretch = s.factor * double(length) / double(s.original_context) - (s.factor - 1);
    theta *= std::pow(stretch, double(dim) / double(dim - 2));
  }
  std::vector<double> frequencies = plain_frequencies(theta, dim);
  if (s.kind == Kind::linear || s.kind == Kind::proportional)
    for (double& f : frequencies) f /= s.factor;
  if (s.kind == Kind::proportional)
    std::fill(frequencies.begin() + std::ptrdiff_t(s.turned_share * double(dim / 2)), frequencies.end(), 0.0);
  if (s.kind == Kind::llama3) stretch_llama3(frequencies, s);
  if (s.kind == Kind::yarn) stretch_yarn(frequencies, s, theta, dim);
  if (s.kind == Kind::longrope) {
    const std::vector<double>& factors = length > s.original_context ? s.long_factors : s.short_factors;
    for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= factors[i];
  }
  return frequencies;
}

void RopeTables::prepare(Context& context, DType wide) {
  if (config_.position == PositionKind::rope) make(context, wide, std::min(config_.context, kFirstPositions));
}

void RopeTables::make(Context& context, DType wide, int64_t positions) {
  positions_ = positions;
  const auto fill = [&](RopeTable& table, const std::vector<double>& frequencies, double factor) {
    const auto pairs = int64_t(frequencies.size());
    table.cos = context.empty(wide, {positions, pairs}), table.sin = context.empty(wide, {positions, pairs});
    if (table.cos.device() == Device::meta) return;
    fill_on_host(context.stream, table.cos, [&](const Tensor& cos) {
      fill_on_host(context.stream, table.sin, [&](const Tensor& sin) {
        for (int64_t p = 0; p < positions; ++p) fill_row({cos, sin, {}}, frequencies, factor, p);
      });
    });
  };
  fill(global_, rope_frequencies(config_, 0), config_.rope_scaling.rotation_factor(config_.context));
  if (config_.rope_scaling.query_beta > 0)
    global_.query_factors =
        query_factors(context, wide, [&](int64_t p) { return config_.rope_scaling.query_factor(p); });
  if (has_local()) fill(local_, plain_frequencies(config_.local_rope_theta, config_.turned_dim()), 1);
  if (!scales_unrotated() || !config_.has_unrotated()) return;
  fill(unrotated_, {0.0}, 1);
  unrotated_.query_factors =
      query_factors(context, wide, [&](int64_t p) { return config_.unrotated_query_factor(p); });
}

void RopeTables::reserve(Context& context, int64_t positions) {
  const int64_t wanted = std::min(config_.context, positions);
  if (config_.position == PositionKind::rope && wanted > positions_) make(context, global_.cos.dtype(), wanted);
}

Tensor RopeTables::query_factors(Context& context, DType wide, auto&& factor) const {
  const Tensor factors = context.empty(wide, {positions_});
  if (factors.device() == Device::meta) return factors;
  fill_on_host(context.stream, factors, [&](const Tensor& host) {
    for (int64_t p = 0; p < positions_; ++p) {
      if (wide == DType::f64)
        host.data<double>()[p] = factor(p);
      else
        host.data<float>()[p] = float(factor(p));
    }
  });
  return factors;
}

// Where angles stretch only the rows that the pass reads are made anew.
void RopeTables::prepare(Context& context, const Pass& pass) {
  if (config_.position != PositionKind::rope) return;
  const bool may_grow = positions_ < config_.context, stretches = config_.rope_scaling.depends_on_length();
  if (!may_grow && !stretches) return;
  const int64_t length = length_of(pass);
  if (length > positions_) reserve(context, int64_t(std::bit_ceil(uint64_t(length))));
  if (!stretches || global_.cos.device() != Device::cpu) return;
  if (length != length_) {
    frequencies_ = rope_frequencies(config_, length);
    length_ = length;
  }
  const double factor = config_.rope_scaling.rotation_factor(config_.context);
  for (int64_t t = 0; t < pass.num_tokens; ++t) fill_row(global_, frequencies_, factor, pass.attention.positions[t]);
}

}  // namespace weft
