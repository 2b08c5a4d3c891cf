// SpelledBpe: merges found by spelling, and tokens taken apart again that shall not be used.
#include "weft/text/pipeline/spelled_bpe.h"

#include <algorithm>
#include <map>

#include "weft/base/error.h"
#include "weft/text/utf8.h"

namespace weft {
namespace {

// How tokens that shall not be used came about: where the left of the two parts ends, by spelling.
using Origins = std::map<std::string_view, size_t>;

constexpr int32_t kFrozen = -2;  // marks a symbol that takes part in no merge; no token has this id

}  // namespace

SpelledBpe::SpelledBpe(Vocabulary vocabulary, std::vector<uint32_t> ranks, const SpelledBpeOptions& options)
    : vocabulary_(std::move(vocabulary)),
      ranks_(std::move(ranks)),
      is_taken_apart_(ranks_.size()),
      takes_apart_(!options.taken_apart.empty()),
      unknown_(options.unknown),
      byte_fallback_(options.byte_fallback),
      ignore_merges_(options.ignore_merges) {
  check(int32_t(ranks_.size()) == vocabulary_.size(), "bpe: {} ranks for {} tokens", ranks_.size(),
        vocabulary_.size());
  std::vector<std::pair<std::string_view, int32_t>> entries;
  for (const int32_t id : options.frozen) entries.emplace_back(vocabulary_.spelling(id), id);
  frozen_ = ByteTrie(std::move(entries));
  for (const int32_t id : options.taken_apart) is_taken_apart_[size_t(id)] = true;
  if (byte_fallback_) bytes_ = ByteTokens(vocabulary_);
}

int32_t SpelledBpe::find(std::string_view spelling) const {
  if (spelling.size() > vocabulary_.longest()) return -1;
  const int32_t id = vocabulary_.find(spelling);
  return id >= 0 && ranks_[size_t(id)] != kNoMerge ? id : -1;
}

std::vector<Symbol> SpelledBpe::symbols_of(std::string_view piece) const {
  std::vector<Symbol> symbols;
  symbols.reserve(piece.size());
  for (size_t at = 0; at < piece.size();) {
    const ByteTrie::Match frozen = frozen_.longest_prefix(piece.substr(at));
    const size_t length = frozen.length > 0 ? frozen.length : first_code_point(piece.substr(at)).length;
    symbols.push_back({uint32_t(at), uint32_t(length), frozen.length > 0 ? kFrozen : -1});
    at += length;
  }
  return symbols;
}

void SpelledBpe::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  if (piece.empty()) return;
  if (ignore_merges_) {
    if (const int32_t whole = find(piece); whole >= 0) {
      ids.push_back(whole);
      return;
    }
  }
  std::vector<Symbol> symbols = symbols_of(piece);
  link_symbols(symbols);
  Origins origins;
  merge_symbols(symbols, [&](const Symbol& left, const Symbol& right) -> Merge {
    if (left.id == kFrozen || right.id == kFrozen) return {};
    const std::string_view both = piece.substr(left.begin, left.length + right.length);
    const int32_t id = find(both);
    if (id < 0) return {};
    if (takes_apart_ && is_taken_apart_[size_t(id)]) origins[both] = left.length;
    return {ranks_[size_t(id)], id};
  });

  bool was_unknown = false;
  const auto put = [&](std::string_view spelling, int32_t id) {
    if (id >= 0) {
      ids.push_back(id);
    } else if (byte_fallback_ && bytes_.append(spelling, ids)) {
    } else if (!unknown_) {
      throw Error("the character {} is not in the vocabulary, which has no token for what is unknown",
                  describe_code_point(first_code_point(spelling).value));
    } else if (!was_unknown) {
      ids.push_back(*unknown_);
    }
    was_unknown = id < 0;
  };
  std::vector<std::string_view> open;
  for (const Symbol& symbol : symbols) {
    if (symbol.length == 0) continue;
    open.push_back(piece.substr(symbol.begin, symbol.length));
    while (!open.empty()) {
      const std::string_view spelling = open.back();
      open.pop_back();
      const int32_t id = find(spelling);
      const bool is_apart = id >= 0 && is_taken_apart_[size_t(id)];
      if (const auto origin = is_apart ? origins.find(spelling) : origins.end(); origin != origins.end()) {
        open.push_back(spelling.substr(origin->second));
        open.push_back(spelling.substr(0, origin->second));
      } else {
        put(spelling, id);
      }
    }
  }
}

std::vector<uint32_t> ranks_of_scores(const std::vector<std::optional<float>>& scores) {
  std::vector<float> sorted;
  for (const std::optional<float> score : scores) {
    if (score) sorted.push_back(*score);
  }
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  std::vector<uint32_t> ranks;
  for (const std::optional<float> score : scores) {
    ranks.push_back(
        !score ? SpelledBpe::kNoMerge
               : uint32_t(std::lower_bound(sorted.begin(), sorted.end(), *score, std::greater<>()) - sorted.begin()));
  }
  return ranks;
}

}  // namespace weft
