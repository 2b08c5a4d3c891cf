// agree_on_split: the exchange of colors and keys that every transport's split begins with.
#pragma once
#include <vector>

#include "weft/base/function_ref.h"
#include "weft/comm/communicator.h"

namespace weft {

struct SplitPlace {
  int rank = 0;              // of this rank in its new group
  int color_index = 0;       // of this color among all, ascending
  std::vector<int> members;  // ranks of the old group, in the order of the new one
};

SplitPlace agree_on_split(const Communicator& communicator, int color, int key,
                          FunctionRef<void(const Collective&)> collective);

}  // namespace weft
