// GPT-2's files: put together as a tokenizer.json.
#include "weft/text/readers/gpt2_files.h"

#include "weft/base/error.h"
#include "weft/text/limits.h"
#include "weft/text/pipeline/known_patterns.h"
#include "weft/text/readers/byte_level_json.h"

namespace weft {

std::unique_ptr<Tokenizer> read_gpt2_files(std::string_view vocabulary, std::string_view merges,
                                           std::string_view origin, const HfHints& hints) {
  ByteLevelBpe parts{.patterns = {std::string(kGpt2Pattern)}};
  parts.vocabulary = parse_json(vocabulary, origin, {.max_bytes = kMostTokenizerFileBytes});
  if (!parts.vocabulary.is_object()) throw Error("{}: the vocabulary is not an object of tokens and ids", origin);
  while (!merges.empty()) {
    const size_t end = std::min(merges.find('\n'), merges.size());
    std::string_view line = merges.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty() && !line.starts_with("#version")) parts.merges.push_back(std::string(line));
    merges.remove_prefix(std::min(end + 1, merges.size()));
  }
  const auto add_control = [&](const std::string& content) {
    const auto known = parts.vocabulary.find(content);
    if (known == parts.vocabulary.end() || !known->is_number_unsigned()) return;
    parts.added.push_back({.content = content, .id = known->get<int32_t>(), .special = true});
  };
  for (const std::string& content : {std::string("<|endoftext|>"), hints.begin_of_document, hints.end_of_document}) {
    const bool is_there = std::any_of(parts.added.begin(), parts.added.end(),
                                      [&](const AddedToken& token) { return token.content == content; });
    if (!is_there) add_control(content);
  }
  return read_hf_tokenizer(to_tokenizer_json(std::move(parts)), origin, hints);
}

}  // namespace weft
