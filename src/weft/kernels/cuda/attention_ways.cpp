// Attention of the cuda table: by a fused plan where one is trusted, else by tiles.
#include "weft/kernels/cuda/attention_ways.h"

#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/shape_checks.h"
#include "weft/kernels/without_cudnn.h"

namespace weft::cuda {

namespace {

void own_attention(Stream& stream, const AttentionArgs& args) {
  shapes::check_attention(args);
  tiled_attention(stream, args);
}

void own_attention_backward(Stream& stream, const AttentionBackwardArgs& args) {
  shapes::check_attention_backward(args);
  tiled_attention_backward(stream, args);
}

}  // namespace

void attention(Stream& stream, const AttentionArgs& args) {
  shapes::check_attention(args);
  if (!fused_attention(stream, args)) tiled_attention(stream, args);
}

void attention_backward(Stream& stream, const AttentionBackwardArgs& args) {
  shapes::check_attention_backward(args);
  if (!fused_attention_backward(stream, args)) tiled_attention_backward(stream, args);
}

}  // namespace weft::cuda

namespace weft {

bool has_cudnn() { return cuda::has_fused_plans(); }

const Kernels& cuda_kernels_without_cudnn() {
  static const Kernels table = [] {
    Kernels own = cuda_kernels();
    own.attention = cuda::own_attention, own.attention_backward = cuda::own_attention_backward;
    return own;
  }();
  return table;
}

}  // namespace weft
