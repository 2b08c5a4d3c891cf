// Tokenizer: what all tokenizers share, and decoding as tokens come.
#include "weft/text/tokenizer.h"

#include <xxhash.h>

#include "weft/text/utf8.h"

namespace weft {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  encode(text, ids);
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) append_text(id, text);
  return text;
}

uint64_t Tokenizer::fingerprint() const {
  const std::string json = to_json();
  return XXH3_64bits(json.data(), json.size());
}

std::string StreamDecoder::push(int32_t id) {
  tokenizer_->append_text(id, held_);
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

std::string StreamDecoder::finish() {
  const bool has_held = !held_.empty();
  held_.clear();
  return std::string(has_held ? kReplacement : "");
}

}  // namespace weft
