// StopFinder: ends a text before the first of some stop strings, wherever the text is parted.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

struct StopOptions {
  std::vector<std::string> texts;  // the text ends before the first of these that appears
  bool is_included = false;        // or behind it
};

class StopFinder {
 public:
  explicit StopFinder(StopOptions options);

  // What of the text became certain: no part of a stop string. Nothing after the end.
  std::string push(std::string_view text);
  std::string finish();  // what was held back

  bool is_stopped() const { return stop_.has_value(); }
  // The stop string that ended it.
  const std::optional<std::string>& stop() const { return stop_; }

 private:
  std::string take(bool is_last);

  StopOptions options_;
  std::string held_;
  std::optional<std::string> stop_;
};

// How many bytes at the end of `text` may be the beginning of `mark`, and not all of it.
size_t overlap(std::string_view text, std::string_view mark);

}  // namespace weft
