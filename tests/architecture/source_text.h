// Reading C++ source as text: its lines, its includes, its identifiers outside comments and strings.
#pragma once
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

namespace weft::architecture {

struct Include {
  std::string name;
  int line = 0;
  bool quoted = false;  // "weft/..." rather than <...>
};

struct Identifier {
  std::string name;
  int line = 0;
};

inline std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

inline bool is_word_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
inline bool is_path_character(char c) { return is_word_character(c) || c == '.' || c == '-' || c == '}' || c == ')'; }

inline std::string_view trim_left(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view() : text.substr(first);
}

// Conditional includes count too: whatever the build, the dependency is there.
inline std::vector<Include> includes_of(std::string_view text) {
  std::vector<Include> includes;
  const std::vector<std::string_view> lines = lines_of(text);
  for (size_t i = 0; i < lines.size(); ++i) {
    std::string_view rest = trim_left(lines[i]);
    if (!rest.starts_with('#')) continue;
    rest = trim_left(rest.substr(1));
    if (!rest.starts_with("include")) continue;
    rest = trim_left(rest.substr(7));
    if (rest.empty() || (rest[0] != '<' && rest[0] != '"')) continue;
    const size_t end = rest.find(rest[0] == '<' ? '>' : '"', 1);
    if (end != std::string_view::npos)
      includes.push_back({std::string(rest.substr(1, end - 1)), int(i) + 1, rest[0] == '"'});
  }
  return includes;
}

// The text with comments and the insides of literals blanked out, line breaks kept; includes keep their paths.
inline std::string code_of(std::string_view text) {
  std::string code(text);
  const auto blank = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end && i < code.size(); ++i) {
      if (code[i] != '\n') code[i] = ' ';
    }
  };
  const auto end_of = [&](std::string_view mark, size_t from) {
    const size_t at = text.find(mark, from);
    return at == std::string_view::npos ? text.size() : at + mark.size();
  };
  bool include_line = false;
  for (size_t i = 0; i < text.size();) {
    if (i == 0 || text[i - 1] == '\n') include_line = text.substr(i).starts_with("#include");
    size_t end = i + 1;
    if (text.substr(i).starts_with("//")) {
      end = end_of("\n", i);
      blank(i, end);
    } else if (text.substr(i).starts_with("/*")) {
      end = end_of("*/", i + 2);
      blank(i, end);
    } else if (text.substr(i).starts_with("R\"(")) {
      end = end_of(")\"", i);
      blank(i, end);
    } else if (text[i] == '"' && !include_line) {
      while (end < text.size() && text[end] != '"' && text[end] != '\n') end += text[end] == '\\' ? 2 : 1;
      end = end < text.size() ? end + 1 : text.size();
      blank(i, end);
    }
    i = end;
  }
  return code;
}

inline std::vector<Identifier> identifiers_of(std::string_view text) {
  std::vector<Identifier> identifiers;
  const std::string code = code_of(text);
  int line = 1;
  for (size_t i = 0; i < code.size();) {
    if (!is_word_character(code[i])) {
      line += code[i] == '\n';
      ++i;
      continue;
    }
    const size_t begin = i;
    while (i < code.size() && is_word_character(code[i])) ++i;
    if (!std::isdigit(static_cast<unsigned char>(code[begin]))) {
      identifiers.push_back({code.substr(begin, i - begin), line});
    }
  }
  return identifiers;
}

// allReduce, AllReduce and all_reduce are all {"all", "reduce"}.
inline std::vector<std::string> words_of(std::string_view identifier) {
  std::vector<std::string> words;
  bool begin_new = true;
  bool previous_was_upper = false;
  for (const char c : identifier) {
    const bool upper = std::isupper(static_cast<unsigned char>(c));
    if (c == '_') {
      begin_new = true;
      continue;
    }
    if (begin_new || (upper && !previous_was_upper)) words.emplace_back();
    words.back() += char(std::tolower(static_cast<unsigned char>(c)));
    begin_new = false;
    previous_was_upper = upper;
  }
  return words;
}

}  // namespace weft::architecture
