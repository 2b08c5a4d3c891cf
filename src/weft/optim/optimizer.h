// Optimizer: updates the master weights that this rank owns from their gradients.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "weft/parallel/data/near.h"

namespace weft {

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // One update with every gradient multiplied by grad_scale. Afterwards values are to be published.
  void step(double lr, double grad_scale) {
    ++num_updates_;
    const NearInTurn in_turn(owned_);
    update(lr, grad_scale);
  }

  // What is kept for every element: laid out as the flat tensors of owned()[i]; in checkpoints under
  // "NAME.PARAMETER".
  struct State {
    std::string name;
    std::vector<Tensor> parts;
  };
  virtual std::vector<State> states() = 0;
  std::span<const Owned> owned() const { return owned_; }

  // After the masters were written from elsewhere: the values that are apart from them follow.
  void masters_changed() {
    const NearInTurn in_turn(owned_);
    for (const Owned& o : owned_) {
      const Near near(o, Access::write);
      if (o.values) context_.kernels.convert(context_.stream, o.values, o.master);
    }
  }
  int64_t num_updates() const { return num_updates_; }
  void set_num_updates(int64_t n) { num_updates_ = n; }

 protected:
  Optimizer(Context& context, std::vector<Owned> owned) : context_(context), owned_(std::move(owned)) {}
  // Uses each bucket while it is Near, in order.
  virtual void update(double lr, double grad_scale) = 0;

  // Zeroed tensors of one dtype, one for each of owned().
  std::vector<Tensor> zeros() const {
    std::vector<Tensor> parts;
    for (const Owned& o : owned_) parts.push_back(o.new_state(context_, o.master.dtype(), o.master.shape()));
    return parts;
  }

  Context& context_;
  std::vector<Owned> owned_;
  int64_t num_updates_ = 0;
};

}  // namespace weft
