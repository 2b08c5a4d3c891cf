// The alphabet of byte-level vocabularies: a visible character for each of the 256 bytes.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

// GPT-2's choice: visible characters of Latin-1 stand for themselves, the other bytes for U+0100 and up in turn.
class ByteAlphabet {
 public:
  static const ByteAlphabet& get();

  void append(uint8_t byte, std::string& text) const { text.append(spelling_[byte].bytes, spelling_[byte].length); }
  std::string spell(std::string_view bytes) const;
  int byte_of(char32_t c) const { return c < bytes_.size() ? bytes_[c] : -1; }  // -1: not of the alphabet
  // Appends the bytes that `text` spells; false, and nothing appended, when a character is not of the alphabet.
  bool append_bytes(std::string_view text, std::string& bytes) const;

 private:
  ByteAlphabet();
  struct Spelling {
    char bytes[2];
    uint8_t length;
  };
  std::array<Spelling, 256> spelling_;
  std::array<int16_t, 0x180> bytes_;  // by code point
};

}  // namespace weft
