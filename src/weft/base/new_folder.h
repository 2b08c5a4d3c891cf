// NewFolder: a folder of files that appears when it is whole.
#pragma once
#include <string>
#include <string_view>

#include "weft/base/file.h"

namespace weft {

// Files are written into a folder FOLDER.partial beside the one asked for, which takes its name at the end. Where
// that one is there already and empty, it may be another file system's: then they are written into FOLDER/.partial
// and moved. What an earlier try has left, as one that was killed, goes first.
class NewFolder {
 public:
  // Throws UsageError where the folder holds anything else.
  NewFolder(FileSystem& fs, const std::string& folder);
  ~NewFolder();  // without commit(), all that was written goes
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  const std::string& path() const { return partial_; }  // where to write until commit()
  // Once, when all files are whole and durable. last: the one that tells readers that the others are there.
  void commit(std::string_view last);

 private:
  FileSystem& fs_;
  std::string folder_, partial_;
  bool is_inside_, is_done_ = false;
};

}  // namespace weft
