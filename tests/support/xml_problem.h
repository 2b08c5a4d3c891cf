// xml_problem: whether a page or a picture is well-formed.
#pragma once
#include <fmt/format.h>

#include <cctype>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// The first thing that is wrong with a text as XML: tags that do not match, attributes without quotes or given twice,
// a bare < or &. Empty when there is none.
inline std::string xml_problem(std::string_view text) {
  std::vector<std::string> open;
  size_t at = 0;
  const auto here = [&](std::string_view what) { return fmt::format("{}: {}", what, text.substr(at, 60)); };
  while (at < text.size()) {
    if (text[at] == '&') {
      const size_t end = text.find(';', at);
      if (end == std::string_view::npos || end > at + 8) return here("a bare &");
      at = end + 1;
    } else if (text[at] != '<') {
      ++at;
    } else if (text.substr(at).starts_with("<?") || text.substr(at).starts_with("<!DOCTYPE")) {
      at = text.find('>', at) + 1;
    } else {
      const bool is_end = text.substr(at).starts_with("</");
      size_t i = at + 1 + is_end;
      std::string name;
      while (i < text.size() && (std::isalnum(text[i]) || text[i] == '-')) name += text[i++];
      if (name.empty()) return here("a bare <");
      std::set<std::string> keys;
      while (i < text.size() && text[i] == ' ') {
        std::string key;
        for (++i; i < text.size() && (std::isalnum(text[i]) || text[i] == '-'); ++i) key += text[i];
        if (text.substr(i, 2) != "=\"" || !keys.insert(key).second) return here("an attribute");
        const size_t end = text.find('"', i + 2);
        if (text.substr(i + 2, end - i - 2).find('<') != std::string_view::npos) return here("a < in an attribute");
        i = end + 1;
      }
      const bool is_whole = text.substr(i).starts_with("/>");
      if (!is_whole && text[i] != '>') return here("the end of a tag");
      if (is_end) {
        if (open.empty() || open.back() != name) return here("not what is open");
        open.pop_back();
      } else if (!is_whole) {
        open.push_back(name);
      }
      at = i + (is_whole ? 2 : 1);
    }
  }
  return open.empty() ? "" : "not closed: " + open.back();
}

}  // namespace weft
