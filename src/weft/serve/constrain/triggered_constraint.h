// TriggeredConstraint: an answer is free until it says some text, and has a form from there on.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/serve/api/served_model.h"
#include "weft/serve/constrain/token_mask.h"
#include "weft/serve/request.h"

namespace weft::constrain {

// A text that is looked for byte by byte.
class SoughtText {
 public:
  explicit SoughtText(std::string text);
  const std::string& text() const { return text_; }
  // How many of its bytes have come, behind `matched` of them and one more; anywhere.
  size_t next(size_t matched, char byte) const;
  // The same where it must be the first behind white space; kNever when something else came.
  static constexpr size_t kNever = SIZE_MAX;
  size_t next_at_start(size_t matched, char byte) const;

 private:
  std::string text_;
  std::vector<size_t> borders_;  // of each beginning, the longest that it also ends with
};

// Control tokens that are spelled as the form's trigger, or of one that opens the answer the token behind which that
// begins; and as the marks around what the model thinks.
struct MarkTokens {
  std::optional<int32_t> marker, open, close;
};

class TriggeredConstraint : public TokenConstraint {
 public:
  // begin: the constraint of what comes behind the trigger, of which `said` has come in the same token; null when
  // that cannot go on to have the form: then the answer stays free. A trigger among the model's thoughts is none.
  using Begin = std::function<std::unique_ptr<TokenConstraint>(std::string_view said)>;
  TriggeredConstraint(std::shared_ptr<const api::OutputForm> form, const MarkTokens& tokens,
                      std::shared_ptr<const TokenMasks> masks, Begin begin);

  void fill(std::span<uint32_t> allowed) override;
  void accept(int32_t token) override;
  void rewind(int64_t num_tokens) override;
  std::string said() const override { return form_ ? form_->said() : std::string(); }
  const api::OutputForm* form() const override { return whole_.get(); }

 private:
  enum class Phase : uint8_t { before_thoughts, thoughts, answer };
  struct Place {
    Phase phase;
    size_t matched = 0;  // bytes of what ends the phase; kNever when an answer began otherwise than with its trigger
  };
  bool take_control(int32_t token, Place& place);
  void take(std::string_view bytes, size_t at, Place& place);

  const std::shared_ptr<const api::OutputForm> whole_;
  const SoughtText open_, close_, trigger_;
  const bool is_opening_;  // nothing but white space may have come before the trigger, which begins the form
  const MarkTokens tokens_;
  const std::shared_ptr<const TokenMasks> masks_;
  const Begin begin_;
  std::vector<Place> places_;  // at first and after each free token
  std::unique_ptr<TokenConstraint> form_;
  int64_t num_in_form_ = 0;  // tokens that it accepted
};

}  // namespace weft::constrain
