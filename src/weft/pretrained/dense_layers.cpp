// DenseLayers: products of one vector.
#include "weft/pretrained/dense_layers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "weft/pretrained/gguf_model.h"
#include "weft/pretrained/stored_tensors.h"

namespace weft {
namespace {

struct NamedTorchActivation {
  Activation activation;
  std::string_view name;
};
constexpr NamedTorchActivation kTorchActivations[] = {{Activation::identity, "torch.nn.modules.linear.Identity"},
                                                      {Activation::tanh, "torch.nn.modules.activation.Tanh"},
                                                      {Activation::relu, "torch.nn.modules.activation.ReLU"},
                                                      {Activation::gelu, "torch.nn.modules.activation.GELU"},
                                                      {Activation::silu, "torch.nn.modules.activation.SiLU"},
                                                      {Activation::sigmoid, "torch.nn.modules.activation.Sigmoid"}};

// Of those above.
double activated(Activation activation, double x) {
  switch (activation) {
    case Activation::tanh: return std::tanh(x);
    case Activation::relu: return std::max(x, 0.0);
    case Activation::gelu: return x / 2 * std::erfc(-x / std::numbers::sqrt2);
    case Activation::silu: return x / (1 + std::exp(-x));
    case Activation::sigmoid: return 1 / (1 + std::exp(-x));
    default: return x;
  }
}

std::vector<float> read_whole(const StoredTensors& stored, const std::string& name, std::vector<int64_t> dims) {
  const StoredInfo* const info = stored.find(name);
  if (!info) throw Error("{}: there is no tensor {}", stored.path(), name);
  if (info->dims != dims)
    throw Error("{}: tensor {} must be [{}]", stored.path(), info->to_text(), fmt::join(dims, ", "));
  std::vector<float> values(size_t(info->numel()));
  stored.read(*info, 0, 1, values);
  return values;
}

// In partial sums, which lie beside each other in registers.
float dot(const float* a, const float* b, size_t count) {
  constexpr size_t kLanes = 16;
  std::array<float, kLanes> sums{};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  double sum = 0;
  for (const float s : sums) sum += double(s);
  for (; i < count; ++i) sum += double(a[i]) * double(b[i]);
  return float(sum);
}

}  // namespace

DenseLayers::DenseLayers(std::span<const DenseLayer> layers, int64_t width) {
  for (const DenseLayer& layer : layers) {
    if (layer.in != width)
      throw Error("{}: {} reads vectors of {} elements, and those that it is given have {}", layer.file, layer.weight,
                  layer.in, width);
    const auto stored = is_gguf(layer.file) ? open_gguf_tensors(layer.file) : open_weights(layer.file);
    layers_.push_back({layer, read_whole(*stored, layer.weight, {layer.out, layer.in}), {}});
    if (!layer.bias.empty()) layers_.back().bias = read_whole(*stored, layer.bias, {layer.out});
    width = layer.out;
  }
}

void DenseLayers::apply(std::vector<float>& vector) const {
  std::vector<float> next;
  for (const Layer& layer : layers_) {
    const size_t width = vector.size();
    next.resize(size_t(layer.shape.out));
    for (size_t i = 0; i < next.size(); ++i) {
      const float sum = dot(layer.weight.data() + i * width, vector.data(), width);
      next[i] = float(activated(layer.shape.activation, double(layer.bias.empty() ? sum : sum + layer.bias[i])));
    }
    std::swap(vector, next);
  }
}

std::optional<Activation> torch_activation(std::string_view name) {
  const auto* const found = std::ranges::find(kTorchActivations, name, &NamedTorchActivation::name);
  return found == std::end(kTorchActivations) ? std::nullopt : std::optional(found->activation);
}

std::string_view torch_name_of(Activation activation) {
  return std::ranges::find(kTorchActivations, activation, &NamedTorchActivation::activation)->name;
}

}  // namespace weft
