// The tokenizer that a path on a command line or in a recipe names, whatever its format.
#pragma once
#include <memory>
#include <string>

#include "weft/base/file.h"
#include "weft/text/tokenizer.h"

namespace weft {

// "byte", a .gguf file, or what text/tokenizer_files.h opens. `key` is what UsageError names when nothing is there.
std::unique_ptr<Tokenizer> open_tokenizer_path(FileSystem& fs, const std::string& path, std::string_view key);

}  // namespace weft
