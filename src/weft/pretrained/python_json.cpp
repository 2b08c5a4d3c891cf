// Words outside of strings.
#include "weft/pretrained/python_json.h"

#include <fmt/format.h>

namespace weft {

std::string without_python_numbers(std::string_view text) {
  constexpr std::string_view kWords[] = {"-Infinity", "Infinity", "NaN"};
  std::string out;
  out.reserve(text.size());
  bool is_inside = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_inside && c == '\\') {  // and what it escapes
      out += c;
      if (++i < text.size()) out += text[i];
      continue;
    }
    if (c == '"') is_inside = !is_inside;
    const auto word = [&]() -> std::string_view {
      for (const std::string_view w : kWords)
        if (!is_inside && text.substr(i).starts_with(w)) return w;
      return {};
    }();
    if (word.empty()) {
      out += c;
    } else {
      out += fmt::format(R"({{"{}": "{}"}})", kPythonNumber, word);
      i += word.size() - 1;
    }
  }
  return out;
}

}  // namespace weft
