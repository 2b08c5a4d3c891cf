// TriggeredConstraint: an answer is free until it says some text, and has a form from there on.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/serve/constrain/token_mask.h"
#include "weft/serve/request.h"

namespace weft::constrain {

class TriggeredConstraint : public TokenConstraint {
 public:
  struct Trigger {
    std::string text;
    // It is the form's beginning too, and counts only where nothing but white space has come before it.
    bool is_opening = false;
  };
  // begin: the constraint of what comes behind the trigger, of which `said` has come in the same token; null when
  // that cannot go on to have the form: then the answer stays free. marker: the control token that is spelled as the
  // trigger, if there is one; before an opening one, the token behind which the answer begins.
  using Begin = std::function<std::unique_ptr<TokenConstraint>(std::string_view said)>;
  TriggeredConstraint(Trigger trigger, std::optional<int32_t> marker, std::shared_ptr<const TokenMasks> masks,
                      Begin begin);

  void fill(std::span<uint32_t> allowed) override;
  void accept(int32_t token) override;
  void rewind(int64_t num_tokens) override;

 private:
  static constexpr size_t kNeverMore = SIZE_MAX;
  size_t next(size_t matched, char byte) const;  // of the trigger's text

  const std::string trigger_;
  const bool is_opening_;
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
