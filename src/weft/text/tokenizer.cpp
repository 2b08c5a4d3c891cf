// Tokenizer: what all tokenizers share, and decoding as tokens come.
#include "weft/text/tokenizer.h"

#include <xxhash.h>

#include "weft/text/utf8.h"

namespace weft {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<int32_t> ids;
  encode(text, options, ids);
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool keep_special) const {
  std::string text;
  const std::unique_ptr<TokenDecoder> decoder = start_decoding(keep_special);
  for (const int32_t id : ids) decoder->push(id, text);
  decoder->finish(text);
  return text;
}

uint64_t Tokenizer::fingerprint() const {
  const std::string json = to_json();
  return XXH3_64bits(json.data(), json.size());
}

std::string StreamDecoder::take_complete() {
  std::string out;
  size_t offset = 0;
  while (offset < held_.size()) {
    const std::string_view rest = std::string_view(held_).substr(offset);
    const Utf8CodePoint c = read_utf8(rest);
    if (c.state == Utf8State::incomplete) break;
    out += c.state == Utf8State::complete ? rest.substr(0, c.length) : kReplacement;
    offset += c.length;
  }
  held_.erase(0, offset);
  return out;
}

std::string StreamDecoder::push(int32_t id) {
  decoder_->push(id, held_);
  return take_complete();
}

std::string StreamDecoder::finish() {
  decoder_->finish(held_);
  std::string out = take_complete();
  if (!held_.empty()) out += kReplacement;
  held_.clear();
  return out;
}

}  // namespace weft
