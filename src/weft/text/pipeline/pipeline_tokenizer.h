// PipelineTokenizer: a tokenizer of parts: added tokens, normalizer, pre-tokenizer, model, what is put around,
// decoder.
#pragma once
#include "weft/text/pipeline/added_tokens.h"
#include "weft/text/pipeline/decode_steps.h"
#include "weft/text/pipeline/normalizer.h"
#include "weft/text/pipeline/pre_tokenizer.h"
#include "weft/text/pipeline/subword_model.h"
#include "weft/text/tokenizer.h"

namespace weft {

// What every tokenizer file comes down to.
struct TokenizerParts {
  std::unique_ptr<Normalizer> normalizer;       // may be null
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // may be null: the whole text is one piece
  std::unique_ptr<SubwordModel> model;
  std::vector<AddedToken> added;
  std::vector<int32_t> before, after;  // a text, with EncodeOptions::add_special
  std::optional<PairSurroundings> around_pair;
  DecodeSteps decoder;
  std::vector<std::pair<int32_t, std::string>> decoded_as;  // tokens whose text is not what they spell
  std::optional<int32_t> begin_of_document, end_of_document;
  std::string json;    // what to_json() gives
  std::string origin;  // what errors name
};

class PipelineTokenizer : public Tokenizer {
 public:
  explicit PipelineTokenizer(TokenizerParts parts);

  using Tokenizer::encode;
  std::string_view name() const override { return parts_.model->name(); }
  int32_t vocab_size() const override { return vocab_size_; }
  std::optional<int32_t> begin_of_document() const override { return parts_.begin_of_document; }
  std::optional<int32_t> end_of_document() const override { return parts_.end_of_document; }
  std::span<const int32_t> before_text() const override { return parts_.before; }
  std::span<const int32_t> after_text() const override { return parts_.after; }
  std::optional<PairSurroundings> around_pair() const override { return parts_.around_pair; }
  void encode(std::string_view text, const EncodeOptions& options, std::vector<int32_t>& ids) const override;
  std::unique_ptr<TokenDecoder> start_decoding(bool keep_special) const override;
  std::string spelling(int32_t id) const override;
  std::optional<int32_t> find(std::string_view spelling) const override;
  bool is_special(int32_t id) const override;
  size_t cut(std::string_view text) const override;
  std::string to_json() const override { return parts_.json; }

 private:
  class Run;
  class Decoder;

  TokenizerParts parts_;
  AddedTokens added_;
  int32_t vocab_size_ = 0;
  Divides divides_;
  bool wants_valid_utf8_ = false;
};

}  // namespace weft
