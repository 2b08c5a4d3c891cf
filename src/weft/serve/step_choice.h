// StepChoice: chooses the tokens that come behind the rows of a step.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "weft/serve/logit_rows.h"
#include "weft/serve/scheduler.h"

namespace weft {

// What comes of a part of a step.
struct PartChoice {
  int64_t first_row = 0;         // of its logits, among the step's
  int64_t first = 0;             // among the step's, the row behind which the answer goes on
  int64_t count = 0;             // tokens by which it went on, which the sequence has now
  int64_t num_accepted = 0;      // of them, those that had been drafted
  std::optional<int32_t> stop;   // what came after them, if that ended it
  std::string error;             // why there are no more
  bool is_refusal = false;       // as Finish has it
  bool is_lost = false;          // the row has to be computed again for its token to be chosen
  std::vector<double> log_sums;  // of the rows behind which these came, where log-probabilities are asked for
};

class StepChoice {
 public:
  StepChoice(Context& context, int64_t vocab) : context_(context), vocab_(vocab) {}

  // Behind the rows of this part, which end with those of its draft tokens, a token is chosen, or several where draft
  // tokens are accepted.
  static bool is_answered(const StepPart& part);

  // Of a step that was computed, with logits or, where all prompts are under way, none. What is wished of those on a
  // device is queued behind it and not waited for. All that went before is known to the sequences.
  void begin(std::span<const StepPart> parts, const Tensor& logits);
  // All tokens are found on the device, so that a step that needs nothing else can be computed before they are read.
  // Each of those sequences then has a last token that is unread.
  bool leave_unread(std::span<const StepPart> parts, bool has_states);
  const Tensor& found_there() const { return logits_.found_there(); }
  // Waits for what was found. Sequences get their tokens, in place of the unread one. Parts without a sequence are
  // left out.
  void choose(std::span<const StepPart> parts);

  bool has_logits() const { return has_logits_; }
  PartChoice& of(size_t part) { return choices_[part]; }
  const LogitRows& logits() const { return logits_; }

 private:
  // Of each thread, for the time of a call.
  struct Scratch {
    std::vector<uint32_t> allowed;
    std::vector<int32_t> said;
  };
  void each_part(std::span<const StepPart> parts,
                 FunctionRef<void(const StepPart& part, PartChoice& choice, Scratch& scratch)> work);
  void wish(const StepPart& part, const PartChoice& choice, Scratch& scratch);
  void choose(const StepPart& part, PartChoice& choice, Scratch& scratch);
  bool choose_next(Sequence& sequence, PartChoice& choice, Scratch& scratch);
  int32_t choose_token(Sequence& sequence, int64_t row, Scratch& scratch);

  Context& context_;
  int64_t vocab_;
  LogitRows logits_;
  bool has_logits_ = false, are_unread_ = false;
  std::vector<PartChoice> choices_;
  std::vector<Scratch> scratch_;
};

}  // namespace weft
