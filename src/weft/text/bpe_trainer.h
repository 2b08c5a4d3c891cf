// BpeTrainer: learns a byte-level BPE vocabulary from text.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weft/base/function_ref.h"
#include "weft/text/pipeline/known_patterns.h"
#include "weft/text/tokenizer.h"

namespace weft {

struct BpeTraining {
  int32_t vocab_size = 0;  // 256 bytes, then what merges make, then `control`; fewer when there is nothing to merge
  std::vector<std::string> control = {"<|endoftext|>"};
  std::string pattern{kGpt2Pattern};  // cuts text into the words that merges stay inside
  int64_t min_count = 2;              // pairs that stand together less often are not merged
  size_t max_token_bytes = 128;       // no merge makes a longer token
};

class BpeTrainer {
 public:
  // Throws UsageError for a vocabulary that cannot be.
  explicit BpeTrainer(BpeTraining training);

  // Counts the words of a text. One that comes in pieces is divided where cut() says, as Tokenizer::cut.
  void add(std::string_view text);
  size_t cut(std::string_view text) const { return bytes_only_->cut(text); }

  // A tokenizer.json as Hugging Face's library reads it. The same words give the same file, in whatever order they
  // came. `progress` is called often with the merges made and wanted.
  std::string train(FunctionRef<void(int64_t done, int64_t total)> progress) const;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view word) const;
  };

  BpeTraining training_;
  std::unique_ptr<PreTokenizer> splitter_;
  std::unique_ptr<Tokenizer> bytes_only_;                                   // cuts words as the new tokenizer will
  std::unordered_map<std::string, int64_t, Hash, std::equal_to<>> counts_;  // of words, as bytes
};

}  // namespace weft
