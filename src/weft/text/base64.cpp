// Base64: three bytes are four characters.
#include "weft/text/base64.h"

#include <array>
#include <cstdint>

namespace weft {
namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<int8_t, 256> values_of_digits() {
  std::array<int8_t, 256> values{};
  for (int8_t& value : values) value = -1;
  for (size_t i = 0; i < kDigits.size(); ++i) values[uint8_t(kDigits[i])] = int8_t(i);
  return values;
}
constexpr std::array<int8_t, 256> kValues = values_of_digits();

}  // namespace

std::string base64_of(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t group = 0;
    for (size_t i = 0; i < 3; ++i) group = group << 8 | (at + i < bytes.size() ? uint8_t(bytes[at + i]) : 0u);
    for (size_t i = 0; i < 4; ++i) text += i <= bytes.size() - at ? kDigits[group >> (18 - 6 * i) & 63] : '=';
  }
  return text;
}

std::optional<std::string> bytes_of_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (size_t at = 0; at < text.size(); at += 4) {
    const size_t padded = at + 4 == text.size() ? padding : 0;
    uint32_t group = 0;
    for (size_t i = 0; i < 4; ++i) {
      const int8_t value = i < 4 - padded ? kValues[uint8_t(text[at + i])] : int8_t(0);
      if (value < 0) return std::nullopt;
      group = group << 6 | uint32_t(value);
    }
    if (padded > 0 && (group & (padded == 1 ? 0xFFu : 0xFFFFu)) != 0) return std::nullopt;
    for (size_t i = 0; i < 3 - padded; ++i) bytes.push_back(char(uint8_t(group >> (16 - 8 * i))));
  }
  return bytes;
}

}  // namespace weft
