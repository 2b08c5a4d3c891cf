// StepLines: a file of JSON lines that begin with their step, complete and without repeats also after a resume.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "weft/base/file.h"

namespace weft {

class StepLines {
 public:
  // Takes over the lines of steps up to `last_step` that an earlier run left, and drops the others; -1 starts anew.
  StepLines(FileSystem& fs, std::string path, int64_t last_step);

  // line: "{"step":7,...}" without its end. One write, so that a reader sees whole lines and a crash loses none.
  void write(std::string_view line);

 private:
  std::string line_;
  std::unique_ptr<OutputFile> file_;
};

}  // namespace weft
