// ByteTokenizer: bytes are their own ids.
#include "weft/text/byte_tokenizer.h"

namespace weft {

void ByteTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  const size_t start = ids.size();
  ids.resize(start + text.size());
  for (size_t i = 0; i < text.size(); ++i) ids[start + i] = uint8_t(text[i]);
}

void ByteTokenizer::append_text(int32_t id, std::string& text) const {
  check(id >= 0 && id < vocab_size(), "byte tokenizer: id {} is outside the vocabulary of {}", id, vocab_size());
  if (id < kEndOfDocument) text.push_back(char(uint8_t(id)));
}

std::string ByteTokenizer::to_json() const { return R"({"type":"byte","version":1})"; }

}  // namespace weft
