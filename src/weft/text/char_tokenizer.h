// CharTokenizer: each Unicode code point of the training text is a token, numbered in code point order.
#pragma once
#include "weft/text/tokenizer.h"

namespace weft {

class CharTokenizer : public Tokenizer {
 public:
  // code_points: sorted, without repeats. With `has_end_of_document`, one more id after them ends a document.
  CharTokenizer(std::vector<char32_t> code_points, bool has_end_of_document);

  using Tokenizer::encode;
  std::string_view name() const override { return "char"; }
  int32_t vocab_size() const override { return int32_t(code_points_.size()) + (has_end_of_document_ ? 1 : 0); }
  std::optional<int32_t> end_of_document() const override;
  void encode(std::string_view text, const EncodeOptions&, std::vector<int32_t>& ids) const override;
  std::unique_ptr<TokenDecoder> start_decoding(bool keep_special) const override;
  std::string spelling(int32_t id) const override;  // empty for the end of a document
  std::optional<int32_t> find(std::string_view spelling) const override;
  bool is_special(int32_t id) const override { return id == end_of_document(); }
  size_t cut(std::string_view text) const override;
  std::string to_json() const override;

 private:
  std::vector<char32_t> code_points_;  // by id
  std::vector<int32_t> ids_;           // by code point, up to the largest; -1: unknown
  bool has_end_of_document_;
};

// Collects the code points of a training text, piece by piece; a piece ends with a whole code point.
class CodePointSet {
 public:
  CodePointSet() : seen_(0x110000 / 64) {}
  void add(std::string_view text);  // throws EncodeError where the text is not UTF-8
  std::vector<char32_t> sorted() const;

 private:
  std::vector<uint64_t> seen_;  // a bit a code point
};

}  // namespace weft
