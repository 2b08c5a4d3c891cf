// BpeMerges: counts kept up to date merge by merge.
#include "weft/text/bpe_merges.h"

#include <algorithm>

#include "weft/base/error.h"

namespace weft {

BpeMerges::BpeMerges(const std::vector<Word>& words, int64_t min_count, size_t max_token_bytes)
    : min_count_(std::max<int64_t>(min_count, 1)), max_token_bytes_(max_token_bytes) {
  for (int byte = 0; byte < 256; ++byte) vocabulary_.add(std::string(1, char(uint8_t(byte))), byte);
  size_t total = 0;
  for (const Word& word : words) total += word.bytes.size();
  if (total >= kNone)
    throw Error("the {} different words have {} bytes together: learn from less text", words.size(), total);
  symbols_.reserve(total);
  counts_.reserve(words.size());
  for (const Word& word : words) {
    const size_t first = symbols_.size(), size = word.bytes.size();
    for (size_t i = 0; i < size; ++i)
      symbols_.push_back({uint8_t(word.bytes[i]), uint32_t(counts_.size()), i == 0 ? kNone : uint32_t(first + i - 1),
                          i + 1 == size ? kNone : uint32_t(first + i + 1)});
    counts_.push_back(word.count);
  }
  for (uint32_t place = 0; place < symbols_.size(); ++place) count_pair(place, counts_[symbols_[place].word]);
  for (uint32_t p = 0; p < pairs_.size(); ++p) heap_.push({pairs_[p].count, pairs_[p].left, pairs_[p].right, p});
  grown_.clear();
}

uint32_t BpeMerges::pair_of(int32_t left, int32_t right) {
  const auto [entry, is_new] =
      pair_index_.try_emplace(uint64_t(uint32_t(left)) << 32 | uint32_t(right), uint32_t(pairs_.size()));
  if (is_new) pairs_.push_back({left, right});
  return entry->second;
}

void BpeMerges::count_pair(uint32_t place, int64_t count) {
  const Symbol& symbol = symbols_[place];
  if (symbol.next == kNone) return;
  const uint32_t index = pair_of(symbol.id, symbols_[symbol.next].id);
  Pair& pair = pairs_[index];
  pair.count += count;
  if (count < 0) return;
  pair.places.push_back(place);
  grown_.push_back(index);
}

void BpeMerges::merge_at(uint32_t place, int32_t id) {
  Symbol& left = symbols_[place];
  const uint32_t gone = left.next;
  const int64_t count = counts_[left.word];
  if (left.previous != kNone) count_pair(left.previous, -count);
  count_pair(gone, -count);
  left.id = id;
  left.next = symbols_[gone].next;
  if (left.next != kNone) symbols_[left.next].previous = place;
  symbols_[gone].id = -1;
  if (left.previous != kNone) count_pair(left.previous, count);
  count_pair(place, count);
}

bool BpeMerges::may_merge(const Pair& pair) const {
  return vocabulary_.spelling(pair.left).size() + vocabulary_.spelling(pair.right).size() <= max_token_bytes_;
}

std::optional<BpeMerges::Merge> BpeMerges::next() {
  while (!heap_.empty()) {
    const Candidate top = heap_.top();
    heap_.pop();
    Pair& pair = pairs_[top.pair];
    if (top.count != pair.count) {  // it was merged away in part since, and stands further down
      if (top.count > pair.count && pair.count > 0) heap_.push({pair.count, pair.left, pair.right, top.pair});
      continue;
    }
    if (pair.count < min_count_) return std::nullopt;
    if (!may_merge(pair)) continue;
    const Merge merge{pair.left, pair.right};
    std::string spelling(vocabulary_.spelling(merge.left));
    spelling += vocabulary_.spelling(merge.right);
    int32_t id = vocabulary_.find(spelling);  // other neighbours may have made the same token
    if (id < 0) vocabulary_.add(spelling, id = vocabulary_.size());
    std::vector<uint32_t> places = std::move(pair.places);
    pair.places.clear();
    pair.count = 0;
    std::sort(places.begin(), places.end());  // runs of one symbol are merged from the left, as texts are
    for (const uint32_t place : places) {
      const Symbol& left = symbols_[place];
      if (left.id != merge.left || left.next == kNone || symbols_[left.next].id != merge.right) continue;
      merge_at(place, id);
    }
    pairs_[top.pair].count = 0;  // overlapping ones took from it too
    std::sort(grown_.begin(), grown_.end());
    grown_.erase(std::unique(grown_.begin(), grown_.end()), grown_.end());
    for (const uint32_t p : grown_) heap_.push({pairs_[p].count, pairs_[p].left, pairs_[p].right, p});
    grown_.clear();
    return merge;
  }
  return std::nullopt;
}

}  // namespace weft
