// Draft: a smaller model that says what answers may go on with, for the large one to check in one step.
// Source: Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", 2022.
#pragma once
#include <map>

#include "weft/serve/draft_round.h"
#include "weft/serve/scheduler.h"
#include "weft/serve/step_runner.h"

namespace weft {

// It keeps keys and values of its own, as long as nobody who is asked about needs the room.
class Draft {
 public:
  // vocab: of the large model. The draft is whole on one rank, that which speaks, and outlives this. At most so many
  // are asked about at a time, each of whom gets at most so many draft tokens.
  Draft(ForwardModel& model, int64_t vocab, int64_t num_blocks, int64_t block_tokens, const RowFormat& format,
        int64_t tokens_per_step, int64_t max_running, int64_t max_draft_tokens);

  // Writes the draft tokens of each, which has none. A sequence for which there is no room, or that knows tokens
  // which the draft does not, gets none.
  void propose(std::span<const DraftTask> tasks);

 private:
  struct Known {
    std::vector<int32_t> blocks;
    std::vector<int32_t> tokens;  // whose keys and values the blocks hold
    // Of a draft with states, behind so many tokens each: one more than draft tokens, so that it can go back behind
    // any.
    struct State {
      int32_t number;
      int64_t tokens = -1;
    };
    std::vector<State> states;
    bool is_used = false;  // in this step
  };
  void begin(const DraftTask& task);
  template <class Pool>
  int32_t take(Pool& pool);
  bool make_room(Known& known, int64_t tokens);
  bool take_states(Known& known);
  void forget_states_behind(Known& known);
  void add_rows(Known& known, std::span<const int32_t> rows, int64_t num_wanted, int32_t unread = -1);
  void release(Known& known);
  void catch_up();
  Tensor compute_next();
  void learn(const Sequence& sequence);
  void forget_unused();

  ForwardModel& model_;
  const int64_t tokens_per_step_, states_of_each_;
  StepRunner runner_;
  BlockPool pool_;
  StatePool states_;
  std::map<RequestId, Known> known_;
  DraftRound round_;
};

}  // namespace weft
