// What SentencePiece does to a text before it cuts it: characters replaced, white space made visible and trimmed.
#pragma once
#include <string>
#include <vector>

#include "weft/text/pipeline/byte_trie.h"
#include "weft/text/pipeline/character_map.h"
#include "weft/text/pipeline/normalizer.h"

namespace weft {

// The mark that stands for a space in the spelling of tokens: U+2581.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

struct SentencePieceNormalizing {
  bool add_dummy_prefix = true;          // a space before the text, so that its first word is like any other
  bool remove_extra_whitespaces = true;  // at both ends, and all but one of a run
  bool escape_whitespaces = true;        // ' ' becomes kSpaceMark
  bool treat_whitespace_as_suffix = false;
};

// Takes any bytes: what is not UTF-8 becomes U+FFFD, byte by byte.
class SentencePieceNormalizer : public Normalizer {
 public:
  // `untouched`: strings that are left as they are, wherever they stand.
  SentencePieceNormalizer(const SentencePieceNormalizing& options, CharacterMap map,
                          const std::vector<std::string>& untouched);
  void apply(std::string& text, TextPlace place) const override;
  bool parts_at_spaces() const override { return parts_at_spaces_; }
  bool takes_any_bytes() const override { return true; }

 private:
  struct Step {
    std::string_view text;
    size_t length;  // of what it replaces
  };
  Step next(std::string_view rest) const;

  SentencePieceNormalizing options_;
  CharacterMap map_;
  ByteTrie untouched_;
  bool parts_at_spaces_;
};

}  // namespace weft
