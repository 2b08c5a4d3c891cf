// TextStream: holds back what may yet become a stop string.
#include "weft/serve/text_stream.h"

#include <algorithm>

namespace weft {
namespace {

constexpr size_t kTokensBefore = 8;  // more than any decoder looks back

// How many bytes at the end of `text` may be the beginning of `stop`.
size_t overlap(std::string_view text, std::string_view stop) {
  for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n) {
    if (text.ends_with(stop.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, TextOptions options, std::span<const int32_t> before)
    : tokenizer_(tokenizer), options_(std::move(options)), decoder_(tokenizer, options_.keep_special) {
  std::erase_if(options_.stop, [](const std::string& stop) { return stop.empty(); });
  for (const int32_t token : before.last(std::min(before.size(), kTokensBefore))) decoder_.push(token);
}

std::string TextStream::push(int32_t token) {
  if (is_stopped()) return {};
  const auto& kept = options_.kept_special;
  held_ +=
      std::find(kept.begin(), kept.end(), token) == kept.end() ? decoder_.push(token) : tokenizer_.spelling(token);
  return take(false);
}

std::string TextStream::finish() {
  if (is_stopped()) return {};
  held_ += decoder_.finish();
  return take(true);
}

std::string TextStream::take(bool is_last) {
  size_t first = std::string::npos;
  for (const std::string& stop : options_.stop) {
    const size_t at = held_.find(stop);
    if (at < first) first = at, stop_ = stop;
  }
  size_t certain = held_.size();
  if (stop_) {
    certain = first + (options_.include_stop ? stop_->size() : 0);
  } else if (!is_last) {
    for (const std::string& stop : options_.stop) certain = std::min(certain, held_.size() - overlap(held_, stop));
  }
  std::string out = held_.substr(0, certain);
  held_.erase(0, stop_ ? held_.size() : certain);
  return out;
}

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
