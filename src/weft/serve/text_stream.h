// TextStream: tokens to text as they come, never a broken character.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/text/tokenizer.h"

namespace weft {

struct TextOptions {
  bool keep_special = false;          // control tokens appear as they are spelled
  std::vector<int32_t> kept_special;  // or only these, for a parser that looks for them
};

class TextStream {
 public:
  // `before`: the tokens that the text continues, on which a first space may depend. The tokenizer outlives this.
  TextStream(const Tokenizer& tokenizer, TextOptions options, std::span<const int32_t> before = {});

  std::string push(int32_t token);  // the characters that became complete
  std::string finish();             // what was held back

 private:
  const Tokenizer& tokenizer_;
  const TextOptions options_;
  StreamDecoder decoder_;
};

// The bytes of single tokens as they stand in a text, for lists of log probabilities.
class TokenSpeller {
 public:
  TokenSpeller(const Tokenizer& tokenizer, std::span<const int32_t> before);
  std::string spell(int32_t token) const;         // if it came next
  void advance(int32_t token) { last_ = token; }  // it came

 private:
  const Tokenizer& tokenizer_;
  std::optional<int32_t> last_;
};

}  // namespace weft
