// HeldValues: what this rank's blocks of a parameter hold, beside what the source of the model reads.
#pragma once
#include "pretrained/model_on_ranks.h"
#include "weft/kernels/block_decode.h"

namespace weft {

struct HeldValues {
  std::vector<float> held, read;

  HeldValues(const Param& p, const ModelSource& source) : held(size_t(p.shape.numel())), read(held.size()) {
    for (int64_t r = 0; r < p.blocks().rows; ++r) decode_row(p.blocks(), r, held.data() + r * p.shape[-1]);
    p.placement.each_run(0, p.shape.numel(), [&](int64_t local, int64_t global, int64_t n) {
      source.read(p.name, global, std::span(read).subspan(size_t(local), size_t(n)));
    });
  }
  // Squares of the differences, as a part of those of what was read.
  double error() const {
    double off = 0, all = 0;
    for (size_t i = 0; i < held.size(); ++i) {
      const double is = double(read[i]), difference = double(held[i]) - is;
      off += difference * difference, all += is * is;
    }
    return off / all;
  }
};

}  // namespace weft
