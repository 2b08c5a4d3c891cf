// Tokenizers of GPT-2's two files: encoder.json with the vocabulary, vocab.bpe with the merges.
#pragma once
#include <memory>
#include <string_view>

#include "weft/text/readers/hf_tokenizer.h"

namespace weft {

// The tokenizer becomes one of a tokenizer.json that says the same.
std::unique_ptr<Tokenizer> read_gpt2_files(std::string_view vocabulary, std::string_view merges,
                                           std::string_view origin, const HfHints& hints = {});

}  // namespace weft
