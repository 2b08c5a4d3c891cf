// trimmed: a text without the spaces and ends of lines around it.
#pragma once
#include <string_view>

namespace weft::api {

inline constexpr std::string_view kSpace = " \t\r\n";

inline std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

}  // namespace weft::api
