// Excerpt: text from outside as a message may show it: short, and without characters that act on a terminal.
#pragma once
#include <string>
#include <string_view>

namespace weft {

inline std::string excerpt(std::string_view text, size_t longest = 200) {
  const bool is_cut = text.size() > longest;
  if (is_cut) {
    text = text.substr(0, longest);
    while (!text.empty() && (text.back() & 0x80) != 0) text.remove_suffix(1);  // no half of a UTF-8 sequence
  }
  std::string shown;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_control = byte < 0x20 || byte == 0x7f;
    shown += is_control ? '?' : c;
  }
  return is_cut ? shown + "..." : shown;
}

// The same of its end.
inline std::string excerpt_of_end(std::string_view text, size_t longest = 200) {
  if (text.size() <= longest) return excerpt(text, longest);
  text = text.substr(text.size() - longest);
  while (!text.empty() && (text.front() & 0xC0) == 0x80) text.remove_prefix(1);
  return "..." + excerpt(text, longest);
}

}  // namespace weft
