// can_start_early: whether a kernel may begin before the one before it ends.
#pragma once

namespace weft::cuda {

// Of the calling thread's device: it can (9.0), and the kernels were compiled with the wait that follow() is
// (follow.cuh). A driver that compiles PTX of 8.0 for a newer card makes kernels that do not wait.
bool can_start_early();

}  // namespace weft::cuda
