// Reasoning, parted from the content of an answer while it comes.
#pragma once
#include <string>
#include <string_view>

#include "weft/serve/api/reasoning_families.h"

namespace weft::api {

// What comes out does not depend on how the text is parted. White space around the marks belongs to neither. An
// answer that begins otherwise than with the mark is content, whatever marks it has.
class ReasoningParser {
 public:
  // place: before or inside; of a family with marks.
  ReasoningParser(ReasoningFormat format, ReasoningPlace place);

  struct Output {
    std::string reasoning, content;
  };
  Output push(std::string_view text);
  Output finish();  // what looked like a mark and is none

  bool is_inside() const { return state_ == State::reasoning; }

 private:
  enum class State : uint8_t { before, reasoning, behind, content };
  enum class Found : uint8_t { yes, maybe, no };
  void run(Output& output, bool is_last);
  bool step(Output& output, bool is_last);  // false: more must come
  Found take_mark(std::string_view mark, bool is_last);
  bool read_reasoning(Output& output, bool is_last);

  const ReasoningFamily& family_;
  State state_;
  bool may_repeat_mark_;  // some models write the mark again that their prompt ends with
  bool has_reasoning_ = false;
  std::string held_;
};

}  // namespace weft::api
