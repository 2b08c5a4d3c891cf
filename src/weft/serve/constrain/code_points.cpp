// Code points: ranges are cut where the number of bytes changes, then where a byte would not run over a whole range.
#include "weft/serve/constrain/code_points.h"

#include <algorithm>
#include <map>
#include <string>

#include "weft/text/utf8.h"

namespace weft::constrain {
namespace {

constexpr char32_t kLast = 0x10FFFF, kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

using Grouped = std::map<std::vector<ByteRange>, ByteSet>;  // leads by tail

// Of a range whose ends have equally many bytes.
void add_range(char32_t first, char32_t last, size_t num_bytes, Grouped& out) {
  for (size_t i = 1; i < num_bytes; ++i) {
    const char32_t low = (char32_t(1) << (6 * i)) - 1;
    if ((first & ~low) == (last & ~low)) continue;
    if ((first & low) != 0) {
      add_range(first, first | low, num_bytes, out);
      return add_range((first | low) + 1, last, num_bytes, out);
    }
    if ((last & low) != low) {
      add_range(first, (last & ~low) - 1, num_bytes, out);
      return add_range(last & ~low, last, num_bytes, out);
    }
  }
  std::string from, to;
  append_utf8(first, from);
  append_utf8(last, to);
  std::vector<ByteRange> tail;
  for (size_t i = 1; i < num_bytes; ++i) tail.push_back({uint8_t(from[i]), uint8_t(to[i])});
  ByteSet& lead = out[tail];
  for (int byte = uint8_t(from[0]); byte <= uint8_t(to[0]); ++byte) lead.set(size_t(byte));
}

}  // namespace

CodePoints tidy(CodePoints set) {
  CodePoints cut;
  for (const CodePointRange& range : set) {
    const char32_t last = std::min(range.last, kLast);
    if (range.first < kFirstSurrogate && range.first <= last)
      cut.push_back({range.first, std::min<char32_t>(last, kFirstSurrogate - 1)});
    if (last > kLastSurrogate && range.first <= last)
      cut.push_back({std::max<char32_t>(range.first, kLastSurrogate + 1), last});
  }
  std::sort(cut.begin(), cut.end());
  CodePoints tidied;
  for (const CodePointRange& range : cut) {
    if (!tidied.empty() && range.first <= tidied.back().last + 1)
      tidied.back().last = std::max(tidied.back().last, range.last);
    else
      tidied.push_back(range);
  }
  return tidied;
}

CodePoints complement(const CodePoints& set) {
  CodePoints rest;
  char32_t next = 0;
  for (const CodePointRange& range : tidy(set)) {
    if (range.first > next) rest.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLast) rest.push_back({next, kLast});
  return tidy(rest);
}

CodePoints intersection(const CodePoints& a, const CodePoints& b) {
  CodePoints outside = complement(a);
  const CodePoints more = complement(b);
  outside.insert(outside.end(), more.begin(), more.end());
  return complement(outside);
}

std::vector<ByteSequences> utf8_of(const CodePoints& set) {
  struct Length {
    char32_t first, last;
    size_t num_bytes;
  };
  static constexpr Length kLengths[] = {{0, 0x7F, 1}, {0x80, 0x7FF, 2}, {0x800, 0xFFFF, 3}, {0x10000, kLast, 4}};
  Grouped grouped;
  for (const CodePointRange& range : tidy(set)) {
    for (const Length& length : kLengths) {
      const char32_t first = std::max(range.first, length.first), last = std::min(range.last, length.last);
      if (first <= last) add_range(first, last, length.num_bytes, grouped);
    }
  }
  std::vector<ByteSequences> sequences;
  for (const auto& [tail, lead] : grouped) sequences.push_back({lead, tail});
  return sequences;
}

}  // namespace weft::constrain
