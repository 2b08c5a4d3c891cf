// TriggeredConstraint: the trigger is looked for byte by byte (Knuth, Morris, Pratt, 1977).
#include "weft/serve/constrain/triggered_constraint.h"

#include <algorithm>

#include "weft/base/error.h"

namespace weft::constrain {

TriggeredConstraint::TriggeredConstraint(std::shared_ptr<const api::OutputForm> form, std::optional<int32_t> marker,
                                         std::shared_ptr<const TokenMasks> masks, Begin begin)
    : whole_(std::move(form)),
      trigger_(whole_->trigger),
      is_opening_(whole_->is_whole_answer),
      marker_(marker),
      masks_(std::move(masks)),
      begin_(std::move(begin)),
      borders_(trigger_.size(), 0) {
  check(!trigger_.empty(), "a trigger has at least one byte");
  for (size_t i = 1, k = 0; i < trigger_.size(); ++i) {
    while (k > 0 && trigger_[i] != trigger_[k]) k = borders_[k - 1];
    if (trigger_[i] == trigger_[k]) ++k;
    borders_[i] = k;
  }
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
  if (token == marker_) {
    matched_.push_back(0);
    if (!is_opening_) form_ = begin_({});
    return;
  }
  size_t matched = matched_.back();
  const std::string_view bytes = masks_->bytes(token);
  for (size_t i = 0; i < bytes.size() && !form_; ++i) {
    matched = next(matched, bytes[i]);
    if (matched != trigger_.size()) continue;
    const std::string said = fmt::format("{}{}", is_opening_ ? trigger_ : "", bytes.substr(i + 1));
    form_ = begin_(said);
    matched = is_opening_ ? kNeverMore : 0;
  }
  matched_.push_back(matched);
}

size_t TriggeredConstraint::next(size_t matched, char byte) const {
  if (is_opening_) {
    const bool is_space = byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
    if (matched == 0 && is_space) return 0;
    return matched != kNeverMore && byte == trigger_[matched] ? matched + 1 : kNeverMore;
  }
  while (matched > 0 && byte != trigger_[matched]) matched = borders_[matched - 1];
  return byte == trigger_[matched] ? matched + 1 : matched;
}

void TriggeredConstraint::rewind(int64_t num_tokens) {
  const int64_t in_form = std::min(num_tokens, num_in_form_);
  if (in_form > 0) form_->rewind(in_form);
  num_in_form_ -= in_form;
  if (num_tokens == in_form) return;
  form_.reset();
  check(size_t(num_tokens - in_form) < matched_.size(), "{} tokens to forget of {}", num_tokens,
        int64_t(matched_.size()) - 1 + in_form);
  matched_.resize(matched_.size() - size_t(num_tokens - in_form));
}

}  // namespace weft::constrain
