// message_of: what a call says when it fails.
#pragma once
#include <string>

#include "weft/base/error.h"

namespace weft {

// Other exceptions than a Failure pass.
template <class Failure = Error>
std::string message_of(auto&& call) {
  try {
    call();
  } catch (const Failure& e) {
    return e.what();
  }
  return "nothing was thrown";
}

}  // namespace weft
