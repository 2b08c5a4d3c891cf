// Sets of code points, and the bytes that spell them in UTF-8.
#pragma once
#include <cstdint>
#include <vector>

#include "weft/serve/constrain/grammar.h"

namespace weft::constrain {

struct CodePointRange {
  char32_t first = 0, last = 0;  // both are in it
  auto operator<=>(const CodePointRange&) const = default;
};
using CodePoints = std::vector<CodePointRange>;

// In order, without overlap; surrogates, which are no characters, are left out.
CodePoints tidy(CodePoints set);
CodePoints complement(const CodePoints& set);
CodePoints intersection(const CodePoints& a, const CodePoints& b);

// Byte sequences whose first byte is of `lead` and the others of `tail`, one range for each.
struct ByteRange {
  uint8_t first = 0, last = 0;
  auto operator<=>(const ByteRange&) const = default;
};
struct ByteSequences {
  ByteSet lead;
  std::vector<ByteRange> tail;
};
// Together the UTF-8 of exactly these code points; sequences with the same tail are one entry.
std::vector<ByteSequences> utf8_of(const CodePoints& set);

}  // namespace weft::constrain
