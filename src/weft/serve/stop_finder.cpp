// StopFinder: holds back what may yet become a stop string.
#include "weft/serve/stop_finder.h"

#include <algorithm>

namespace weft {

size_t overlap(std::string_view text, std::string_view mark) {
  for (size_t n = std::min(text.size(), mark.size() - 1); n > 0; --n) {
    if (text.ends_with(mark.substr(0, n))) return n;
  }
  return 0;
}

StopFinder::StopFinder(StopOptions options) : options_(std::move(options)) {
  std::erase_if(options_.texts, [](const std::string& stop) { return stop.empty(); });
}

std::string StopFinder::push(std::string_view text) {
  if (is_stopped()) return {};
  held_ += text;
  return take(false);
}

std::string StopFinder::finish() { return is_stopped() ? std::string() : take(true); }

std::string StopFinder::take(bool is_last) {
  size_t first = std::string::npos;
  for (const std::string& stop : options_.texts) {
    const size_t at = held_.find(stop);
    if (at < first) first = at, stop_ = stop;
  }
  size_t certain = held_.size();
  if (stop_) {
    certain = first + (options_.is_included ? stop_->size() : 0);
  } else if (!is_last) {
    for (const std::string& stop : options_.texts) certain = std::min(certain, held_.size() - overlap(held_, stop));
  }
  std::string out = held_.substr(0, certain);
  held_.erase(0, stop_ ? held_.size() : certain);
  return out;
}

}  // namespace weft
