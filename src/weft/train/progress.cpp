// Progress: what fits a terminal, and when it is drawn.
#include "weft/train/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace weft {
namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr int kDefaultWidth = 80, kLogWidth = 200;

std::string clipped(std::string text, int width) {
  if (int(text.size()) >= width) text.resize(size_t(std::max(width - 1, 0)));
  return text;
}

int terminal_width(int fd) {
  struct winsize size {};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? int(size.ws_col) : kDefaultWidth;
}

// A log or terminal that cannot be written to is not worth ending a run for.
void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(size_t(written));
  }
}

}  // namespace

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e9) return "?";
  const int64_t s = int64_t(std::llround(seconds));
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  return fmt::format("{}d{:02}h", s / 86400, s / 3600 % 24);
}

std::string format_count(double count) {
  if (!std::isfinite(count)) return "?";
  constexpr std::array<std::string_view, 5> units = {"", "k", "M", "G", "T"};
  size_t unit = 0;
  while (std::abs(count) >= 999.5 && unit + 1 < units.size()) count /= 1000, ++unit;
  const int digits = unit == 0 || std::abs(count) >= 99.95 ? 0 : std::abs(count) >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}", count, digits, units[unit]);
}

std::string format_step(const StepProgress& p, int width) {
  struct Figure {
    std::string text;
    int importance;  // 0 stays longest
  };
  std::array<Figure, 7> figures = {{{fmt::format("step {}/{}", p.step, p.num_steps), 0},
                                    {p.reward ? fmt::format("reward {:.4f}", *p.reward) : "", 1},
                                    {fmt::format("loss {:.4f}", p.loss), 2},
                                    {fmt::format("lr {:.2e}", p.lr), 6},
                                    {format_count(p.tokens_per_s) + " tok/s", 4},
                                    {std::isfinite(p.mfu) ? fmt::format("mfu {:.1f}%", 100 * p.mfu) : "", 5},
                                    {"eta " + format_duration(p.eta_s), 3}}};
  std::string line;
  for (int shown = int(figures.size()); shown > 0; --shown) {
    line.clear();
    for (const Figure& figure : figures) {
      if (figure.importance >= shown || figure.text.empty()) continue;
      line += line.empty() ? "" : " | ";
      line += figure.text;
    }
    if (int(line.size()) < width) break;
  }
  return clipped(std::move(line), width);
}

std::string format_bytes_done(std::string_view what, int64_t done, int64_t total, int width) {
  const double share = total > 0 ? std::clamp(double(done) / double(total), 0.0, 1.0) : 1.0;
  const std::string figures =
      fmt::format("{:3.0f}% {:.1f}/{:.1f} MB", std::floor(100 * share), double(done) * 1e-6, double(total) * 1e-6);
  const int cells = std::min(40, width - int(what.size()) - int(figures.size()) - 5);  // 5: two spaces, [], a margin
  if (cells < 5) return clipped(fmt::format("{} {}", what, figures), width);
  const int filled = int(share * cells);
  return fmt::format("{} [{:#<{}}{:-<{}}] {}", what, "", filled, "", cells - filled, figures);
}

ProgressLine::ProgressLine(int fd, int64_t plain_every)
    : ProgressLine([fd](std::string_view text) { write_all(fd, text); }, [fd] { return terminal_width(fd); },
                   isatty(fd) == 1, plain_every) {}

ProgressLine::ProgressLine(Write write, std::function<int()> width, bool is_live, int64_t plain_every)
    : write_(std::move(write)),
      width_(std::move(width)),
      is_live_(is_live),
      plain_every_(std::max<int64_t>(plain_every, 1)) {}

bool ProgressLine::is_due(double now_s, bool is_last) {
  if (now_s - last_s_ < kRedrawSeconds && !is_last) return false;
  last_s_ = now_s;
  return true;
}

void ProgressLine::show_line(const std::string& text) {
  if (text == line_) return;
  write_("\r" + text + "\x1b[K");  // erases what is left of a longer line
  line_ = text;
}

void ProgressLine::show(const StepProgress& progress, double now_s) {
  const bool is_last = progress.step >= progress.num_steps;
  if (is_live_) {
    if (is_due(now_s, is_last)) show_line(format_step(progress, width_()));
  } else if (is_last || progress.step % plain_every_ == 0) {
    write_(format_step(progress, kLogWidth) + "\n");
  }
}

void ProgressLine::show_bytes(std::string_view what, int64_t done, int64_t total, double now_s) {
  const bool is_last = done >= total;
  if (is_live_) {
    if (is_due(now_s, is_last)) show_line(format_bytes_done(what, done, total, width_()));
  } else if (is_last) {
    write_(format_bytes_done(what, done, total, kLogWidth) + "\n");
  }
}

void ProgressLine::note(std::string_view text) {
  if (line_.empty()) {
    write_(fmt::format("{}\n", text));
    return;
  }
  write_(fmt::format("\r{}\x1b[K\n{}", text, line_));
}

void ProgressLine::finish() {
  if (line_.empty()) return;
  write_("\n");
  line_.clear();
}

}  // namespace weft
