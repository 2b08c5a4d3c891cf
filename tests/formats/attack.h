// Attack: a file that lies, and what its refusal must say.
#pragma once
#include <string>

namespace weft {

struct Attack {
  std::string name, content, message;
};

}  // namespace weft
