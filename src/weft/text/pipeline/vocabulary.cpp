// Vocabulary: open addressing over ids whose spellings lie behind each other.
#include "weft/text/pipeline/vocabulary.h"

#include <xxhash.h>

#include <bit>

#include "weft/base/error.h"
#include "weft/text/limits.h"

namespace weft {

void Vocabulary::reserve(size_t tokens) {
  entries_.reserve(tokens);
  grow(std::bit_ceil(2 * tokens + 16));
}

void Vocabulary::grow(size_t slots) {
  if (slots <= slots_.size()) return;
  slots_.assign(slots, -1);
  for (int32_t id = 0; id < size(); ++id) {
    if (!has(id)) continue;
    const std::string_view text = spelling(id);
    size_t at = XXH3_64bits(text.data(), text.size()) & (slots - 1);
    while (slots_[at] >= 0 && spelling(slots_[at]) != text) at = (at + 1) & (slots - 1);
    if (slots_[at] < 0) slots_[at] = id;
  }
}

void Vocabulary::add(std::string_view text, int32_t id) {
  if (text.size() > kMostTokenBytes)
    throw Error("{}: token {} is {} bytes long, more than the {} allowed", origin_, id, text.size(), kMostTokenBytes);
  if (id < 0 || id >= kMostTokens)
    throw Error("{}: the token \"{}\" has the id {}, outside 0 to {}", origin_, text, id, kMostTokens - 1);
  if (has(id)) throw Error("{}: the tokens \"{}\" and \"{}\" have the same id {}", origin_, spelling(id), text, id);
  if (text_.size() + text.size() >= kAbsent) throw Error("{}: all tokens together are longer than 4 GiB", origin_);
  if (2 * (count_ + 1) > slots_.size()) grow(std::max<size_t>(64, 2 * slots_.size()));
  if (id >= size()) entries_.resize(size_t(id) + 1);
  entries_[size_t(id)] = {uint32_t(text_.size()), uint32_t(text.size())};
  text_ += text;
  longest_ = std::max(longest_, text.size());
  ++count_;
  size_t at = XXH3_64bits(text.data(), text.size()) & (slots_.size() - 1);
  while (slots_[at] >= 0) {
    if (spelling(slots_[at]) == text) return;
    at = (at + 1) & (slots_.size() - 1);
  }
  slots_[at] = id;
}

int32_t Vocabulary::find(std::string_view text) const {
  if (slots_.empty()) return -1;
  size_t at = XXH3_64bits(text.data(), text.size()) & (slots_.size() - 1);
  while (slots_[at] >= 0 && spelling(slots_[at]) != text) at = (at + 1) & (slots_.size() - 1);
  return slots_[at];
}

std::string_view Vocabulary::spelling(int32_t id) const {
  const Entry& entry = entries_[size_t(id)];
  return std::string_view(text_).substr(entry.begin, entry.length);
}

}  // namespace weft
