// StepRunner: one step of serving on every rank of a mesh, over a paged cache. The driver says what is computed, the
// others follow.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "weft/parallel/context/spread_attention.h"
#include "weft/pretrained/forward_model.h"
#include "weft/serve/adapter_store.h"
#include "weft/tensor/repeated_step.h"

namespace weft {

// Bytes that the keys and values of a token take, over all ranks of the mesh. Throws UsageError for a model of which
// no layer has any: a cache for it has no size.
int64_t cache_bytes_of_token(const ModelConfig& config, const MeshShape& mesh, const RowFormat& format);
// And those of a sequence's states, whatever its length, in layers that have such in place of keys and values.
int64_t state_bytes_of_sequence(const ModelConfig& config, const MeshShape& mesh, DType dtype);
inline int64_t state_bytes_of_sequence(const ForwardModel& model) {
  return state_bytes_of_sequence(model.config(), model.mesh().shape(), model.dtype());
}
// How many sequences may run, and how many states may be kept beside theirs for prompts that begin alike.
struct StateShares {
  int64_t running = 0, kept = 0;
  int64_t all() const { return running + kept; }
};
// Of at most `most` sequences, at least one, so that all states take at most half of a cache of so many bytes, if
// that can be. draft_tokens: of what each says next, in one step.
StateShares share_states(int64_t state_bytes, int64_t cache_bytes, int64_t most, int64_t draft_tokens,
                         bool keeps_prefixes);
// For each that runs, however large the cache is: its own, those of its draft tokens, and kept ones.
int64_t most_states_of_each(int64_t draft_tokens, bool keeps_prefixes);

class StepRunner {
 public:
  // The model outlives the runner; every rank of its mesh has one. Throws UsageError for a mesh whose ranks would do
  // the same work twice. format: of keys and values. num_states: of each layer that has such.
  StepRunner(ForwardModel& model, int64_t num_blocks, int64_t block_tokens, const RowFormat& format,
             int64_t num_states = 1, AdapterLoader adapters = {});
  // Keys and values in the model's dtype.
  StepRunner(ForwardModel& model, int64_t num_blocks, int64_t block_tokens)
      : StepRunner(model, num_blocks, block_tokens, {model.dtype()}) {}

  bool is_driver() const { return model_.is_driver(); }
  // This rank's: of each block the run of tokens that is its share, where cp spreads them.
  const PagedCache& cache() const { return cache_; }
  int64_t block_tokens() const { return cache_.block_tokens() * model_.mesh().shape().cp; }
  // Other ranks: does what the driver says until he says stop. Sleeps while he says nothing, without a limit.
  void follow();

  // The driver's: clear, add for each sequence, run; at last stop.
  void clear();
  // The next rows of a sequence, tokens and then draft tokens, which stand from position `first` on; what is before
  // them is in the cache. `blocks` are the sequence's, in order, and hold these rows too. The logits of the last
  // num_wanted are wanted. adapter: 0 for none; those who share one come one after the other. runs: of a model with
  // states, these rows, counted from 0, and the states below num_states that they begin with and leave. found: the
  // last token, whatever is written there, is this one of those that run() is told of; -1: it is as written.
  void add(std::span<const int32_t> tokens, std::span<const int32_t> draft_tokens, int64_t first,
           std::span<const int32_t> blocks, int64_t num_wanted, int32_t adapter = 0,
           std::span<const TokenRun> runs = {}, int32_t found = -1);
  // Logits [rows wanted, V] in the order in which they were added; valid until the next call. found: on the device,
  // as find_tokens leaves it, in rows that were asked of the step before; the host need not have read it. Two such
  // steps may be on their way at once: the third waits for the first.
  Tensor run(const Tensor& found = {});
  // Of a model with a part that predicts a token further on (ForwardModel::predict), which stands in the cache as a
  // layer behind the others: rows are added as for run(), of the tokens that come next, at the positions before them.
  // from: of each row, that of the last run() or predict() it goes on with. Logits as run() gives them, or none.
  // found: as for run().
  Tensor predict(std::span<const int32_t> from, const Tensor& found = {});
  // The hidden states of these rows, as float: [count, H] of those from `first` on.
  void hidden(int64_t first, int64_t count, std::vector<float>& states) const;
  void stop();
  // Between steps: every rank gets its part of an adapter, or drops it. What is wrong with it; empty when it is
  // there.
  std::string load_adapter(int32_t id, const std::string& folder);
  void drop_adapter(int32_t id);
  // The same where all ranks call it.
  std::string load_adapter_here(int32_t id, const std::string& folder) {
    return adapters_.load(world_, model_.context(), id, folder);
  }
  bool takes_adapters() const { return adapters_.takes_any(); }

 private:
  enum class Order : int32_t { step, predict, stop, load, drop };
  // Where the numbers of a step begin in a message.
  struct Head {
    int32_t words;
    Order order;
    int32_t tokens, wanted, sequences, blocks, runs, from, folder;
  };
  static constexpr int64_t kFirstWords = 1024;  // of a message that go at once
  static constexpr int32_t kElsewhere = -1;     // the place of a key that another rank holds
  struct Rows {
    int32_t begin, end, num_keys, first_block, adapter;
  };
  void send(Order order);
  Order receive();
  void reserve(int64_t words);
  void broadcast(int64_t begin, int64_t end);
  Tensor compute(Order order, const Tensor& found = {});
  Tensor place_found(int64_t count, const Tensor& found);
  int64_t likeness() const;
  int32_t set_of(int32_t adapter);
  int32_t place_of(const int32_t* blocks, int32_t position) const;
  void plan_blocks(int64_t rows_here);

  ForwardModel& model_;
  Communicator& world_;
  PagedCache cache_;
  AdapterStore adapters_;
  // What is said of a step, an id below 0 being -1 less a place among what was found; of an adapter its number is the
  // one wanted row, and the folder's name comes in words.
  std::vector<int32_t> ids_, wanted_, blocks_, from_, folder_;
  std::vector<Rows> sequences_;
  std::vector<TokenRun> runs_;
  // What follows from it.
  std::vector<int32_t> positions_, places_;
  std::vector<PagedSequence> paged_;
  std::vector<RowAdapters::Run> adapted_;
  std::vector<const LoraSet*> sets_;  // those that the step needs, on any rank
  // Where the cache is spread along cp: of this rank's sequences, and where among the needed ones each block is.
  std::optional<SpreadPlan> spread_;
  std::vector<int32_t> needed_blocks_, needed_at_;
  Tensor message_;
  StepTurns turns_;
};

}  // namespace weft
