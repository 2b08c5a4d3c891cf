// A tokenizer told as the vocabulary of a GGUF file.
#pragma once
#include "weft/text/readers/gguf_vocabulary.h"

namespace weft {

// What files say of tokenizers that llama.cpp has no words for; weft reads no such vocabulary.
inline constexpr std::string_view kNoGgufModel = "none";

// At least `vocab` tokens; those that the tokenizer lacks are unused. Byte-level BPE and SentencePiece models are
// told in llama.cpp's words, if these give the same ids for a text with all kinds of characters; the pre-tokenizer is
// the first one known that does. Any other tokenizer is of the model kNoGgufModel.
GgufVocabulary gguf_vocabulary_of(const Tokenizer& tokenizer, int64_t vocab);

}  // namespace weft
