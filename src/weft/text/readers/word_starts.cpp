// Cutting into words: the conditions.
#include "weft/text/readers/word_starts.h"

#include "weft/text/pipeline/sentencepiece_normalizer.h"

namespace weft {
namespace {

bool only_begins_tokens(std::string_view mark, const Vocabulary& vocabulary) {
  if (vocabulary.find(mark) < 0) return false;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    if (!vocabulary.has(id)) continue;
    std::string_view rest = vocabulary.spelling(id);
    while (rest.starts_with(mark)) rest.remove_prefix(mark.size());
    if (rest.find(mark) != rest.npos) return false;
  }
  return true;
}

}  // namespace

std::unique_ptr<PreTokenizer> with_word_starts(std::unique_ptr<PreTokenizer> pre_tokenizer,
                                               const Normalizer* normalizer, const SubwordModel& model,
                                               bool keeps_whole_pieces) {
  if (keeps_whole_pieces || !normalizer || model.name() == "wordpiece") return pre_tokenizer;
  std::string probe = "x y";
  normalizer->apply(probe, {.at_start = false, .continues = true});
  if (probe != "x" + std::string(kSpaceMark) + "y") return pre_tokenizer;
  if (!only_begins_tokens(kSpaceMark, model.vocabulary())) return pre_tokenizer;
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  // A pre-tokenizer that cuts at spaces has none to cut at.
  if (pre_tokenizer && !pre_tokenizer->cuts_only_at_spaces()) steps.push_back(std::move(pre_tokenizer));
  steps.push_back(word_start_pre_tokenizer(std::string(kSpaceMark)));
  return sequence_pre_tokenizer(std::move(steps));
}

}  // namespace weft
