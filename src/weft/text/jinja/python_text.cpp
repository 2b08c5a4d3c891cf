// Python's methods of str.
#include "weft/text/jinja/python_text.h"

#include <string.h>  // memmem

#include <algorithm>

namespace weft::jinja {
namespace {

// `text` with each code point replaced by what `change` gives for it, which is told what stands before it.
template <class Change>
std::string changed(std::string_view text, Change&& change) {
  std::string result;
  char32_t previous = 0;
  for_each_code_point(
      text, [&](char32_t c, std::string_view bytes) { result += change(bytes, std::exchange(previous, c)); });
  return result;
}

// The bytes of each code point.
std::vector<std::string_view> code_points(std::string_view text) {
  std::vector<std::string_view> points;
  for_each_code_point(text, [&](char32_t, std::string_view bytes) { points.push_back(bytes); });
  return points;
}

struct Word {
  size_t begin, end;
};

// The runs of characters that are no space.
std::vector<Word> words_of(std::string_view text) {
  std::vector<Word> words;
  size_t at = 0;
  bool is_inside = false;
  for_each_code_point(text, [&](char32_t c, std::string_view bytes) {
    const bool was_inside = std::exchange(is_inside, !is_space(c));
    if (is_inside && !was_inside) words.push_back({at, at});
    at += bytes.size();
    if (is_inside) words.back().end = at;
  });
  return words;
}

std::vector<std::string> split_at_spaces(std::string_view text, int64_t max_splits, bool from_right) {
  const std::vector<Word> words = words_of(text);
  const size_t limit = max_splits < 0 ? words.size() : size_t(max_splits);
  const bool has_rest = words.size() > limit;  // which keeps the spaces inside it, and at its other end
  const size_t begin = from_right && has_rest ? words.size() - limit : 0;
  const size_t end = from_right || !has_rest ? words.size() : limit;
  std::vector<std::string> parts;
  if (from_right && has_rest) parts.emplace_back(text.substr(0, words[begin - 1].end));
  for (size_t i = begin; i < end; ++i) {
    parts.emplace_back(text.substr(words[i].begin, words[i].end - words[i].begin));
  }
  if (!from_right && has_rest) parts.emplace_back(text.substr(words[end].begin));
  return parts;
}

std::vector<std::string> split_at(std::string_view text, std::string_view separator, int64_t max_splits,
                                  bool from_right) {
  std::vector<std::string> parts;
  while (max_splits < 0 || int64_t(parts.size()) < max_splits) {
    const size_t at = from_right ? text.rfind(separator) : find_bytes(text, separator);
    if (at == text.npos) break;
    parts.emplace_back(from_right ? text.substr(at + separator.size()) : text.substr(0, at));
    text = from_right ? text.substr(0, at) : text.substr(at + separator.size());
  }
  parts.emplace_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

}  // namespace

Slice slice_of(int64_t length, std::optional<int64_t> begin, std::optional<int64_t> end, int64_t step) {
  // From the end, then into [lowest, highest]: what a step may start from, or stop before.
  const int64_t lowest = step > 0 ? 0 : -1, highest = step > 0 ? length : length - 1;
  const auto bounded = [&](int64_t at) { return std::clamp(at < 0 ? at + length : at, lowest, highest); };
  const int64_t first = begin ? bounded(*begin) : step > 0 ? lowest : highest;
  const int64_t last = end ? bounded(*end) : step > 0 ? highest : lowest;
  const int64_t distance = step > 0 ? last - first : first - last;
  if (distance <= 0) return {first, 0, step};
  // -step of the smallest integer would overflow; no list is as long as that.
  const int64_t stride = step > 0 ? step : -std::max(step, -INT64_MAX);
  return {first, 1 + (distance - 1) / stride, step};
}

int64_t length_of(std::string_view text) {
  int64_t length = 0;
  for_each_code_point(text, [&](char32_t, std::string_view) { ++length; });
  return length;
}

std::string slice_text(std::string_view text, std::optional<int64_t> begin, std::optional<int64_t> end,
                       int64_t step) {
  const std::vector<std::string_view> points = code_points(text);
  const Slice slice = slice_of(int64_t(points.size()), begin, end, step);
  std::string result;
  for (int64_t i = 0; i < slice.count; ++i) result += points[size_t(slice.first + i * slice.step)];
  return result;
}

std::string reversed_text(std::string_view text) { return slice_text(text, {}, {}, -1); }

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_printable(char32_t c) {
  return c == U' ' || (c >= 0x21 && c <= 0x7e) || (!is_other(c) && !is_unassigned(c) && !is_separator(c));
}

std::string capitalized(std::string_view text) {
  if (text.empty()) return {};
  const Utf8CodePoint first = read_utf8(text);
  return title_case(first.value) + lower_case(text.substr(first.length));
}
std::string titled(std::string_view text) {
  return changed(text, [](std::string_view character, char32_t previous) {
    return is_cased(previous) ? lower_case(character) : title_case(read_utf8(character).value);
  });
}
std::string title_filtered(std::string_view text) {
  const auto separates = [](char32_t c) {
    return c == 0 || is_space(c) || std::u32string_view(U"-({[<").find(c) != size_t(-1);
  };
  return changed(text, [&](std::string_view character, char32_t previous) {
    return separates(previous) ? upper_case(character) : lower_case(character);
  });
}

std::string stripped(std::string_view text, Side side, std::optional<std::string_view> characters) {
  const auto goes = [&](char32_t c, std::string_view bytes) {
    return characters ? characters->find(bytes) != characters->npos : is_space(c);
  };
  size_t at = 0, begin = text.size(), end = 0;  // of what stays
  for_each_code_point(text, [&](char32_t c, std::string_view bytes) {
    if (!goes(c, bytes)) begin = std::min(begin, at), end = at + bytes.size();
    at += bytes.size();
  });
  if (side == Side::right) begin = 0;
  if (side == Side::left) end = text.size();
  return std::string(begin < end ? text.substr(begin, end - begin) : std::string_view());
}

std::vector<std::string> split_text(std::string_view text, std::optional<std::string_view> separator,
                                    int64_t max_splits, bool from_right) {
  return separator ? split_at(text, *separator, max_splits, from_right)
                   : split_at_spaces(text, max_splits, from_right);
}

std::vector<std::string> split_lines(std::string_view text, bool keep_ends) {
  const auto ends_line = [](char32_t c) {
    return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
  };
  std::vector<std::string> lines;
  std::string line;
  bool is_open = false, after_return = false;  // "\r\n" is one end
  for_each_code_point(text, [&](char32_t c, std::string_view bytes) {
    if (std::exchange(after_return, c == U'\r') && c == U'\n') {
      if (keep_ends) lines.back() += bytes;
      return;
    }
    is_open = !ends_line(c);
    if (is_open || keep_ends) line += bytes;
    if (!is_open) lines.push_back(std::exchange(line, {}));
  });
  if (is_open) lines.push_back(line);
  return lines;
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to, int64_t count) {
  std::string result;
  uint64_t left = count < 0 ? UINT64_MAX : uint64_t(count);
  if (from.empty()) {  // between all code points, and at both ends
    for_each_code_point(text, [&](char32_t, std::string_view bytes) {
      if (left > 0) result += to, --left;
      result += bytes;
    });
    if (left > 0) result += to;
    return result;
  }
  for (size_t at; left > 0 && (at = find_bytes(text, from)) != text.npos; --left) {
    result.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
  }
  return result.append(text);
}

size_t find_bytes(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return text.npos;
  const void* found = ::memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found ? size_t(static_cast<const char*>(found) - text.data()) : text.npos;
}

int64_t count_of(std::string_view text, std::string_view part) {
  if (part.empty()) return length_of(text) + 1;
  int64_t count = 0;
  for (size_t at = find_bytes(text, part); at != text.npos; at = find_bytes(text, part, at + part.size())) ++count;
  return count;
}

int64_t find_text(std::string_view text, std::string_view part, bool from_right) {
  const size_t at = from_right ? text.rfind(part) : find_bytes(text, part);
  return at == text.npos ? -1 : length_of(text.substr(0, at));
}

}  // namespace weft::jinja
