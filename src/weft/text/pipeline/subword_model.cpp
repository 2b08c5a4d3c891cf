// ByteTokens: tokens that stand for single bytes.
#include "weft/text/pipeline/subword_model.h"

#include <fmt/format.h>

namespace weft {

ByteTokens::ByteTokens(const Vocabulary& vocabulary) {
  for (size_t byte = 0; byte < 256; ++byte) ids_[byte] = vocabulary.find(fmt::format("<0x{:02X}>", byte));
}

bool ByteTokens::append(std::string_view bytes, std::vector<int32_t>& ids) const {
  for (const char byte : bytes) {
    if (ids_[uint8_t(byte)] < 0) return false;
  }
  for (const char byte : bytes) ids.push_back(ids_[uint8_t(byte)]);
  return true;
}

int byte_of_spelling(std::string_view spelling) {
  if (spelling.size() != 6 || !spelling.starts_with("<0x") || spelling[5] != '>') return -1;
  int value = 0;
  for (const char c : spelling.substr(3, 2)) {
    const bool is_digit = c >= '0' && c <= '9', is_upper = c >= 'A' && c <= 'F', is_lower = c >= 'a' && c <= 'f';
    if (!is_digit && !is_upper && !is_lower) return -1;
    value = value * 16 + (is_digit ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  return value;
}

}  // namespace weft
