// A tokenizer by path: GGUF files here, all others in text/.
#include "weft/pretrained/tokenizer_path.h"

#include "weft/pretrained/gguf_tokenizer.h"
#include "weft/text/byte_tokenizer.h"
#include "weft/text/tokenizer_files.h"

namespace weft {

std::unique_ptr<Tokenizer> open_tokenizer_path(FileSystem& fs, const std::string& path, std::string_view key) {
  if (path == "byte") return std::make_unique<ByteTokenizer>();
  if (!exists(fs, path))
    throw UsageError("{} = \"{}\": there is no such file; write \"byte\" or the path of a tokenizer's file or folder",
                     key, path);
  if (path.ends_with(".gguf")) return open_gguf_tokenizer(path, fs);
  return open_tokenizer(fs, path);
}

}  // namespace weft
