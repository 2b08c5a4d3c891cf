// Unigram: one pass forward over the characters, then back along the best way.
#include "weft/text/pipeline/unigram.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/text/utf8.h"

namespace weft {
Unigram::Unigram(Vocabulary vocabulary, std::vector<std::optional<double>> scores, UnigramOptions options)
    : vocabulary_(std::move(vocabulary)), scores_(scores.size()), options_(options) {
  check(int32_t(scores.size()) == vocabulary_.size(), "unigram: {} scores for {} tokens", scores.size(),
        vocabulary_.size());
  std::vector<std::pair<std::string_view, int32_t>> entries;
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    const std::optional<double> score = scores[size_t(id)];
    if (!score || !vocabulary_.has(id)) continue;
    scores_[size_t(id)] = *score;
    entries.emplace_back(vocabulary_.spelling(id), id);
  }
  trie_ = ByteTrie(std::move(entries));
  if (options_.byte_fallback) bytes_ = ByteTokens(vocabulary_);
}

std::vector<Unigram::Step> Unigram::best_steps(std::string_view piece) const {
  std::vector<Step> best(piece.size() + 1);
  const auto offer = [&](size_t start, size_t end, int32_t id, double score) {
    const double total = sum(score, best[start].score);
    Step& step = best[end];
    if (step.start == UINT32_MAX || total > step.score) step = {total, uint32_t(start), id};
  };
  for (size_t at = 0; at < piece.size();) {
    const size_t length = first_code_point(piece.substr(at)).length;
    bool has_single = false;
    trie_.for_each_prefix(piece.substr(at), [&](size_t size, int32_t id) {
      offer(at, at + size, id, scores_[size_t(id)]);
      has_single |= size == length;
    });
    if (!has_single) offer(at, at + length, -1, options_.unknown_score);
    at += length;
  }
  return best;
}

void Unigram::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  const std::vector<Step> best = best_steps(piece);
  std::vector<size_t> ends;  // of the tokens on the best way
  for (size_t end = piece.size(); end > 0; end = best[end].start) ends.push_back(end);
  std::reverse(ends.begin(), ends.end());
  const auto is_unknown = [&](size_t i) {
    const int32_t id = best[ends[i]].id;
    return id < 0 || id == options_.unknown;
  };
  for (size_t i = 0; i < ends.size(); ++i) {
    if (!is_unknown(i)) {
      ids.push_back(best[ends[i]].id);
      continue;
    }
    const size_t begin = best[ends[i]].start;
    while (i + 1 < ends.size() && is_unknown(i + 1)) ++i;
    const std::string_view run = piece.substr(begin, ends[i] - begin);
    if (options_.byte_fallback && bytes_.append(run, ids)) continue;
    if (!options_.unknown)
      throw Error("the character {} is not in the vocabulary, which has no token for what is unknown",
                  describe_code_point(first_code_point(run).value));
    ids.push_back(*options_.unknown);
  }
}

}  // namespace weft
