// What the tests of context parallelism share: micro-batches cut into documents.
#pragma once
#include <cstdint>
#include <vector>

namespace weft {

constexpr int64_t kContextRows = 2, kContextSeqLen = 24;  // divides among 1, 2, 3 and 4 ranks

inline std::vector<int32_t> whole_rows() { return {0, 24, 48}; }
// Documents of one token, inside one chunk, over several, and one that is empty.
inline std::vector<int32_t> cut_rows() { return {0, 5, 6, 17, 24, 31, 31, 45, 48}; }

}  // namespace weft
