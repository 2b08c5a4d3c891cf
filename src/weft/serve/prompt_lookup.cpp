// propose_by_lookup: from the newest place back, the longest agreement wins.
#include "weft/serve/prompt_lookup.h"

#include <algorithm>

namespace weft {

void propose_by_lookup(std::span<const int32_t> tokens, int64_t most, std::vector<int32_t>& draft_tokens) {
  constexpr int64_t kLeast = 2, kEnough = 5;  // tokens that agree
  const auto size = int64_t(tokens.size());
  int64_t best = kLeast - 1, from = size;
  for (int64_t end = size - 1; end >= kLeast && best < kEnough; --end) {
    int64_t agree = 0;
    while (agree < std::min(end, kEnough) && tokens[size_t(end - 1 - agree)] == tokens[size_t(size - 1 - agree)])
      ++agree;
    if (agree > best) best = agree, from = end;
  }
  const auto found = tokens.subspan(size_t(from), size_t(std::clamp<int64_t>(most, 0, size - from)));
  draft_tokens.insert(draft_tokens.end(), found.begin(), found.end());
}

}  // namespace weft
