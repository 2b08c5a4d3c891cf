// SavedInputs: where the inputs of recomputed functions wait between the forward and the backward pass.
#pragma once
#include "weft/autograd/context.h"

namespace weft {

// A tape takes back what it put in, the newest first.
class SavedInputs {
 public:
  virtual ~SavedInputs() = default;
  virtual int put(const Tape& tape, Tensor x) = 0;  // returns what to ask for it with
  virtual Tensor take(int id) = 0;
  virtual void forget(int id) noexcept = 0;  // it will not be asked for
};

// One of them: kept here, or where the context says.
class SavedInput {
 public:
  SavedInput() = default;
  SavedInput(Context& context, const Tape& tape, const Tensor& x) : store_(context.saved_inputs) {
    if (store_ && x)
      id_ = store_->put(tape, x);
    else
      here_ = x;
  }
  SavedInput(SavedInput&& other) noexcept
      : store_(other.store_), id_(std::exchange(other.id_, -1)), here_(std::move(other.here_)) {}
  SavedInput& operator=(SavedInput&& other) noexcept {
    std::swap(store_, other.store_), std::swap(id_, other.id_), std::swap(here_, other.here_);
    return *this;
  }
  ~SavedInput() {
    if (id_ >= 0) store_->forget(id_);
  }

  Tensor take() { return id_ >= 0 ? store_->take(std::exchange(id_, -1)) : std::move(here_); }

 private:
  SavedInputs* store_ = nullptr;
  int id_ = -1;
  Tensor here_;
};

}  // namespace weft
