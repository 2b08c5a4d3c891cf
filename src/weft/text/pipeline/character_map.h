// CharacterMap: SentencePiece's precompiled table of replacements for short sequences of characters.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// The table is a double-array trie in 32-bit units, then the replacements, each ended by a NUL. It is read as it
// comes: every step is checked, so a damaged one gives wrong text and nothing worse.
class CharacterMap {
 public:
  CharacterMap() = default;
  CharacterMap(std::string_view blob, std::string_view origin);  // an empty blob: a map that replaces nothing

  bool empty() const { return units_.empty(); }

  struct Replacement {
    size_t length = 0;  // bytes replaced; 0: nothing is
    std::string_view text;
  };
  Replacement longest(std::string_view text) const { return find(text, true); }
  Replacement shortest(std::string_view text) const { return find(text, false); }

 private:
  Replacement find(std::string_view text, bool wants_longest) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace weft
