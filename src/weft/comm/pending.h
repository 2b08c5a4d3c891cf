// Pending: a started collective, which owns its tensors until it is waited for.
#pragma once
#include <memory>

namespace weft {

class Pending {
 public:
  Pending() = default;  // done
  void wait();
};

}  // namespace weft
