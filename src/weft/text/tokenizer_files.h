// Opening tokenizers by path: a file of any format, or a folder that holds one.
#pragma once
#include <memory>
#include <string>

#include "weft/base/file.h"
#include "weft/text/tokenizer.h"

namespace weft {

// A tokenizer.json of Hugging Face or weft, a SentencePiece model, NAME.tiktoken of a known NAME, GPT-2's
// encoder.json or vocab.bpe (with the other beside it), or a folder with one of these. tokenizer_config.json and
// special_tokens_map.json beside it say which control tokens begin and end a document.
std::unique_ptr<Tokenizer> open_tokenizer(FileSystem& fs, const std::string& path);

// Whether open_tokenizer would find something in this folder.
bool holds_tokenizer(FileSystem& fs, const std::string& folder);

}  // namespace weft
