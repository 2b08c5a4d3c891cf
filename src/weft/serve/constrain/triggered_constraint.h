// TriggeredConstraint: an answer is free until it says some text, and has a form from there on.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/serve/api/served_model.h"
#include "weft/serve/constrain/token_mask.h"
#include "weft/serve/request.h"

namespace weft::constrain {

class TriggeredConstraint : public TokenConstraint {
 public:
  // begin: the constraint of what comes behind the trigger, of which `said` has come in the same token; null when
  // that cannot go on to have the form: then the answer stays free. marker: the control token that is spelled as the
  // form's trigger, if there is one; before one that opens the answer, the token behind which the answer begins.
  using Begin = std::function<std::unique_ptr<TokenConstraint>(std::string_view said)>;
  TriggeredConstraint(std::shared_ptr<const api::OutputForm> form, std::optional<int32_t> marker,
                      std::shared_ptr<const TokenMasks> masks, Begin begin);

  void fill(std::span<uint32_t> allowed) override;
  void accept(int32_t token) override;
  void rewind(int64_t num_tokens) override;
  const api::OutputForm* form() const override { return whole_.get(); }

 private:
  static constexpr size_t kNeverMore = SIZE_MAX;
  size_t next(size_t matched, char byte) const;  // of the trigger's text

  const std::shared_ptr<const api::OutputForm> whole_;
  const std::string& trigger_;
  const bool is_opening_;  // nothing but white space may have come before the trigger, which begins the form
  const std::optional<int32_t> marker_;
  const std::shared_ptr<const TokenMasks> masks_;
  const Begin begin_;
  std::vector<size_t> borders_;  // of each beginning of the trigger, the longest that it also ends with
  // Bytes of the trigger that have come, at first and after each free token; kNeverMore when an answer began
  // otherwise.
  std::vector<size_t> matched_{0};
  std::unique_ptr<TokenConstraint> form_;
  int64_t num_in_form_ = 0;  // tokens that it accepted
};

}  // namespace weft::constrain
