// MtpDraft: a model's own part that predicts a token further on (models/mtp.h) says what its answers may go on with.
// Source: DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 2.2: the part as a draft.
#pragma once
#include "weft/serve/draft_round.h"
#include "weft/serve/scheduler.h"
#include "weft/serve/step_runner.h"

namespace weft {

// It reads what the model left of every row, so each step is followed by a pass of this part over its rows, and its
// keys and values stand in the same blocks as the model's: prefixes that are found, and blocks that are given back,
// are those of both. Row t is made of the model's row t and token t + 1, and tells token t + 2. The last row of a
// prefix is as whoever computed it went on, which may be another token: draft tokens are then a little worse, no
// more.
//
// Further draft tokens come of the part's own rows, one behind the other.
class MtpDraft {
 public:
  // Both outlive this.
  MtpDraft(StepRunner& runner, ForwardModel& model);

  // After a step over these parts, whose sequences have got the tokens that were chosen, and have their draft tokens
  // yet.
  void learn(std::span<const StepPart> parts);
  // Before the next one: writes the draft tokens of each, which has none, and whose blocks have room for them. A
  // sequence whose last row came from no step gets none. Called before each step.
  void propose(std::span<const DraftTask> tasks);

 private:
  // Of a sequence, what the last step computed that is true.
  struct Rows {
    RequestId id;
    int64_t first;  // position
    std::vector<int32_t> next, blocks;
    int64_t end() const { return first + int64_t(next.size()); }
  };
  void begin(std::span<const DraftTask> tasks);
  void add_next();

  StepRunner& runner_;
  ForwardModel& model_;
  DraftRound round_;
  std::vector<Rows> learnt_;
  std::vector<int32_t> from_;           // of each row to compute
  std::vector<int32_t> row_of_logits_;  // among those computed last
};

}  // namespace weft
