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

// How many leading bytes of `text` are complete, valid code points.
size_t valid_utf8_prefix(std::string_view text);

// `text`, with U+FFFD for what is not UTF-8: one for each maximal subpart.
std::string replace_invalid_utf8(std::string_view text);

// The first code point of a text that is not empty; U+FFFD, a byte long, where it is not UTF-8.
struct CodePoint {
  char32_t value;
  size_t length;
};
CodePoint first_code_point(std::string_view text);

size_t count_code_points(std::string_view valid_text);

// How people read a code point: "U+00E9 'é'", without the quotes for a control character.
std::string describe_code_point(char32_t code_point);

}  // namespace weft
