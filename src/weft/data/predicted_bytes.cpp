// predicted_bytes: of texts what is left out is less to count; of examples each target is counted.
#include "weft/data/predicted_bytes.h"

#include "weft/data/packed_rows.h"

namespace weft {
namespace {

// How many bytes each token adds to a text that goes on, found when it is asked for.
class TokenLengths {
 public:
  explicit TokenLengths(const Tokenizer& tokenizer)
      : tokenizer_(tokenizer), known_(size_t(tokenizer.vocab_size()), -1) {
    while (before_ < tokenizer.vocab_size() && (tokenizer.is_special(before_) || tokenizer.spelling(before_).empty()))
      ++before_;
  }

  int64_t operator[](int32_t token) {
    int32_t& length = known_.at(size_t(token));
    if (length >= 0) return length;
    const std::unique_ptr<TokenDecoder> decoder = tokenizer_.start_decoding();
    std::string before, text;
    if (before_ < tokenizer_.vocab_size()) decoder->push(before_, before);
    decoder->push(token, text);
    decoder->finish(text);
    return length = int32_t(text.size());
  }

 private:
  const Tokenizer& tokenizer_;
  int32_t before_ = 0;  // a token of text: the first of a text may lose its space
  std::vector<int32_t> known_;
};

}  // namespace

int64_t predicted_bytes(const std::shared_ptr<const TokenFile>& file, const Tokenizer& tokenizer,
                        const BatchOptions& options) {
  if (!file->has_examples()) {
    const std::span<const uint64_t> starts = file->document_starts();
    int64_t bytes = file->source_bytes();
    for (const uint64_t start : options.documents ? starts : starts.first(1)) {
      int32_t first = 0;
      file->read(int64_t(start), {&first, 1});
      bytes -= int64_t(tokenizer.decode({&first, 1}).size());
    }
    return bytes;
  }
  const PackedEvalBatches batches({file, 0, file->num_tokens()}, options);
  TokenLengths lengths(tokenizer);
  Batch batch;
  int64_t bytes = 0;
  for (int64_t b = 0; b < batches.num_batches(); ++b) {
    batches.fill(b, 0, options.global_batch, batch);
    for (const int32_t target : batch.targets)
      if (target >= 0) bytes += lengths[target];
  }
  return bytes;
}

}  // namespace weft
