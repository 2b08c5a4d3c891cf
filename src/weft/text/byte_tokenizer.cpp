// ByteTokenizer: bytes are their own ids.
#include "weft/text/byte_tokenizer.h"

#include "weft/text/spelling_decoder.h"

namespace weft {

void ByteTokenizer::encode(std::string_view text, const EncodeOptions&, std::vector<int32_t>& ids) const {
  const size_t start = ids.size();
  ids.resize(start + text.size());
  for (size_t i = 0; i < text.size(); ++i) ids[start + i] = uint8_t(text[i]);
}

std::unique_ptr<TokenDecoder> ByteTokenizer::start_decoding(bool) const {
  return std::make_unique<SpellingDecoder>(*this);
}

std::string ByteTokenizer::spelling(int32_t id) const {
  return id >= 0 && id < kEndOfDocument ? std::string(1, char(uint8_t(id))) : std::string();
}

std::optional<int32_t> ByteTokenizer::find(std::string_view spelling) const {
  if (spelling.size() != 1) return std::nullopt;
  return uint8_t(spelling[0]);
}

std::string ByteTokenizer::to_json() const { return R"({"type":"byte","version":1})"; }

}  // namespace weft
