// for_pairs: calls of an op that one kernel does two of.
#pragma once
#include <cstddef>
#include <span>

namespace weft::cuda {

// use(some) with all of `calls` in their order, by twos where neighbours are alike. Those whose x has no elements are
// left out.
template <class Args, class Use, class Alike>
void for_pairs(std::span<const Args> calls, const Use& use, const Alike& are_alike) {
  while (!calls.empty()) {
    const bool is_pair =
        calls.size() > 1 && calls[0].x.numel() > 0 && calls[1].x.numel() > 0 && are_alike(calls[0], calls[1]);
    const std::span<const Args> some = calls.first(is_pair ? 2 : 1);
    if (some[0].x.numel() > 0) use(some);
    calls = calls.subspan(some.size());
  }
}

}  // namespace weft::cuda
