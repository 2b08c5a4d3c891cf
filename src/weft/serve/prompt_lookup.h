// propose_by_lookup: what may come next, taken from what came before: texts repeat themselves and their prompts.
// Source: Saxena, "Prompt Lookup Decoding", 2023.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace weft {

// Appends up to `most` tokens: those that followed where the newest tokens, as many as possible but at least two,
// stood before; of several such places the last. Looks at each token once.
void propose_by_lookup(std::span<const int32_t> tokens, int64_t most, std::vector<int32_t>& draft_tokens);

}  // namespace weft
