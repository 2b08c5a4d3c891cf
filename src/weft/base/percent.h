// Percent-encoded text, as URIs have it: %41 is a byte (RFC 3986, section 2.1).
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace weft {

// Nothing where two hexadecimal digits do not follow each '%'.
inline std::optional<std::string> percent_decoded(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (text.size() - i < 3) return {};
    const int high = digit(text[i + 1]), low = digit(text[i + 2]);
    if (high < 0 || low < 0) return {};
    out += char(high * 16 + low);
    i += 2;
  }
  return out;
}

}  // namespace weft
