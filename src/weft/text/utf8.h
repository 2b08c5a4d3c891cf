// UTF-8: reading one code point at a time, telling an incomplete sequence from an invalid one, and writing it back.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace weft {

enum class Utf8State { complete, incomplete, invalid };

// The first code point of a text. `length` is its bytes when complete; of an invalid sequence, the bytes that one
// U+FFFD replaces (the maximal subpart of the Unicode standard, section 3.9); of an incomplete one, all that is left.
struct Utf8CodePoint {
  Utf8State state;
  size_t length;
  char32_t value;
};

// text must not be empty. Overlong forms, surrogates and values over U+10FFFF are invalid.
Utf8CodePoint read_utf8(std::string_view text);

void append_utf8(char32_t code_point, std::string& text);

// Bytes of `text` before an incomplete sequence at its end, so that a stream can be cut there.
size_t whole_utf8_prefix(std::string_view text);

// How people read a code point: "U+00E9 'é'", without the quotes for a control character.
std::string describe_code_point(char32_t code_point);

}  // namespace weft
