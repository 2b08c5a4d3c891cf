// Limits of tokenizer files, which come from anywhere: what no real vocabulary reaches is refused early.
#pragma once
#include <cstddef>
#include <cstdint>

namespace weft {

constexpr int32_t kMostTokens = 1 << 22;            // ids are below; the largest published vocabularies have 2^18
constexpr size_t kMostTokenBytes = 1 << 14;         // of one token's spelling
constexpr size_t kMostMerges = size_t(1) << 23;     // of a byte-pair vocabulary
constexpr size_t kMostAddedTokenBytes = 1 << 10;    // of a token that is looked for in the text before anything else
constexpr size_t kMostTextBytes = size_t(1) << 30;  // of a text encoded at once
// What replacements may make of a text: a multiple of its bytes, and some more. NFKC makes at most 11 of one.
constexpr size_t kMostGrowth = 64, kMostGrownBytes = 1 << 16;
constexpr uint64_t kMostTokenizerFileBytes = uint64_t(128) << 20;

}  // namespace weft
