// Progress: one live line on a terminal, plain lines in a log.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace weft {

struct StepProgress {
  int64_t step = 0, num_steps = 0;
  double loss = 0;
  std::optional<double> reward = {};  // of answers, where the model learns from those
  double lr = 0, tokens_per_s = 0;
  double mfu = 0;    // of the peak, 0 to 1; NaN when the peak is not known
  double eta_s = 0;  // NaN when not known
};

// "step 120/2000 | loss 2.3451 | lr 9.8e-04 | 123k tok/s | mfu 41.2% | eta 1m23s", in fewer than `width` columns:
// where that is too long, the least important figures are left out.
std::string format_step(const StepProgress& progress, int width);

// "tokenizing [#####-----] 50% 12.3/24.6 MB", in fewer than `width` columns.
std::string format_bytes_done(std::string_view what, int64_t done, int64_t total, int width);

std::string format_duration(double seconds);  // "42s", "1m23s", "2h05m", "3d04h"; "?" when not finite
std::string format_count(double count);       // "950", "12.3k", "4.56M"

class ProgressLine {
 public:
  using Write = std::function<void(std::string_view)>;

  // Live when `fd` (standard error, as a rule) is a terminal.
  explicit ProgressLine(int fd, int64_t plain_every = 10);
  // For output of any other kind. width() is asked before every line.
  ProgressLine(Write write, std::function<int()> width, bool is_live, int64_t plain_every);
  ~ProgressLine() { finish(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  bool is_live() const { return is_live_; }

  // Live: rewrites the line, at most 10 times a second. Otherwise: a line every `plain_every` steps. The last step is
  // always shown. now_s is any clock in seconds that does not run backwards.
  void show(const StepProgress& progress, double now_s);
  // Live only: nothing otherwise, except when all is done.
  void show_bytes(std::string_view what, int64_t done, int64_t total, double now_s);

  // A line that stays, such as the loss of an evaluation.
  void note(std::string_view text);

  // Ends the live line, so that what is printed next begins a new one.
  void finish();

 private:
  void show_line(const std::string& text);
  bool is_due(double now_s, bool is_last);

  Write write_;
  std::function<int()> width_;
  bool is_live_;
  int64_t plain_every_;
  double last_s_ = -1e300;
  std::string line_;  // what stands on the terminal
};

}  // namespace weft
