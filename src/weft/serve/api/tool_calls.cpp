// ToolCallParser: a state machine over the text that is held; markers are found across pieces of text, and JSON by
// its brackets before it is read with limits.
#include "weft/serve/api/tool_calls.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/serve/api/marked_arguments.h"
#include "weft/serve/api/python_arguments.h"
#include "weft/serve/api/trimmed.h"
#include "weft/serve/stop_finder.h"

namespace weft::api {
namespace {

using nlohmann::ordered_json;

constexpr JsonLimits kLimits{.max_bytes = 1 << 20, .max_depth = 64, .max_values = 1 << 16};
constexpr size_t kLongestHeader = 512;  // a longer name is none

std::optional<ordered_json> read(std::string_view text) {
  try {
    return parse_ordered_json(text, "a tool call", kLimits);
  } catch (const Error&) {
    return {};
  }
}

// {"name": ..., "arguments" or "parameters": {...}}
std::optional<ToolCall> call_of(const ordered_json& value) {
  for (const char* name : {"name", "tool_name"}) {
    if (!value.contains(name) || !value[name].is_string()) continue;
    for (const char* key : {"arguments", "parameters"}) {
      if (!value.contains(key)) continue;
      const ordered_json& arguments = value[key];
      const bool is_text = arguments.is_string();  // some models write the object as a string
      return ToolCall{value[name].get<std::string>(), is_text ? arguments.get<std::string>() : arguments.dump(), {}};
    }
    return ToolCall{value[name].get<std::string>(), "{}"};
  }
  return {};
}

bool is_of_json(char c) {
  return std::string_view("{}[]:,\" \t\r\n0123456789+-.eEtrufalsn").find(c) != std::string_view::npos;
}

}  // namespace

// Models of Mistral write calls in two ways, which begin alike: either is read.
ToolCallParser::ToolCallParser(ToolFormat format, std::shared_ptr<const ToolSchemas> tools)
    : family_(tool_family(format == ToolFormat::mistral ? ToolFormat::mistral_args : format)),
      pieces_(pieces_of(family_)),
      tools_(std::move(tools)) {}

ToolCallParser::Pieces ToolCallParser::pieces_of(const ToolFamily& family) {
  Pieces pieces;
  if (*family.mark) pieces.marks.emplace_back(family.mark);
  if (*family.part_begin) pieces.marks.emplace_back(family.part_begin);
  pieces.part_end = family.part_end;
  if (family.style == CallStyle::object) return pieces;
  // A header that is read by itself is all that stands between the markers around it.
  std::string_view open = trimmed(family.open), middle = family.middle;
  if (family.read_header) {
    open = open.substr(0, open.rfind('>') + 1);
    if (const size_t marker = middle.rfind("<|"); marker != std::string_view::npos) middle.remove_prefix(marker);
  }
  const std::string_view inner = trimmed(middle);
  pieces.opening = open;
  pieces.middle = inner.empty() ? middle : inner;
  if (family.style != CallStyle::tagged) return pieces;
  const std::string_view between = trimmed(family.value_open);
  const size_t line = between.find('\n');
  pieces.key_close = between.substr(0, line);
  if (line != std::string_view::npos) pieces.value_open = between.substr(line + 1);
  if (const std::string_view other = family.json_open; !other.empty()) {  // what both begin with closes the key
    const size_t alike = size_t(std::ranges::mismatch(between, other).in1 - between.begin());
    pieces.key_close = between.substr(0, alike);
    pieces.value_open = between.substr(alike);
    pieces.json_open = other.substr(alike);
  }
  pieces.value_close = trimmed(family.value_close);
  pieces.strips_lines = family.value_close[0] == '\n';
  return pieces;
}

ToolCallParser::Output ToolCallParser::push(std::string_view text) {
  Output output;
  held_ += text;
  run(output, false);
  return output;
}

ToolCallParser::Output ToolCallParser::finish() {
  Output output;
  if (family_.is_whole_answer && (state_ != State::text || begins_whole_answer(true)))
    take_whole_answer(output);
  else
    run(output, true);
  return output;
}

void ToolCallParser::run(Output& output, bool is_last) {
  for (;;) {
    if (family_.is_whole_answer && state_ != State::text && !is_last) return;
    Step result = step(output, is_last);
    if (result == Step::more && is_last && state_ != State::text) result = Step::broken;
    if (result == Step::more) return;
    if (result == Step::broken) give_up(output, is_last);
  }
}

ToolCallParser::Step ToolCallParser::step(Output& output, bool is_last) {
  switch (state_) {
    case State::text: return read_text(output, is_last);
    case State::gap: return read_gap(output, is_last);
    case State::header: return read_header();
    case State::json: return read_json(output);
    case State::python: return read_python(output);
    case State::marked: return read_marked(output);
    case State::key: return read_key(output, is_last);
    case State::value: break;
  }
  return read_value();
}

// Calls that are the whole answer are told when it is there: one thing more, and they are none.
void ToolCallParser::take_whole_answer(Output& output) {
  const std::string all = held_;
  Output calls;
  begin_calls(0);
  run(calls, true);
  if (calls.calls.empty() || !trimmed(calls.content).empty())
    output.content += all;
  else
    output.calls.insert(output.calls.end(), calls.calls.begin(), calls.calls.end());
}

bool ToolCallParser::begins_whole_answer(bool is_last) {
  const std::string_view text = trimmed(held_), tag = family_.markers.front();
  if (has_content_) return false;
  if (!is_last && text.size() < tag.size() && tag.starts_with(text)) return false;  // it may yet
  return text.starts_with(family_.style == CallStyle::python ? '[' : '{') || text.starts_with(tag);
}

ToolCallParser::Step ToolCallParser::read_text(Output& output, bool is_last) {
  if (family_.is_whole_answer) {
    if (begins_whole_answer(is_last)) {
      begin_calls(0);
      return Step::on;
    }
    const bool may_begin =
        !has_content_ && !is_last && std::string_view(family_.markers.front()).starts_with(trimmed(held_));
    if (!may_begin) tell_text(output, held_.size());
    return Step::more;
  }
  size_t mark = std::string::npos, mark_end = 0, certain = held_.size();
  for (const std::string& one : pieces_.marks) {
    const size_t at = held_.find(one);
    if (at < mark) mark = at, mark_end = at + one.size();
    if (!is_last) certain = std::min(certain, held_.size() - overlap(held_, one));
  }
  if (!pieces_.part_end.empty()) {
    const size_t end = held_.find(pieces_.part_end);
    if (end < mark) {
      tell_text(output, end);
      held_.erase(0, pieces_.part_end.size());
      is_silent_ = true, is_thought_ = false;
      return Step::on;
    }
    if (!is_last) certain = std::min(certain, held_.size() - overlap(held_, pieces_.part_end));
  }
  // Space before a call is no content; whether one follows shows later.
  const size_t end = std::min(mark, certain);
  const size_t text_end = end == 0 ? 0 : held_.find_last_not_of(kSpace, end - 1) + 1;
  if (mark != std::string::npos) {
    tell_text(output, text_end);
    begin_calls(mark_end - text_end);
    return Step::on;
  }
  const bool is_dropped = is_last && has_calls_ && text_end == 0;
  tell_text(output, is_last && !is_dropped ? held_.size() : text_end);
  if (is_dropped) held_.clear();
  return Step::more;
}

void ToolCallParser::tell_text(Output& output, size_t size) {
  const std::string_view text = std::string_view(held_).substr(0, size);
  has_content_ = has_content_ || !trimmed(text).empty();
  if (is_thought_)
    output.reasoning += text;
  else if (!is_silent_)
    output.content += text;
  held_.erase(0, size);
}

void ToolCallParser::begin_calls(size_t mark_end) {
  mark_end_ = resume_ = at_ = begin_ = mark_end;
  num_calls_ = 0;
  state_ = family_.is_framed ? State::header : State::gap;
}

void ToolCallParser::skip_spaces() { at_ = std::min(held_.find_first_not_of(kSpace, at_), held_.size()); }

// on: it is there; broken: it is not.
ToolCallParser::Step ToolCallParser::look_for(std::string_view piece, bool is_last) const {
  const std::string_view rest = std::string_view(held_).substr(at_);
  if (rest.starts_with(piece)) return Step::on;
  return !is_last && piece.starts_with(rest) ? Step::more : Step::broken;
}

// Between calls: to where the next one begins.
ToolCallParser::Step ToolCallParser::read_gap(Output& output, bool is_last) {
  skip_spaces();
  if (at_ == held_.size()) return Step::more;
  bool may_follow = false;
  const auto finds = [&](std::string_view piece) {
    const Step found = look_for(piece, is_last);
    may_follow = may_follow || found == Step::more;
    return found == Step::on;
  };
  for (const std::string& mark : pieces_.marks) {
    if (num_calls_ == 0 || !finds(mark)) continue;
    held_.erase(0, at_);
    begin_calls(mark.size());
    return Step::on;
  }
  if (may_follow) return Step::more;
  for (const char* piece : family_.around) {
    if (!finds(piece)) continue;
    resume_ = at_ += std::string_view(piece).size();
    // Behind their end no names are calls, as other words may look like.
    const bool is_end = std::string_view(piece).size() > 1 && std::string_view(family_.end).ends_with(piece);
    if (family_.style == CallStyle::python && is_end && num_calls_ > 0) give_up(output, is_last);
    return Step::on;
  }
  if (may_follow) return Step::more;
  const bool has_opening = !pieces_.opening.empty();
  if (held_[at_] == '{' && (family_.style == CallStyle::object || !has_opening)) {
    header_ = {}, begin_ = at_;
    state_ = State::json;
    return Step::on;
  }
  const bool needs_opening = family_.style != CallStyle::python;
  if (family_.style == CallStyle::object || family_.is_framed || (needs_opening && !has_opening && num_calls_ > 0))
    return Step::broken;
  const Step found = look_for(pieces_.opening, is_last);
  if (found != Step::on) return found;
  begin_ = at_ += pieces_.opening.size();
  state_ = State::header;
  return Step::on;
}

ToolCallParser::Step ToolCallParser::read_header() {
  size_t end = std::string::npos, next = 0;
  if (family_.style == CallStyle::tagged && family_.is_loose) {  // to the end of the line, which may be missing
    end = held_.find_first_of("\n<", at_);
    next = end;
  } else {
    const size_t from = at_ - std::min(at_ - begin_, pieces_.middle.size() - 1);
    end = held_.find(pieces_.middle, from);
    next = end + pieces_.middle.size();
  }
  if (std::min(end, held_.size()) - begin_ > kLongestHeader) return Step::broken;
  at_ = held_.size();
  if (end == std::string::npos) return Step::more;
  const std::string_view text = std::string_view(held_).substr(begin_, end - begin_);
  header_ = family_.read_header ? family_.read_header(text) : CallHeader{.name = std::string(trimmed(text))};
  at_ = begin_ = next;
  is_silent_ = false, is_thought_ = header_.kind == CallHeader::Kind::thought;
  if (header_.kind != CallHeader::Kind::call) {
    held_.erase(0, next);
    at_ = 0;
    state_ = State::text;
    return Step::on;
  }
  if (header_.name.empty()) return Step::broken;
  arguments_.clear();
  depth_ = 1, is_in_string_ = is_escaped_ = false;
  state_ = family_.style == CallStyle::tagged   ? State::key
           : family_.style == CallStyle::python ? State::python
           : family_.style == CallStyle::marked ? State::marked
                                                : State::json;
  return Step::on;
}

// To the parenthesis that closes the one before begin_.
ToolCallParser::Step ToolCallParser::read_python(Output& output) {
  bool is_complete = false;
  for (; at_ < held_.size() && !is_complete; ++at_) {
    const char c = held_[at_];
    if (is_in_string_) {
      is_in_string_ = is_escaped_ || c != quote_;
      is_escaped_ = !is_escaped_ && c == '\\';
      continue;
    }
    is_in_string_ = c == '"' || c == '\'';
    quote_ = c;
    if (c == '(' || c == '[' || c == '{') ++depth_;
    if (c == ')' || c == ']' || c == '}') is_complete = --depth_ == 0;
  }
  if (at_ - begin_ > kLimits.max_bytes) return Step::broken;
  if (!is_complete) return Step::more;
  if (held_[at_ - 1] != ')') return Step::broken;
  std::optional<std::string> arguments =
      json_of_python_arguments(std::string_view(held_).substr(begin_, at_ - 1 - begin_));
  if (!arguments) return Step::broken;
  take_call(output, {header_.name, std::move(*arguments), header_.id});
  return Step::on;
}

// To the brace that closes the one before begin_; a mark that is not whole yet is waited for.
ToolCallParser::Step ToolCallParser::read_marked(Output& output) {
  constexpr std::string_view kMark = kTextMark;
  bool is_complete = false;
  while (at_ < held_.size() && !is_complete) {
    const std::string_view rest = std::string_view(held_).substr(at_);
    if (rest.starts_with(kMark)) {
      is_in_string_ = !is_in_string_;
      at_ += kMark.size();
      continue;
    }
    if (kMark.starts_with(rest)) break;
    ++at_;
    if (is_in_string_) continue;
    if (rest[0] == '[' || rest[0] == '{') ++depth_;
    if (rest[0] == ']' || rest[0] == '}') is_complete = --depth_ == 0;
  }
  if (at_ - begin_ > kLimits.max_bytes) return Step::broken;
  if (!is_complete) return Step::more;
  std::optional<std::string> arguments =
      json_of_marked_arguments(std::string_view(held_).substr(begin_ - 1, at_ + 1 - begin_));
  if (!arguments) return Step::broken;
  take_call(output, {header_.name, std::move(*arguments), header_.id});
  return Step::on;
}

ToolCallParser::Step ToolCallParser::read_json(Output& output) {
  if (at_ == begin_) {
    skip_spaces();
    begin_ = at_;
    if (at_ == held_.size()) return Step::more;
    if (held_[at_] != '{') return Step::broken;
    depth_ = 0, is_in_string_ = is_escaped_ = false;
  }
  bool is_complete = false;
  for (; at_ < held_.size() && !is_complete; ++at_) {
    const char c = held_[at_];
    if (is_in_string_) {
      is_in_string_ = is_escaped_ || c != '"';
      is_escaped_ = !is_escaped_ && c == '\\';
      continue;
    }
    if (!is_of_json(c)) return Step::broken;
    is_in_string_ = c == '"';
    if (c == '{' || c == '[') ++depth_;
    if (c == '}' || c == ']') is_complete = --depth_ == 0;
  }
  if (at_ - begin_ > kLimits.max_bytes) return Step::broken;
  if (!is_complete) return Step::more;
  const std::string text = held_.substr(begin_, at_ - begin_);
  const std::optional<ordered_json> value = read(text);
  if (!value) return Step::broken;
  std::optional<ToolCall> call = ToolCall{header_.name, text, header_.id};
  if (header_.name.empty()) call = call_of(*value);
  if (!call) return Step::broken;
  take_call(output, std::move(*call));
  return Step::on;
}

ToolCallParser::Step ToolCallParser::read_key(Output& output, bool is_last) {
  skip_spaces();
  bool may_follow = at_ == held_.size(), is_closed = false;
  for (const char* piece : family_.around) {
    const Step found = look_for(piece, is_last);
    is_closed = is_closed || found == Step::on;
    may_follow = may_follow || found == Step::more;
  }
  if (is_closed) {
    const auto schema = tools_ ? tools_->find(header_.name) : ToolSchemas::const_iterator();
    const bool is_known = tools_ && schema != tools_->end();
    take_call(output, {header_.name, json_of_arguments(arguments_, is_known ? schema->second : ""), header_.id});
    return Step::on;
  }
  const Step found = look_for(family_.key_open, is_last);
  if (found != Step::on) return may_follow ? Step::more : found;
  const size_t key = at_ + std::string_view(family_.key_open).size();
  const size_t end = held_.find(pieces_.key_close, key);
  if (std::min(end, held_.size()) - key > kLongestHeader) return Step::broken;
  if (end == std::string::npos) return Step::more;
  size_t value = end + pieces_.key_close.size();
  std::optional<bool> is_text;
  if (!pieces_.value_open.empty()) {
    value = std::min(held_.find_first_not_of(kSpace, value), held_.size());
    const std::string_view rest = std::string_view(held_).substr(value);
    const bool is_json = !pieces_.json_open.empty() && rest.starts_with(pieces_.json_open);
    if (!is_json && !rest.starts_with(pieces_.value_open)) {
      const auto may_be = [&](std::string_view piece) { return piece.starts_with(rest); };
      return may_be(pieces_.value_open) || may_be(pieces_.json_open) ? Step::more : Step::broken;
    }
    if (!pieces_.json_open.empty()) is_text = !is_json;
    value += (is_json ? pieces_.json_open : pieces_.value_open).size();
  }
  arguments_.push_back({std::string(trimmed(std::string_view(held_).substr(key, end - key))), {}, is_text});
  at_ = begin_ = value;
  state_ = State::value;
  return Step::on;
}

ToolCallParser::Step ToolCallParser::read_value() {
  const size_t from = at_ - std::min(at_ - begin_, pieces_.value_close.size() - 1);
  const size_t end = held_.find(pieces_.value_close, from);
  at_ = held_.size();
  if (std::min(end, at_) > kLimits.max_bytes) return Step::broken;
  if (end == std::string::npos) return Step::more;
  std::string_view text = std::string_view(held_).substr(begin_, end - begin_);
  if (pieces_.strips_lines) {
    if (text.starts_with('\n')) text.remove_prefix(1);
    if (text.ends_with('\n')) text.remove_suffix(1);
  }
  arguments_.back().text = text;
  at_ = end + pieces_.value_close.size();
  state_ = State::key;
  return Step::on;
}

void ToolCallParser::take_call(Output& output, ToolCall call) {
  output.calls.push_back(std::move(call));
  has_calls_ = true;
  ++num_calls_;
  held_.erase(0, at_);
  at_ = resume_ = 0;
  state_ = State::gap;
}

// The answer was cut within what closes a call.
bool ToolCallParser::is_cut_close(std::string_view text) const {
  return std::ranges::any_of(family_.around, [&](std::string_view piece) {
    return !text.empty() && text.size() < piece.size() && piece.starts_with(text);
  });
}

// What was held is text: the mark for certain, and what follows it may be more than that.
void ToolCallParser::give_up(Output& output, bool is_last) {
  const bool is_between = state_ == State::gap;
  state_ = State::text;
  at_ = 0;
  if (num_calls_ > 0) {
    held_.erase(0, resume_);
    if (is_last && is_between && is_cut_close(trimmed(held_))) held_.clear();
    return;
  }
  if (family_.is_whole_answer) has_content_ = true;
  tell_text(output, mark_end_);
}

}  // namespace weft::api
