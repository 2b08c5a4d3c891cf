// TensorBoardWriter: scalars in the file format that TensorBoard reads, one events file a run.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "weft/base/file.h"

namespace weft {

// CRC-32C (Castagnoli), whose check value for "123456789" is 0xE3069283.
uint32_t crc32c(Bytes bytes);

struct Scalar {
  std::string_view tag;  // "train/loss": what stands before the slash groups the charts
  float value = 0;
};

class TensorBoardWriter {
 public:
  // A new file in `folder`, which must exist. first_step: TensorBoard then hides what earlier files of the folder say
  // of this step and later ones, which a resumed run repeats.
  TensorBoardWriter(FileSystem& fs, const std::string& folder, int64_t first_step);

  // One write, so that TensorBoard sees it at once.
  void write(int64_t step, std::span<const Scalar> scalars);

  const std::string& path() const { return path_; }

 private:
  void write_record();

  std::string path_, record_, summary_, value_, framed_;  // reused: no allocation once they have grown
  std::unique_ptr<OutputFile> file_;
};

}  // namespace weft
