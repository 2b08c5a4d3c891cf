// Split behaviors: which stretches are kept, and which are joined.
#include "weft/text/pipeline/split.h"

#include <algorithm>

namespace weft {
namespace {

void put(Span span, std::vector<Span>& out) {
  if (span.begin < span.end) out.push_back(span);
}

// A match is joined to what is before it, unless that is a match too.
void merge_with_previous(const std::vector<Stretch>& stretches, std::vector<Span>& out) {
  Span open{};
  bool was_match = false;
  for (const Stretch& s : stretches) {
    if (s.is_match && !was_match && open.begin < open.end) {
      open.end = s.span.end;
    } else {
      put(open, out);
      open = s.span;
    }
    was_match = s.is_match;
  }
  put(open, out);
}

// The mirror image.
void merge_with_next(const std::vector<Stretch>& stretches, std::vector<Span>& out) {
  const size_t first = out.size();
  Span open{};
  bool was_match = false;
  for (auto s = stretches.rbegin(); s != stretches.rend(); ++s) {
    if (s->is_match && !was_match && open.begin < open.end) {
      open.begin = s->span.begin;
    } else {
      put(open, out);
      open = s->span;
    }
    was_match = s->is_match;
  }
  put(open, out);
  std::reverse(out.begin() + std::ptrdiff_t(first), out.end());
}

void join_alike(const std::vector<Stretch>& stretches, std::vector<Span>& out) {
  Span open{};
  bool was_match = false;
  for (const Stretch& s : stretches) {
    if (s.is_match == was_match && open.begin < open.end) {
      open.end = s.span.end;
    } else {
      put(open, out);
      open = s.span;
    }
    was_match = s.is_match;
  }
  put(open, out);
}

}  // namespace

void split_stretches(std::vector<Stretch>& stretches, SplitBehavior behavior, bool invert, std::vector<Span>& out) {
  if (invert) {
    for (Stretch& s : stretches) s.is_match = !s.is_match;
  }
  switch (behavior) {
    case SplitBehavior::isolated:
      for (const Stretch& s : stretches) put(s.span, out);
      break;
    case SplitBehavior::removed:
      for (const Stretch& s : stretches) {
        if (!s.is_match) put(s.span, out);
      }
      break;
    case SplitBehavior::merged_with_previous: merge_with_previous(stretches, out); break;
    case SplitBehavior::merged_with_next: merge_with_next(stretches, out); break;
    case SplitBehavior::contiguous: join_alike(stretches, out); break;
  }
}

}  // namespace weft
