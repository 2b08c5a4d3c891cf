// A tokenizer with markers of a family of models, and which of its tokens a constraint lets come.
#pragma once
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "weft/serve/request.h"
#include "weft/text/tokenizer.h"

namespace weft {

// Tokens are bytes and some markers, which are control tokens; the last token ends an answer.
class MarkedTokenizer : public Tokenizer {
 public:
  explicit MarkedTokenizer(std::vector<std::string> markers) : markers_(std::move(markers)) {}
  using Tokenizer::encode;
  std::string_view name() const override { return "marked"; }
  int32_t vocab_size() const override { return int32_t(256 + markers_.size() + 1); }
  std::optional<int32_t> end_of_document() const override { return vocab_size() - 1; }
  void encode(std::string_view text, const EncodeOptions&, std::vector<int32_t>& ids) const override {
    while (!text.empty()) {
      const auto marker = std::find_if(markers_.begin(), markers_.end(),
                                       [&](const std::string& one) { return text.starts_with(one); });
      const bool is_byte = marker == markers_.end();
      ids.push_back(is_byte ? uint8_t(text[0]) : int32_t(256 + (marker - markers_.begin())));
      text.remove_prefix(is_byte ? 1 : marker->size());
    }
  }
  std::unique_ptr<TokenDecoder> start_decoding(bool keep_special) const override {
    return std::make_unique<Decoder>(*this, keep_special);
  }
  std::string spelling(int32_t id) const override {
    if (id < 256) return std::string(1, char(id));
    return id == vocab_size() - 1 ? "<end>" : markers_[size_t(id - 256)];
  }
  std::optional<int32_t> find(std::string_view text) const override {
    const auto marker = std::find(markers_.begin(), markers_.end(), text);
    return marker == markers_.end() ? std::nullopt : std::optional(int32_t(256 + (marker - markers_.begin())));
  }
  bool is_special(int32_t id) const override { return id >= 256; }
  size_t cut(std::string_view text) const override { return text.size(); }
  std::string to_json() const override { return "{}"; }

 private:
  class Decoder : public TokenDecoder {
   public:
    Decoder(const MarkedTokenizer& tokenizer, bool keeps) : tokenizer_(tokenizer), keeps_(keeps) {}
    void push(int32_t id, std::string& out) override {
      if (keeps_ || !tokenizer_.is_special(id)) out += tokenizer_.spelling(id);
    }
    void finish(std::string&) override {}

   private:
    const MarkedTokenizer& tokenizer_;
    const bool keeps_;
  };
  const std::vector<std::string> markers_;
};

inline std::vector<uint32_t> mask_of(TokenConstraint& constraint, const Tokenizer& tokenizer) {
  std::vector<uint32_t> mask(size_t(tokenizer.vocab_size()) / 32 + 1);
  constraint.fill(mask);
  return mask;
}
inline bool may_come(const std::vector<uint32_t>& mask, int32_t token) {
  return mask[size_t(token) / 32] >> (token % 32) & 1;
}

}  // namespace weft
