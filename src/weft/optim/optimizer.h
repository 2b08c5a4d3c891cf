// Optimizer: updates the master weights that this rank owns from their gradients.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "weft/base/function_ref.h"
#include "weft/parallel/data/near.h"

namespace weft {

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // One update with every gradient multiplied by grad_scale. Afterwards values are to be published. Collective, where
  // an update needs more of a weight than one rank owns.
  void step(double lr, double grad_scale) {
    ++num_updates_;
    const NearInTurn in_turn(owned_);
    update(lr, grad_scale);
  }

  // What is kept of a parameter, as f32 and as one rank would have it; in checkpoints under "NAME.PARAMETER".
  struct State {
    std::string name;
    Shape shape;
  };
  // Of a parameter by its name and whole shape: the same on every rank, whether or not it has part of it.
  virtual std::vector<State> states_of(std::string_view param, const Shape& whole) const = 0;
  // Calls visit(here, first, is_counted) for all that this rank has of a state: f32 numbers, which are elements from
  // `first` on of the whole; ranks that count them have them all, each once. Afterwards, with `is_written`, the state
  // is what visit has left in `here`.
  using VisitState = FunctionRef<void(const Tensor& here, int64_t first, bool is_counted)>;
  virtual void visit_state(std::string_view param, std::string_view state, bool is_written, VisitState visit) = 0;

  std::span<const Owned> owned() const { return owned_; }

  // After the masters were written from elsewhere: the values that are apart from them follow.
  void masters_changed() {
    const NearInTurn in_turn(owned_);
    for (const Owned& o : owned_) {
      const Near near(o, Access::write);
      if (o.values && !o.is_split()) context_.kernels.convert(context_.stream, o.values, o.master);
    }
  }
  int64_t num_updates() const { return num_updates_; }
  void set_num_updates(int64_t n) { num_updates_ = n; }

 protected:
  Optimizer(Context& context, std::vector<Owned> owned) : context_(context), owned_(std::move(owned)) {}
  // Uses each bucket while it is Near, in order.
  virtual void update(double lr, double grad_scale) = 0;

  Context& context_;
  std::vector<Owned> owned_;
  int64_t num_updates_ = 0;
};

// Calls visit(here, first, is_counted) for a piece's elements, `all`, as they lie in the whole parameter.
inline void visit_piece(const Owned& o, const Piece& piece, const Tensor& all, Optimizer::VisitState visit) {
  const Placement& placement = piece.param->placement;
  const bool is_counted = o.is_counted && placement.is_first_copy;
  placement.each_run(piece.first, piece.count, [&](int64_t local, int64_t global, int64_t n) {
    visit(all.slice_flat(local - piece.first, {n}), global, is_counted);
  });
}

}  // namespace weft
