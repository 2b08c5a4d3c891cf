// The tokenizer of a GGUF file, from its metadata.
#pragma once
#include "weft/formats/gguf.h"
#include "weft/text/readers/gguf_vocabulary.h"

namespace weft {

// Throws Error naming the file and the key that is missing or of another type.
GgufVocabulary read_gguf_vocabulary(const GgufFile& file);

std::unique_ptr<Tokenizer> open_gguf_tokenizer(const std::string& path, FileSystem& fs = FileSystem::real());

}  // namespace weft
