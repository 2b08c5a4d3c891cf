// StepLines: which lines of an earlier run stay.
#include "weft/train/step_lines.h"

#include <charconv>
#include <optional>

namespace weft {
namespace {

constexpr uint64_t kMaxBytes = uint64_t(4) << 30;
constexpr std::string_view kLineStart = "{\"step\":";

// The step of a line that was written whole.
std::optional<int64_t> step_of(std::string_view line) {
  if (!line.starts_with(kLineStart) || !line.ends_with("}\n")) return {};
  int64_t step = 0;
  const char* digits = line.data() + kLineStart.size();
  const auto [end, error] = std::from_chars(digits, line.data() + line.size(), step);
  if (error != std::errc() || *end != ',') return {};
  return step;
}

std::string kept_lines(std::string_view text, int64_t last_step) {
  std::string kept;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end == text.npos ? text.size() : end + 1);
    const std::optional<int64_t> step = step_of(line);
    if (step && *step <= last_step) kept += line;
    text.remove_prefix(line.size());
  }
  return kept;
}

}  // namespace

StepLines::StepLines(FileSystem& fs, std::string path, int64_t last_step) {
  std::string kept;
  if (last_step >= 0 && exists(fs, path)) kept = kept_lines(read_file(path, kMaxBytes, fs), last_step);
  const std::string temporary = path + ".tmp";
  if (exists(fs, temporary)) remove_file(fs, temporary);
  file_ = std::make_unique<OutputFile>(fs, temporary);
  file_->write(bytes_of(kept));
  file_->sync();
  rename_path(fs, temporary, path);  // the open file goes on under its new name
}

void StepLines::write(std::string_view line) {
  line_.assign(line);
  line_ += '\n';
  file_->write(bytes_of(line_));
}

}  // namespace weft
