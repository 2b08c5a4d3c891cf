// TriggeredConstraint: the trigger is looked for byte by byte (Knuth, Morris, Pratt, 1977).
#include "weft/serve/constrain/triggered_constraint.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/serve/constrain/control_marks.h"

namespace weft::constrain {

SoughtText::SoughtText(std::string text) : text_(std::move(text)), borders_(text_.size(), 0) {
  for (size_t i = 1, k = 0; i < text_.size(); ++i) {
    while (k > 0 && text_[i] != text_[k]) k = borders_[k - 1];
    if (text_[i] == text_[k]) ++k;
    borders_[i] = k;
  }
}

size_t SoughtText::next(size_t matched, char byte) const {
  while (matched > 0 && byte != text_[matched]) matched = borders_[matched - 1];
  return byte == text_[matched] ? matched + 1 : matched;
}

size_t SoughtText::next_at_start(size_t matched, char byte) const {
  const bool is_space = byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
  if (matched == 0 && is_space) return 0;
  return matched != kNever && byte == text_[matched] ? matched + 1 : kNever;
}

TriggeredConstraint::TriggeredConstraint(std::shared_ptr<const api::OutputForm> form, const MarkTokens& tokens,
                                         std::shared_ptr<const TokenMasks> masks, Begin begin)
    : whole_(std::move(form)),
      open_(api::reasoning_family(whole_->reasoning_format).open),
      close_(api::reasoning_family(whole_->reasoning_format).close),
      trigger_(whole_->trigger),
      is_opening_(whole_->is_whole_answer),
      tokens_(tokens),
      masks_(std::move(masks)),
      begin_(std::move(begin)) {
  check(!trigger_.text().empty(), "a trigger has at least one byte");
  using Where = api::ReasoningPlace;
  const bool has_marks = !open_.text().empty() && !close_.text().empty();
  const Where where = has_marks ? whole_->reasoning : Where::outside;
  places_.push_back({where == Where::inside   ? Phase::thoughts
                     : where == Where::before ? Phase::before_thoughts
                                              : Phase::answer});
}

void TriggeredConstraint::fill(std::span<uint32_t> allowed) {
  if (form_) return form_->fill(allowed);
  std::ranges::fill(allowed, ~uint32_t(0));
}

void TriggeredConstraint::accept(int32_t token) {
  if (form_) {
    form_->accept(token);
    ++num_in_form_;
    return;
  }
  Place place = places_.back();
  if (!take_control(token, place)) take(masks_->bytes(token), 0, place);
  places_.push_back(place);
}

// Whether it is one of the marks, where that counts.
bool TriggeredConstraint::take_control(int32_t token, Place& place) {
  if (place.phase != Phase::answer) {
    const bool is_open = place.phase == Phase::before_thoughts && token == tokens_.open;
    const bool is_close = place.phase == Phase::thoughts && token == tokens_.close;
    if (is_open || is_close) place = {is_open ? Phase::thoughts : Phase::answer};
    if (is_open || is_close || place.phase == Phase::thoughts) return is_open || is_close;
  }
  if (token != tokens_.marker) return false;
  place = {Phase::answer};
  if (!is_opening_) form_ = begin_({});
  return true;
}

// The bytes of a token from `at` on.
void TriggeredConstraint::take(std::string_view bytes, size_t at, Place& place) {
  for (; at < bytes.size() && !form_; ++at) {
    const char byte = bytes[at];
    if (byte == kControlByte) continue;  // of a control token, which may be a part of what is looked for
    if (place.phase == Phase::before_thoughts) {
      const size_t was = place.matched;
      place.matched = open_.next_at_start(was, byte);
      if (place.matched == open_.text().size()) {
        place = {Phase::thoughts};
      } else if (place.matched == SoughtText::kNever) {  // what looked like the mark may begin the trigger
        place = {Phase::answer};
        take(open_.text().substr(0, was), 0, place);
        if (!form_) --at;
      }
    } else if (place.phase == Phase::thoughts) {
      place.matched = close_.next(place.matched, byte);
      if (place.matched == close_.text().size()) place = {Phase::answer};
    } else {
      place.matched = is_opening_ ? trigger_.next_at_start(place.matched, byte) : trigger_.next(place.matched, byte);
      if (place.matched != trigger_.text().size()) continue;
      const std::string said = fmt::format("{}{}", is_opening_ ? trigger_.text() : "", bytes.substr(at + 1));
      form_ = begin_(said);
      place.matched = is_opening_ ? SoughtText::kNever : 0;
    }
  }
}

void TriggeredConstraint::rewind(int64_t num_tokens) {
  const int64_t in_form = std::min(num_tokens, num_in_form_);
  if (in_form > 0) form_->rewind(in_form);
  num_in_form_ -= in_form;
  if (num_tokens == in_form) return;
  form_.reset();
  check(size_t(num_tokens - in_form) < places_.size(), "{} tokens to forget of {}", num_tokens,
        int64_t(places_.size()) - 1 + in_form);
  places_.resize(places_.size() - size_t(num_tokens - in_form));
}

}  // namespace weft::constrain
