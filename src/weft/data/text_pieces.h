// Reading a text file in pieces that can be worked on one by one.
#pragma once
#include <cstdint>
#include <string_view>

#include "weft/base/file.h"
#include "weft/base/function_ref.h"
#include "weft/data/text_files.h"

namespace weft {

// Called often while text is read.
using TextProgress = FunctionRef<void(int64_t done_bytes, int64_t total_bytes)>;

// Bytes read so far of all that will be.
struct TextMeter {
  TextProgress progress;
  int64_t total = 0, done = 0;
  void add(uint64_t bytes) { progress(done += int64_t(bytes), total); }
};

// Calls visit(piece) with the text of a file in pieces of about a megabyte that end where cut(text) says; false,
// without any call, when the file is binary. An EncodeError of the visitor becomes an Error that names file and byte.
bool read_text_pieces(FileSystem& fs, const TextFile& source, TextMeter& meter,
                      FunctionRef<size_t(std::string_view)> cut, FunctionRef<void(std::string_view)> visit);

}  // namespace weft
