// Replacing, in one pass.
#include "weft/text/pipeline/replace_all.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/text/limits.h"

namespace weft {

void check_growth(size_t before, size_t now) {
  const size_t most = std::min(kMostGrownBytes + kMostGrowth * before, size_t(UINT32_MAX));
  if (now > most)
    throw Error("a text of {} bytes grew to more than {} by what the tokenizer replaces in it", before, most);
}

void replace_all(std::string& text, std::string_view pattern, std::string_view content) {
  if (pattern.empty()) return;
  std::string out;
  size_t from = 0;
  for (size_t at; (at = text.find(pattern, from)) != std::string::npos; from = at + pattern.size()) {
    out.append(text, from, at - from);
    out += content;
    check_growth(text.size(), out.size());
  }
  if (from == 0) return;
  out.append(text, from, std::string::npos);
  text = std::move(out);
}

}  // namespace weft
