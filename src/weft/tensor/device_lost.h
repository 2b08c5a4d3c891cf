// DeviceLost: an error after which a device answers nothing that this process asks.
#pragma once
#include "weft/base/error.h"

namespace weft {

// As after an access out of bounds or memory that fails: whoever goes on after other errors ends at this one, so that
// what starts programs again can start it on a device that works.
class DeviceLost : public Error {
 public:
  using Error::Error;
};

}  // namespace weft
