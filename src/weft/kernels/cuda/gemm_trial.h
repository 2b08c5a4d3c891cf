// GemmTrial: a product of noise with the shapes of another one, to compare ways of making it.
#pragma once
#include "weft/kernels/cuda/gemm.h"

namespace weft::cuda {

class GemmTrial {
 public:
  // `like` is no product of codes. Throws Error where there is no memory for it.
  GemmTrial(Stream& stream, const Gemm& like);

  const Gemm& product() const { return product_; }
  void restart();     // y is zeros
  void keep();        // what y is now is what others are compared with
  bool is_as_kept();  // bit for bit; waits for the device
  Allocator& memory() { return memory_; }

 private:
  Stream& stream_;
  Allocator memory_{Device::cuda};  // its own, given back with it: what the stream's keeps is not pushed out
  Gemm product_;
  Tensor a_, b_, bias_, pre_, y_, kept_;
};

// Of the memory that a trial takes.
int64_t trial_bytes(const Gemm& like);

}  // namespace weft::cuda
