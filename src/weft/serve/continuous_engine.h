// ContinuousEngine: many requests in every step, over a paged cache of keys and values, on any mesh of ranks.
#pragma once
#include <deque>
#include <optional>

#include "weft/serve/draft.h"
#include "weft/serve/mesh_engine.h"
#include "weft/serve/mtp_draft.h"
#include "weft/serve/step_choice.h"
#include "weft/serve/step_cost.h"

namespace weft {

struct ContinuousOptions {
  int64_t kv_blocks = 0;  // 0: as many as kv_bytes hold
  int64_t kv_bytes = 0;   // over all ranks
  int64_t block_tokens = 16;
  std::optional<RowFormat> kv_format = {};  // none: numbers in the model's dtype; of the draft's cache too
  int64_t max_running = 64;                 // at most tokens_per_step
  // For models with recurrent states: how many there are for kept prefixes and for draft tokens, beside one for each
  // running request. none: as many as kv_bytes hold; with kv_blocks, for each running request those of its draft
  // tokens and one more.
  std::optional<int64_t> kept_states = {};
  int64_t tokens_per_step = 256;
  int64_t max_waiting = 256;
  bool keeps_prefixes = true;
  // On a device whose tokens are chosen there, a step is computed while the host reads and tells those of the one
  // before, as long as nothing is drafted.
  bool goes_ahead = true;
  int64_t max_draft_tokens = 0;  // of what each answer says next, in one step; 0: none
  // Drafts what answers say next; null: the model's own part for that does (ModelConfig::mtp_layers), or else they
  // are drafted from what their texts said before. Whole, on the driver; outlives the engine.
  ForwardModel* draft = nullptr;
  AdapterLoader load_adapter = {};  // none: there are no adapters
  // Names and folders of those that are there from the start.
  std::vector<std::pair<std::string, std::string>> adapters = {};
  int64_t most_adapters = 64;  // at once, those that are leaving among them
};

// How the cache of a model holds keys and values.
inline RowFormat kv_format_of(const ContinuousOptions& o, const ForwardModel& model) {
  return o.kv_format.value_or(RowFormat{model.dtype()});
}

// What a request gets is a function of itself: of its prompt, its adapter, its options and its seed, and not of its
// company, of how its prompt is cut, of prefixes found, of preemption or of draft tokens. A draft token is accepted
// when it is the very token that is chosen in its place, so drafting changes nothing but the number of steps; this is
// exact whatever the sampling. When a step fails on a model of one rank, its requests end with the error and the
// others go on; on a mesh, and where layers beyond memory come no more, all end with it, and run() throws.
class ContinuousEngine : public MeshEngine {
 public:
  // Every rank of the model's mesh makes one with the same options and runs it. The model outlives the engine. Throws
  // UsageError for a mesh that cannot serve and for a cache without a block.
  ContinuousEngine(ForwardModel& model, const ContinuousOptions& options);

  bool is_driver() const override { return runner_.is_driver(); }

  // The context is the model's, or what the cache holds where that is less.
  std::vector<std::string> adapters() const override;
  void load_adapter(const std::string& name, const std::string& folder, Told told) override;
  bool unload_adapter(const std::string& name) override;

 private:
  struct Ended {
    SequencePtr sequence;
    Finish finish;
  };
  // Numbers are never used again, so nothing that was computed with an adapter is found by the next of its name.
  struct Adapter {
    enum class State : uint8_t { loading, ready, leaving };
    std::string name, folder;
    int32_t id = 0;
    State state = State::ready;
    Told told = {};
  };
  void add_first_adapters();
  Adapter* find_adapter(Adapter::State state, const std::string* name = nullptr);
  const Adapter* find_adapter(Adapter::State state, const std::string* name = nullptr) const;
  int32_t adapter_number(const std::string& name) const override;
  bool has_other_news() const override;
  void load_adapters();
  void drop_adapters();
  bool take_requests() override;
  void step() override;
  void follow() override { runner_.follow(); }
  void stop_others() override { runner_.stop(); }
  void plan();
  Tensor compute();
  void go_on(const Tensor& logits);
  bool goes_alone() const;
  void answer();
  void attempt(FunctionRef<void()> work);
  void fail(const Error& error);
  void settle();
  void tell_ends();
  void read(const StepPart& part, const PartChoice& choice);
  void repeat_last(Sequence& s);
  void drop_parts(const Sequence& s);
  void pool(Sequence& s, const StepPart& part, int64_t first_row);
  void embed(Sequence& s, int64_t row);
  void weigh(Sequence& s, int64_t row);
  void score_prompt(Sequence& s, const StepPart& part, int64_t first_row);
  void end(Sequence& s, Finish finish);
  void tell_stats();
  void end_all(FinishReason reason, const std::string& error) override;

  ForwardModel& model_;
  const ContinuousOptions options_;
  StepRunner runner_;
  std::unique_ptr<Draft> draft_;  // or
  std::unique_ptr<MtpDraft> mtp_;
  Scheduler scheduler_;
  StepCost cost_;
  bool is_behind_ = false;  // a device may still be at a step before, since nobody waited for it

  // Of the engine's thread.
  struct Step {
    std::vector<StepPart> parts;  // none: there is no such step
    Clock::time_point began;
    int64_t num_rows = 0;
  };
  Step next_, computed_;        // that is computed next; that was, and is not answered yet
  Clock::time_point answered_;  // when one was at last
  std::vector<Ended> ended_;    // in this step, not yet told
  StepChoice choice_;
  LogProbs log_probs_;
  std::vector<float> hidden_, vector_;
  EngineStats totals_;

  // With the lock.
  std::deque<Adapter> adapters_;
  int32_t last_adapter_ = 0;
};

}  // namespace weft
