// Pieces: a text on its way through the pre-tokenizers, and how it is cut so far.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/text/pipeline/place.h"

namespace weft {

struct Span {
  uint32_t begin = 0, end = 0;
  bool operator==(const Span&) const = default;
};

struct Pieces {
  std::string text;
  std::vector<Span> spans;  // ascending, none empty; what lies between them is dropped
  TextPlace place;          // of the first span, and whether it begins the text

  std::string_view operator[](size_t i) const { return view(spans[i]); }
  std::string_view view(Span span) const { return std::string_view(text).substr(span.begin, span.end - span.begin); }
};

}  // namespace weft
