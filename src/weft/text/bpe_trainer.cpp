// BpeTrainer: words counted, merges learned, a tokenizer.json written.
#include "weft/text/bpe_trainer.h"

#include <xxhash.h>

#include <algorithm>

#include "weft/text/bpe_merges.h"
#include "weft/text/limits.h"
#include "weft/text/pipeline/byte_alphabet.h"
#include "weft/text/readers/byte_level_json.h"
#include "weft/text/readers/hf_tokenizer.h"

namespace weft {
namespace {

std::string to_json(const BpeTraining& training, const Vocabulary& vocabulary,
                    const std::vector<BpeMerges::Merge>& merges) {
  const ByteAlphabet& alphabet = ByteAlphabet::get();
  ByteLevelBpe out{.patterns = {training.pattern}};
  const auto spell = [&](int32_t id) { return alphabet.spell(vocabulary.spelling(id)); };
  for (int32_t id = 0; id < vocabulary.size(); ++id) out.vocabulary[spell(id)] = id;
  for (const BpeMerges::Merge& merge : merges) out.merges.push_back(spell(merge.left) + " " + spell(merge.right));
  for (const std::string& content : training.control)
    out.added.push_back({.content = content, .id = vocabulary.size() + int32_t(out.added.size()), .special = true});
  return to_tokenizer_json(std::move(out));
}

}  // namespace

size_t BpeTrainer::Hash::operator()(std::string_view word) const { return XXH3_64bits(word.data(), word.size()); }

BpeTrainer::BpeTrainer(BpeTraining training)
    : training_(std::move(training)),
      splitter_(
          split_pre_tokenizer(Regex(training_.pattern, "the pattern of words"), SplitBehavior::isolated, false)) {
  const int64_t least = 256 + int64_t(training_.control.size());
  if (training_.vocab_size < least || training_.vocab_size > kMostTokens)
    throw UsageError(
        "a vocabulary of {} tokens cannot be: give {} (a token for each byte, and {} control tokens) to {}",
        training_.vocab_size, least, training_.control.size(), kMostTokens);
  bytes_only_ = read_hf_tokenizer(to_json(training_, BpeMerges({}, 1, 1).vocabulary(), {}), "the new tokenizer");
}

void BpeTrainer::add(std::string_view text) {
  Pieces pieces{std::string(text), {}, {}};
  check(text.size() < UINT32_MAX, "bpe: {} bytes of text at once", text.size());
  if (!text.empty()) pieces.spans.push_back({0, uint32_t(text.size())});
  splitter_->apply(pieces);
  for (size_t i = 0; i < pieces.spans.size(); ++i) {
    const auto word = counts_.find(pieces[i]);
    if (word != counts_.end())
      ++word->second;
    else
      counts_.emplace(pieces[i], 1);
  }
}

std::string BpeTrainer::train(FunctionRef<void(int64_t, int64_t)> progress) const {
  std::vector<BpeMerges::Word> words;
  words.reserve(counts_.size());
  for (const auto& [word, count] : counts_) words.push_back({word, count});
  std::sort(words.begin(), words.end(), [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  BpeMerges learned(words, training_.min_count, training_.max_token_bytes);
  std::vector<BpeMerges::Merge> merges;
  const int32_t wanted = training_.vocab_size - int32_t(training_.control.size());
  while (learned.vocabulary().size() < wanted) {
    const std::optional<BpeMerges::Merge> merge = learned.next();
    if (!merge) break;
    merges.push_back(*merge);
    progress(learned.vocabulary().size() - 256, wanted - 256);
  }
  return to_json(training_, learned.vocabulary(), merges);
}

}  // namespace weft
