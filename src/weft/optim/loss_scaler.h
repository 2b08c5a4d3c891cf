// LossScaler: keeps fp16 gradients in range by scaling the loss. Source: Micikevicius et al., 2018.
#pragma once
#include <algorithm>
#include <cstdint>

namespace weft {

// Halves the scale when a gradient overflows (that step is skipped) and doubles it after `growth_interval` good
// steps. A scaler that is off always gives 1.
class LossScaler {
 public:
  explicit LossScaler(bool is_on, double initial = 65536, int64_t growth_interval = 2000)
      : is_on_(is_on), scale_(is_on ? initial : 1), growth_interval_(growth_interval) {}

  bool is_on() const { return is_on_; }
  double scale() const { return scale_; }
  int64_t good_steps() const { return good_steps_; }
  // What another run left; a scale of 0 says that it had no scaler.
  void restore(double scale, int64_t good_steps) {
    if (is_on_ && scale > 0) scale_ = scale, good_steps_ = good_steps;
  }

  void update(bool overflowed) {
    if (!is_on_) return;
    if (overflowed) {
      scale_ = std::max(scale_ / 2, 1.0);
      good_steps_ = 0;
    } else if (++good_steps_ == growth_interval_) {
      scale_ = std::min(scale_ * 2, 0x1p40);
      good_steps_ = 0;
    }
  }

 private:
  bool is_on_;
  double scale_;
  int64_t growth_interval_;
  int64_t good_steps_ = 0;
};

}  // namespace weft
