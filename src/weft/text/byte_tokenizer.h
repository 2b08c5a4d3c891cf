// ByteTokenizer: each byte is a token, and 256 ends a document; encodes any file.
#pragma once
#include "weft/text/tokenizer.h"

namespace weft {

class ByteTokenizer : public Tokenizer {
 public:
  static constexpr int32_t kEndOfDocument = 256;

  using Tokenizer::encode;
  std::string_view name() const override { return "byte"; }
  int32_t vocab_size() const override { return 257; }
  std::optional<int32_t> end_of_document() const override { return kEndOfDocument; }
  void encode(std::string_view text, const EncodeOptions&, std::vector<int32_t>& ids) const override;
  std::unique_ptr<TokenDecoder> start_decoding(bool keep_special) const override;
  std::string spelling(int32_t id) const override;
  std::optional<int32_t> find(std::string_view spelling) const override;
  bool is_special(int32_t id) const override { return id == kEndOfDocument; }
  size_t cut(std::string_view text) const override { return text.size(); }
  std::string to_json() const override;
};

}  // namespace weft
