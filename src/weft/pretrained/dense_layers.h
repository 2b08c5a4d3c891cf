// DenseLayers: what a text's vector goes through behind the pooling, such as EmbeddingGemma's two projections.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/kernels/activation.h"

namespace weft {

// One of them, as the files beside a model describe it: y = f(W x + b).
struct DenseLayer {
  std::string file;    // that has its tensors: a folder of weights, or a GGUF file
  std::string weight;  // the name of W, [out, in]
  std::string bias;    // of b, [out]; empty: there is none
  int64_t in = 0, out = 0;
  Activation activation = Activation::identity;
  bool operator==(const DenseLayer&) const = default;
};

// With their weights, in fp32. May be used by many threads.
class DenseLayers {
 public:
  // Throws Error naming the file and the tensor that is missing or has another shape, or the layer that does not read
  // what the one before it gives. width: of a vector as the model makes it.
  DenseLayers(std::span<const DenseLayer> layers, int64_t width);

  void apply(std::vector<float>& vector) const;

  struct Layer {
    DenseLayer shape;
    std::vector<float> weight, bias;  // row by row; bias empty: none
  };
  std::span<const Layer> all() const { return layers_; }

 private:
  std::vector<Layer> layers_;
};

// PyTorch's class of an activation, as sentence-transformers' files name it; none that weft knows: nothing.
std::optional<Activation> torch_activation(std::string_view name);
std::string_view torch_name_of(Activation activation);

}  // namespace weft
