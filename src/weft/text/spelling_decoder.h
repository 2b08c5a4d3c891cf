// SpellingDecoder: for tokenizers whose tokens mean what they spell, whatever stands around them.
#pragma once
#include "weft/text/tokenizer.h"

namespace weft {

class SpellingDecoder : public TokenDecoder {
 public:
  explicit SpellingDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  void push(int32_t id, std::string& text) override {
    check(id >= 0, "{} tokenizer: no token has the id {}", tokenizer_.name(), id);
    text += tokenizer_.spelling(id);
  }
  void finish(std::string&) override {}

 private:
  const Tokenizer& tokenizer_;
};

}  // namespace weft
