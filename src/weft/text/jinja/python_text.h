// Python's methods of str, on UTF-8: positions and lengths count code points.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/text/unicode.h"
#include "weft/text/utf8.h"

namespace weft::jinja {

// Calls visit(code point, its bytes) for each; a byte that is no UTF-8 counts as U+FFFD.
template <class Visit>
void for_each_code_point(std::string_view text, Visit&& visit) {
  while (!text.empty()) {
    const Utf8CodePoint point = read_utf8(text);
    visit(point.value, text.substr(0, point.length));
    text.remove_prefix(point.length);
  }
}

// What Python's [begin:end:step] of `length` things are: the first, and how many.
struct Slice {
  int64_t first = 0, count = 0, step = 1;
};
Slice slice_of(int64_t length, std::optional<int64_t> begin, std::optional<int64_t> end, int64_t step);

int64_t length_of(std::string_view text);
std::string slice_text(std::string_view text, std::optional<int64_t> begin, std::optional<int64_t> end, int64_t step);
std::string reversed_text(std::string_view text);

bool is_space(char32_t c);
bool is_printable(char32_t c);  // repr() writes others as escapes

std::string capitalized(std::string_view text);     // the first letter upper, the others lower
std::string titled(std::string_view text);          // str.title(): each letter that follows no letter begins a word
std::string title_filtered(std::string_view text);  // Jinja's filter: words begin after -, (, {, [, < and spaces

// Without `characters` at the ends; without `characters`, without space.
enum class Side { left, right, both };
std::string stripped(std::string_view text, Side side, std::optional<std::string_view> characters = {});

// Python's split: without a separator at runs of space, leaving no empty parts. `max_splits` < 0: all.
std::vector<std::string> split_text(std::string_view text, std::optional<std::string_view> separator,
                                    int64_t max_splits, bool from_right);
std::vector<std::string> split_lines(std::string_view text, bool keep_ends);

// The first `count` occurrences; all when it is negative.
std::string replaced(std::string_view text, std::string_view from, std::string_view to, int64_t count);
int64_t count_of(std::string_view text, std::string_view part);  // without overlap

// The first byte of `part`, or npos; in time that grows with the sum of both, whatever they are.
size_t find_bytes(std::string_view text, std::string_view part, size_t from = 0);
// The position of `part` as a code point, or -1.
int64_t find_text(std::string_view text, std::string_view part, bool from_right);

}  // namespace weft::jinja
