// MetricsFile: lines of JSON, and which of an earlier run stay.
#include "weft/train/metrics.h"

#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>
#include <string_view>

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

void add_number(fmt::memory_buffer& line, std::string_view key, double value) {
  if (std::isfinite(value)) {
    fmt::format_to(std::back_inserter(line), ",\"{}\":{}", key, value);
  } else {
    fmt::format_to(std::back_inserter(line), ",\"{}\":null", key);
  }
}

void end_line(fmt::memory_buffer& line, OutputFile& file) {
  line.append(std::string_view("}\n"));
  file.write(bytes_of({line.data(), line.size()}));
}

}  // namespace

MetricsFile::MetricsFile(FileSystem& fs, std::string path, int64_t last_step) {
  std::string kept;
  if (last_step >= 0 && exists(fs, path)) kept = kept_lines(read_file(path, kMaxBytes, fs), last_step);
  const std::string temporary = path + ".tmp";
  if (exists(fs, temporary)) remove_file(fs, temporary);
  file_ = std::make_unique<OutputFile>(fs, temporary);
  file_->write(bytes_of(kept));
  file_->sync();
  rename_path(fs, temporary, path);  // the open file goes on under its new name
}

void MetricsFile::write(const StepMetrics& m) {
  line_.clear();
  const auto out = std::back_inserter(line_);
  fmt::format_to(out, "{}{}", kLineStart, m.step);
  add_number(line_, "loss", m.loss);
  if (m.mtp_loss) add_number(line_, "mtp_loss", *m.mtp_loss);
  add_number(line_, "grad_norm", m.grad_norm);
  add_number(line_, "lr", m.lr);
  fmt::format_to(out, ",\"tokens\":{}", m.tokens);
  add_number(line_, "tokens_per_s", m.tokens_per_s);
  add_number(line_, "step_s", m.step_s);
  add_number(line_, "mfu", m.mfu);
  add_number(line_, "hfu", m.hfu);
  fmt::format_to(out, ",\"peak_bytes\":[{}]", fmt::join(m.peak_bytes, ","));
  add_number(line_, "comm_s", m.comm_s);
  add_number(line_, "bubble", m.bubble);
  end_line(line_, *file_);
}

void MetricsFile::write_eval(int64_t step, const Validation& v) {
  line_.clear();
  fmt::format_to(std::back_inserter(line_), "{}{}", kLineStart, step);
  add_number(line_, "eval_loss", v.loss);
  if (v.preference) {
    add_number(line_, "eval_accuracy", v.preference->accuracy);
    add_number(line_, "eval_margin", v.preference->margin);
  }
  end_line(line_, *file_);
}

void MetricsFile::write_checkpoint(int64_t step, double blocked_s, double seconds) {
  line_.clear();
  fmt::format_to(std::back_inserter(line_), "{}{}", kLineStart, step);
  add_number(line_, "checkpoint_blocked_s", blocked_s);
  add_number(line_, "checkpoint_s", seconds);
  end_line(line_, *file_);
}

}  // namespace weft
