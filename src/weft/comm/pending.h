// Pending: a started collective, which owns its tensors until it is waited for.
#pragma once
#include <cstdint>

#include "weft/tensor/tensor.h"

namespace weft {

class Communicator;

// Must not outlive its communicator. The destructor waits too, but cannot report a failure: the group's next call
// does. When an exception is on its way the destructor gives the group up instead of waiting for ranks that may never
// come: later calls on the group throw AbortedError.
class Pending {
 public:
  Pending() = default;  // done
  Pending(Pending&& other) noexcept;
  Pending& operator=(Pending&& other) noexcept;
  ~Pending();

  bool is_started() const { return communicator_; }  // and not waited for

  // Returns when this rank's part is done and drops the tensors; throws what the collective threw.
  void wait();

 private:
  friend class Communicator;
  Pending(Communicator& communicator, uint32_t ticket, Tensor out, Tensor in);
  void finish() noexcept;

  Communicator* communicator_ = nullptr;
  uint32_t ticket_ = 0;
  int exceptions_ = 0;  // in flight when this was made
  Tensor out_, in_;
};

}  // namespace weft
