// ReasoningParser: holds back what may yet be a mark, and the space that may come to stand beside one.
#include "weft/serve/api/reasoning_parser.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/serve/api/trimmed.h"
#include "weft/serve/stop_finder.h"

namespace weft::api {

ReasoningParser::ReasoningParser(ReasoningFormat format, ReasoningPlace place)
    : family_(reasoning_family(format)),
      state_(place == ReasoningPlace::inside ? State::reasoning : State::before),
      may_repeat_mark_(place == ReasoningPlace::inside) {
  check(*family_.open && place != ReasoningPlace::outside, "there is no reasoning to read");
}

ReasoningParser::Output ReasoningParser::push(std::string_view text) {
  Output output;
  held_ += text;
  run(output, false);
  return output;
}

ReasoningParser::Output ReasoningParser::finish() {
  Output output;
  run(output, true);
  return output;
}

void ReasoningParser::run(Output& output, bool is_last) {
  while (step(output, is_last)) {
  }
}

// At the beginning of what is held, behind spaces; taken with them.
ReasoningParser::Found ReasoningParser::take_mark(std::string_view mark, bool is_last) {
  const size_t at = std::min(held_.find_first_not_of(kSpace), held_.size());
  const std::string_view rest = std::string_view(held_).substr(at);
  if (rest.starts_with(mark)) {
    held_.erase(0, at + mark.size());
    return Found::yes;
  }
  return !is_last && mark.starts_with(rest) ? Found::maybe : Found::no;
}

bool ReasoningParser::step(Output& output, bool is_last) {
  switch (state_) {
    case State::before: {
      const Found found = take_mark(family_.open, is_last);
      if (found == Found::maybe) return false;
      state_ = found == Found::yes ? State::reasoning : State::content;
      return true;
    }
    case State::reasoning: return read_reasoning(output, is_last);
    case State::behind: {
      if (*family_.behind && take_mark(family_.behind, is_last) == Found::maybe) return false;
      held_.erase(0, std::min(held_.find_first_not_of(kSpace), held_.size()));
      if (held_.empty()) return false;
      state_ = State::content;
      return true;
    }
    case State::content: break;
  }
  output.content += std::exchange(held_, {});
  return false;
}

bool ReasoningParser::read_reasoning(Output& output, bool is_last) {
  if (may_repeat_mark_) {
    if (take_mark(family_.open, is_last) == Found::maybe) return false;
    may_repeat_mark_ = false;
  }
  if (!has_reasoning_) held_.erase(0, std::min(held_.find_first_not_of(kSpace), held_.size()));
  const std::string_view close = family_.close;
  const size_t mark = held_.find(close);
  const bool is_closed = mark != std::string::npos;
  const size_t certain = is_closed ? mark : held_.size() - (is_last ? 0 : overlap(held_, close));
  const size_t end = certain == 0 ? 0 : held_.find_last_not_of(kSpace, certain - 1) + 1;
  output.reasoning += std::string_view(held_).substr(0, end);
  has_reasoning_ = has_reasoning_ || end > 0;
  held_.erase(0, is_closed ? mark + close.size() : is_last ? held_.size() : end);
  if (is_closed) state_ = State::behind;
  return is_closed;
}

}  // namespace weft::api
