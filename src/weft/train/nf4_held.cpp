// nf4_held: buckets of blocks.
#include "weft/train/nf4_held.h"

#include "weft/base/file.h"
#include "weft/train/trainer.h"

namespace weft {

Nf4Held nf4_held(const Trainer& trainer) {
  Nf4Held held;
  for (const Owned& o : trainer.frozen()) {
    if (o.params.empty() || !o.params.front()->is_nf4()) continue;
    const bool is_whole = bool(o.params.front()->value);  // else this rank keeps its part of the bucket
    int64_t weights = 0;
    for (const Param* p : o.params) {
      weights += p->shape.numel();
      held.bytes += int64_t(p->nf4_scales.bytes()) + (is_whole ? int64_t(p->value.bytes()) : 0);
    }
    held.weights += is_whole ? weights : weights / o.shard->size();
    if (!is_whole) held.bytes += int64_t(o.values.bytes());
  }
  return held;
}

std::string describe(const Nf4Held& held) {
  return fmt::format("{} weights in {}, {:.3f} bytes each", held.weights, human_bytes(uint64_t(held.bytes)),
                     double(held.bytes) / double(held.weights));
}

}  // namespace weft
