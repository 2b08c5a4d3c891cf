// UTF-8: code points by table 3-7 of the Unicode standard.
#include "weft/text/utf8.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace weft {
namespace {

// What a leading byte promises: the length, and the range of the second byte, which excludes overlong forms,
// surrogates and values over U+10FFFF (Unicode standard, table 3-7).
struct Lead {
  size_t length;
  uint8_t low, high;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte < 0xF0) return {3, uint8_t(byte == 0xE0 ? 0xA0 : 0x80), uint8_t(byte == 0xED ? 0x9F : 0xBF)};
  if (byte < 0xF5) return {4, uint8_t(byte == 0xF0 ? 0x90 : 0x80), uint8_t(byte == 0xF4 ? 0x8F : 0xBF)};
  return {0, 0, 0};
}

}  // namespace

Utf8CodePoint read_utf8(std::string_view text) {
  const uint8_t first = uint8_t(text[0]);
  const Lead lead = lead_of(first);
  if (lead.length == 0) return {Utf8State::invalid, 1, 0xFFFD};
  if (lead.length == 1) return {Utf8State::complete, 1, first};
  char32_t value = first & (0x7Fu >> lead.length);
  for (size_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {Utf8State::incomplete, i, 0xFFFD};
    const uint8_t byte = uint8_t(text[i]);
    const uint8_t low = i == 1 ? lead.low : 0x80, high = i == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) return {Utf8State::invalid, i, 0xFFFD};
    value = value << 6 | (byte & 0x3F);
  }
  return {Utf8State::complete, lead.length, value};
}

void append_utf8(char32_t c, std::string& text) {
  const auto put = [&](uint32_t byte) { text.push_back(char(uint8_t(byte))); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F)), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  }
}

size_t whole_utf8_prefix(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const std::string_view tail = text.substr(text.size() - back);
    if ((uint8_t(tail[0]) & 0xC0) == 0x80) continue;  // a continuation byte: its leading byte is further back
    return read_utf8(tail).state == Utf8State::incomplete ? text.size() - back : text.size();
  }
  return text.size();
}

size_t valid_utf8_prefix(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    uint64_t eight;
    if (at + sizeof eight <= text.size()) {  // ASCII, eight bytes at once
      std::memcpy(&eight, text.data() + at, sizeof eight);
      if ((eight & 0x8080808080808080u) == 0) {
        at += sizeof eight;
        continue;
      }
    }
    const Utf8CodePoint c = read_utf8(text.substr(at));
    if (c.state != Utf8State::complete) return at;
    at += c.length;
  }
  return text.size();
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t valid = valid_utf8_prefix(text);
    out += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty()) break;
    append_utf8(0xFFFD, out);
    text.remove_prefix(read_utf8(text).length);
  }
  return out;
}

CodePoint first_code_point(std::string_view text) {
  if (uint8_t(text[0]) < 0x80) return {char32_t(text[0]), 1};
  const Utf8CodePoint c = read_utf8(text);
  return c.state == Utf8State::complete ? CodePoint{c.value, c.length} : CodePoint{0xFFFD, 1};
}

size_t count_code_points(std::string_view text) {
  return size_t(std::count_if(text.begin(), text.end(), [](char c) { return (uint8_t(c) & 0xC0) != 0x80; }));
}

std::string describe_code_point(char32_t code_point) {
  std::string text = fmt::format("U+{:04X}", uint32_t(code_point));
  const bool is_control = code_point < 0x20 || (code_point >= 0x7F && code_point < 0xA0);
  if (is_control) return text;
  text += " '";
  append_utf8(code_point, text);
  return text += '\'';
}

}  // namespace weft
