// LrSchedule: the learning rate of every step: warmup, then a decay.
#pragma once
#include <cstdint>

namespace weft {

enum class Decay : uint8_t { cosine, linear, wsd, constant };

// Warms up linearly over the first `warmup` steps: step s runs at lr * (s + 1) / warmup. Then cosine and linear fall
// to min_lr at the last step; wsd stays at lr and falls linearly to min_lr over the last `decay_steps`. Sources:
// Loshchilov and Hutter, 2017 (cosine); Hu et al., "MiniCPM", 2024 (warmup-stable-decay).
struct LrSchedule {
  Decay decay = Decay::cosine;
  double lr = 1e-3, min_lr = 0;
  int64_t warmup = 0, steps = 0;
  int64_t decay_steps = 0;  // wsd only

  double at(int64_t step) const;  // steps count from 0
};

}  // namespace weft
