// TextStream: a decoder, but for the control tokens that are kept.
#include "weft/serve/text_stream.h"

#include <algorithm>

namespace weft {
namespace {

constexpr size_t kTokensBefore = 8;  // more than any decoder looks back

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, TextOptions options, std::span<const int32_t> before)
    : tokenizer_(tokenizer), options_(std::move(options)), decoder_(tokenizer, options_.keep_special) {
  for (const int32_t token : before.last(std::min(before.size(), kTokensBefore))) decoder_.push(token);
}

std::string TextStream::push(int32_t token) {
  const auto& kept = options_.kept_special;
  const bool is_kept = std::find(kept.begin(), kept.end(), token) != kept.end();
  return is_kept ? tokenizer_.spelling(token) : decoder_.push(token);
}

std::string TextStream::finish() { return decoder_.finish(); }

TokenSpeller::TokenSpeller(const Tokenizer& tokenizer, std::span<const int32_t> before) : tokenizer_(tokenizer) {
  if (!before.empty()) last_ = before.back();
}

std::string TokenSpeller::spell(int32_t token) const {
  const std::unique_ptr<TokenDecoder> decoder = tokenizer_.start_decoding(true);
  std::string before, text;
  if (last_) decoder->push(*last_, before);
  decoder->push(token, text);
  decoder->finish(text);
  return text;
}

}  // namespace weft
