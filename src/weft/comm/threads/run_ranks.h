// run_ranks: runs a function on several ranks, each a thread of this process.
#pragma once
#include <functional>

#include "weft/comm/communicator.h"

namespace weft {

// Rank 0 is the calling thread. When a rank throws, the others are woken with AbortedError, and the first failure is
// thrown here with its rank before the message; a UsageError stays what it is. One rank gets a group of its own.
void run_ranks(int num_ranks, const std::function<void(Communicator&)>& body, const CommOptions& options = {});

}  // namespace weft
