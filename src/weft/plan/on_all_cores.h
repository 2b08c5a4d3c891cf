// on_all_cores: pieces of planning that do not know of each other, on every core of the machine.
#pragma once
#include <algorithm>

#include "weft/base/machine.h"
#include "weft/base/thread_team.h"

namespace weft::plan {

// body(i) for each i below count, in any order; the first exception is thrown again.
inline void on_all_cores(size_t count, FunctionRef<void(size_t i)> body) {
  ThreadTeam(int(std::clamp<int64_t>(int64_t(count), 1, usable_cores())))
      .parallel_for(int64_t(count), 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) body(size_t(i));
      });
}

}  // namespace weft::plan
