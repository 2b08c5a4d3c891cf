// SentencePieceNormalizer: from left to right, the longest replacement first.
#include "weft/text/pipeline/sentencepiece_normalizer.h"

#include <algorithm>

#include "weft/text/utf8.h"

namespace weft {

SentencePieceNormalizer::SentencePieceNormalizer(const SentencePieceNormalizing& options, CharacterMap map,
                                                 const std::vector<std::string>& untouched)
    : options_(options), map_(std::move(map)) {
  std::vector<std::pair<std::string_view, int32_t>> entries;
  for (const std::string& text : untouched) entries.emplace_back(text, 0);
  untouched_ = ByteTrie(std::move(entries));
  const bool has_space_within = std::any_of(untouched.begin(), untouched.end(), [](const std::string& text) {
    return text.find(' ', 1) != std::string::npos;
  });
  parts_at_spaces_ = !options.treat_whitespace_as_suffix && !has_space_within;
}

SentencePieceNormalizer::Step SentencePieceNormalizer::next(std::string_view rest) const {
  if (const size_t length = untouched_.longest_prefix(rest).length; length > 0)
    return {rest.substr(0, length), length};
  if (const auto replacement = map_.longest(rest); replacement.length > 0)
    return {replacement.text, replacement.length};
  const Utf8CodePoint c = read_utf8(rest);
  if (c.state != Utf8State::complete) return {"\xEF\xBF\xBD", 1};
  return {rest.substr(0, c.length), c.length};
}

void SentencePieceNormalizer::apply(std::string& text, TextPlace place) const {
  std::string_view rest = text;
  const bool trims = options_.remove_extra_whitespaces;
  if (trims && !place.continues) {
    while (!rest.empty()) {
      const Step step = next(rest);
      if (step.text != " ") break;
      rest.remove_prefix(step.length);
    }
  }
  const std::string_view space = options_.escape_whitespaces ? kSpaceMark : " ";
  const bool pads = options_.add_dummy_prefix && !place.continues && !rest.empty();
  std::string out;
  out.reserve(rest.size() + rest.size() / 4 + 2 * space.size());
  if (pads && !options_.treat_whitespace_as_suffix) out += space;
  bool was_space = trims && !place.continues;
  while (!rest.empty()) {
    Step step = next(rest);
    rest.remove_prefix(step.length);
    while (was_space && step.text.starts_with(' ')) step.text.remove_prefix(1);
    if (step.text.empty()) continue;
    was_space = trims && step.text.ends_with(' ');
    for (const char c : step.text) {
      if (c == ' ')
        out += space;
      else
        out += c;
    }
  }
  if (trims) {
    while (out.ends_with(space)) out.resize(out.size() - space.size());
  }
  if (pads && options_.treat_whitespace_as_suffix) out += space;
  text = std::move(out);
}

}  // namespace weft
