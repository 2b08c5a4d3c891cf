// Replacing in texts by rules that come from files, within a limit of how far they make a text grow.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace weft {

// Throws Error when what was a text of `before` bytes has far more now: rules can double it, one after the other.
void check_growth(size_t before, size_t now);

// An empty pattern is found nowhere. Grows as check_growth allows.
void replace_all(std::string& text, std::string_view pattern, std::string_view content);

}  // namespace weft
