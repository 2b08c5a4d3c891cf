// Reading a text file in pieces: what a piece cannot take yet is held for the next.
#include "weft/data/text_pieces.h"

#include <algorithm>
#include <string>

#include "weft/text/tokenizer.h"

namespace weft {
namespace {

constexpr uint64_t kPieceBytes = 1 << 20;
constexpr size_t kSniffedBytes = 4096;  // a NUL in these marks a binary file

}  // namespace

bool read_text_pieces(FileSystem& fs, const TextFile& source, TextMeter& meter,
                      FunctionRef<size_t(std::string_view)> cut, FunctionRef<void(std::string_view)> visit) {
  const InputFile file(fs, source.path);
  std::string text;
  uint64_t read = 0, visited = 0;
  try {
    while (read < file.size()) {
      const size_t held = text.size(), count = size_t(std::min(kPieceBytes, file.size() - read));
      text.resize(held + count);
      file.read(std::as_writable_bytes(std::span(text).subspan(held)), read);
      if (read == 0 && std::string_view(text).substr(0, kSniffedBytes).find('\0') != std::string_view::npos) {
        meter.add(file.size());
        return false;
      }
      read += count;
      const size_t length = read < file.size() ? cut(text) : text.size();
      visit(std::string_view(text).substr(0, length));
      text.erase(0, length);
      visited += length;
      meter.add(count);
    }
  } catch (const EncodeError& error) {
    throw Error("{}: {} at byte {}; {}", source.path, error.reason(), visited + error.offset(), error.remedy());
  }
  return true;
}

}  // namespace weft
