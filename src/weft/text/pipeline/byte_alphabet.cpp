// The alphabet of byte-level vocabularies, made once.
#include "weft/text/pipeline/byte_alphabet.h"

#include "weft/text/utf8.h"

namespace weft {

const ByteAlphabet& ByteAlphabet::get() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

ByteAlphabet::ByteAlphabet() {
  bytes_.fill(-1);
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_visible = (byte > ' ' && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    const char32_t c = is_visible ? char32_t(byte) : next++;
    std::string text;
    append_utf8(c, text);
    spelling_[size_t(byte)] = {{text[0], text.size() > 1 ? text[1] : '\0'}, uint8_t(text.size())};
    bytes_[c] = int16_t(byte);
  }
}

std::string ByteAlphabet::spell(std::string_view bytes) const {
  std::string text;
  for (const char byte : bytes) append(uint8_t(byte), text);
  return text;
}

bool ByteAlphabet::append_bytes(std::string_view text, std::string& bytes) const {
  const size_t start = bytes.size();
  while (!text.empty()) {
    const CodePoint c = first_code_point(text);
    const int byte = byte_of(c.value);
    if (byte < 0) {
      bytes.resize(start);
      return false;
    }
    bytes.push_back(char(uint8_t(byte)));
    text.remove_prefix(c.length);
  }
  return true;
}

}  // namespace weft
