// Nearest: the word of a list that was most likely meant, for "did you mean" in messages.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace weft {

// Insertions, deletions, substitutions and swaps of neighbours between the two; `limit + 1` when there are more.
int edit_distance(std::string_view a, std::string_view b, int limit);

// The candidate with the fewest edits, at most one per three letters of `word` (and at least two); empty when none is
// that near. Looks at words of up to 128 letters.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

// "; did you mean x?" or nothing.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

}  // namespace weft
