// Normalizers: what a tokenizer does to a text before it is cut.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/text/pipeline/place.h"
#include "weft/text/regex.h"
#include "weft/text/unicode.h"

namespace weft {

// Immutable. What it makes is valid UTF-8; what it takes is too, unless it says otherwise.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(std::string& text, TextPlace place) const = 0;
  // Whether what stands before a space that follows something else, and what begins with that space, are each
  // normalized alike alone and together.
  virtual bool parts_at_spaces() const { return true; }
  virtual bool takes_any_bytes() const { return false; }
};

struct BertNormalizing {
  bool clean_text = true;  // control characters vanish, white space becomes a space
  bool handle_chinese_chars = true;
  bool strip_accents = true;
  bool lowercase = true;
};

// By the names that tokenizer.json gives them.
std::unique_ptr<Normalizer> unicode_normalizer(NormalForm form);
std::unique_ptr<Normalizer> lowercase_normalizer();
std::unique_ptr<Normalizer> strip_accents_normalizer();
std::unique_ptr<Normalizer> strip_normalizer(bool left, bool right);
std::unique_ptr<Normalizer> prepend_normalizer(std::string prefix);
std::unique_ptr<Normalizer> replace_normalizer(std::string pattern, std::string content);
std::unique_ptr<Normalizer> replace_normalizer(Regex pattern, std::string content);
std::unique_ptr<Normalizer> bert_normalizer(const BertNormalizing& options);
// `map` is SentencePiece's, applied to grapheme clusters as Hugging Face does.
std::unique_ptr<Normalizer> precompiled_normalizer(std::string map, std::string_view origin);
std::unique_ptr<Normalizer> sequence_normalizer(std::vector<std::unique_ptr<Normalizer>> parts);

}  // namespace weft
