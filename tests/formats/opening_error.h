// opening_error: what opening a file of this content says.
#pragma once
#include <string>
#include <string_view>

#include "weft/base/error.h"
#include "weft/base/file.h"

namespace weft {

// open: reads all of the file at `path`. "opened" where it finds nothing wrong.
std::string opening_error(const std::string& path, std::string_view content, auto&& open) {
  write_file_atomically(FileSystem::real(), path, content);
  try {
    open();
  } catch (const Error& e) {
    return e.what();
  }
  return "opened";
}

}  // namespace weft
