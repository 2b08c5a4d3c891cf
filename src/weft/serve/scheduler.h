// Scheduler: which tokens of which sequences are computed next, and in which blocks of the cache. No threads, no
// model.
#pragma once
#include <deque>
#include <functional>
#include <map>

#include "weft/base/ceil_div.h"
#include "weft/kernels/recurrence_args.h"
#include "weft/serve/block_pool.h"
#include "weft/serve/sequence.h"
#include "weft/serve/state_pool.h"

namespace weft {

// A sequence and how many draft tokens it may get, at least one.
struct DraftTask {
  Sequence* sequence = nullptr;
  int64_t most = 0;
};

struct SchedulerOptions {
  BlockPoolOptions pool;
  int64_t max_running = 64;       // at most tokens_per_step of them run
  int64_t tokens_per_step = 256;  // rows of one step
  int64_t num_states = 0;         // of a model that has such: one for each that runs, and those that are kept
  int64_t max_draft_tokens = 0;   // for a sequence in one step; 0: nothing is drafted
  // Writes the draft tokens of all sequences of a step, whose blocks have room for as many as are asked for, where
  // some have none too; else each is drafted by what its own text said before.
  std::function<void(std::span<const DraftTask>)> propose = {};
};

// Rows [first, first + count) of a sequence, then those of its draft tokens; logits are wanted of those from
// first_wanted on.
struct StepPart {
  Sequence* sequence = nullptr;  // null: it was removed since, or its rows are worth nothing
  int64_t first = 0, count = 0, first_wanted = 0;
  std::vector<TokenRun> runs = {};  // of a model with states: the rows, counted from 0
  int64_t end() const { return first + count; }
  int64_t num_wanted() const {
    return end() - first_wanted + (sequence ? int64_t(sequence->draft_tokens.size()) : 0);
  }
};

// Sequences wait in the order of their priority, then their turn, and run until they are removed. One is admitted
// when the blocks of all its tokens fit, and then goes in pieces beside those that take a token a step, which come
// first: where there are any, pieces take no more rows together than make a good step. When blocks run out, the last
// in that order loses its own and waits again; what was computed of it stays known to the pool as long as nobody
// needs the blocks. A waiting sequence takes the place of running ones of a larger priority number.
//
// Rows that nobody else wants in a step are for draft tokens of what the answers say next. Which of them were
// accepted is told by accept(); blocks that held only others are given back. An answer that hardly ever says what is
// drafted is drafted in some of its steps only.
//
// Of a model with states each draft token needs a state for itself, and a prefix is found where a state was kept
// behind one of its blocks. That is behind the last full block of each prompt but for its very end; behind that of
// each answer, moving on with it; and where a prompt turns out to begin like others. Source: Pan et al., "Marconi:
// Prefix Caching for the Era of Hybrid LLMs", 2024.
//
// Turns are start times of fair queueing: a user's sequence begins when his last one would have ended, had he been
// alone. Source: Goyal, Vin and Cheng, "Start-time Fair Queuing", 1996. Each admission moves the clock on, so that
// those who come later cannot pass anybody for ever.
class Scheduler {
 public:
  explicit Scheduler(const SchedulerOptions& options);

  // A longer sequence can never run.
  int64_t most_tokens() const { return pool_.num_blocks() * pool_.block_tokens(); }

  // Puts it in the queue. It has at most most_tokens() until it is removed.
  void add(std::unique_ptr<Sequence> sequence);
  // What a step with answers is filled up to with prompts, though these get kFewestPromptRows at least.
  void set_good_rows(int64_t rows) { good_rows_ = rows; }
  static constexpr int64_t kFewestPromptRows = 64;
  // The next step, to be followed by commit(); empty when nothing runs. Valid until the next call of anything.
  std::span<const StepPart> plan();
  // The cache now holds what the plan said, of which no token is unread. Tokens may be appended to sequences whose
  // rows were all computed.
  void commit();
  // Of a sequence that is here: its last token, whose row may have been computed, is to be computed again; rows of
  // the plan are worth nothing. Of a model with states this cannot be.
  void repeat_last(Sequence& sequence);
  // Of a sequence with draft tokens, to which tokens were appended: the first `count` draft tokens are among them.
  void accept(Sequence& sequence, int64_t count);
  // Frees its blocks; running or waiting.
  std::unique_ptr<Sequence> remove(const Sequence& sequence);
  // Null for an id that is not here.
  Sequence* find(RequestId id) const;
  // Any that is here; null when there is none.
  Sequence* any() const;

  bool has_adapter(int32_t adapter) const;  // some sequence that is here

  int64_t num_running() const { return int64_t(running_.size()); }
  int64_t num_waiting() const { return int64_t(waiting_.size()); }
  int64_t max_running() const { return options_.max_running; }
  int64_t num_preemptions() const { return num_preemptions_; }
  int64_t num_tokens_held() const;  // places of used blocks that hold something
  const BlockPool& pool() const { return pool_; }
  const StatePool& states() const { return states_; }

 private:
  using Line = std::deque<std::unique_ptr<Sequence>>;
  static bool goes_before(const Sequence& a, const Sequence& b);
  static void insert(Line& line, std::unique_ptr<Sequence> sequence);
  int64_t blocks_for(int64_t tokens) const { return ceil_div(tokens, pool_.block_tokens()); }
  std::span<const int32_t> tokens_of(const Sequence& sequence, int64_t block) const;
  int32_t parent_of(const Sequence& sequence, int64_t block);
  bool grow();
  void admit();
  int64_t prompt_rows(int64_t num_answers) const;
  bool has_rows_for(const Sequence& sequence) const;
  int32_t take_block();
  bool keeps_states() const { return pool_.keeps_prefixes() && options_.num_states > options_.max_running; }
  int64_t last_of_prompt(const Sequence& sequence) const;
  bool take_states(Sequence& sequence);
  void release_states(Sequence& sequence);
  void set_runs(StepPart& part);
  void keep_states(Sequence& sequence);
  bool make_room();
  bool try_admit(Sequence& sequence);
  void preempt_last();
  void release(Sequence& sequence);
  void drop_part(const Sequence& sequence);
  int64_t max_draft_tokens(Sequence& sequence, int64_t left) const;
  void propose(int64_t left);
  int64_t places_for_draft_tokens(Sequence& sequence, int64_t most);
  void fit_draft_tokens(Sequence& sequence);
  void release_blocks_behind(Sequence& sequence, int64_t tokens);
  void keep_full_blocks(Sequence& sequence);
  void set_turn(Sequence& sequence);

  SchedulerOptions options_;
  BlockPool pool_;
  StatePool states_;
  Line waiting_, running_;
  std::vector<StepPart> parts_;
  std::vector<DraftTask> tasks_;
  uint64_t clock_ = 0;
  std::map<std::string, uint64_t> ends_;  // of the last sequence of each user
  int64_t num_preemptions_ = 0;
  int64_t good_rows_ = 0;
};

}  // namespace weft
