// Engine: continues many prompts at once. It thinks in tokens; text, protocols and connections are the layer above.
#pragma once
#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weft/base/error.h"
#include "weft/serve/request.h"

namespace weft {

// The engine takes no more for now: the queue is full, or it is draining.
class Busy : public Error {
 public:
  Busy(std::string message, double retry_after_s) : Error(std::move(message)), retry_after_s_(retry_after_s) {}
  double retry_after_s() const { return retry_after_s_; }  // when it is worth trying again

 private:
  double retry_after_s_;
};

// A request that this engine cannot do at all, such as an embedding.
class Unsupported : public UsageError {
 public:
  using UsageError::UsageError;
};

// What does not change while the engine lives.
struct EngineLimits {
  int64_t vocab = 0;
  int64_t context = 0;      // prompt and answer together have at most so many tokens
  int64_t max_running = 0;  // requests in one step
  int64_t max_waiting = 0;  // requests in the queue beyond those that find a place in a step; one more is Busy
  int64_t labels = 0;       // of a model that scores texts and writes none; 0: it makes no scores
  bool is_encoder = false;  // it reads texts as wholes and writes none: the context holds one that has no answer

  bool writes_texts() const { return labels == 0 && !is_encoder; }
  int64_t most_prompt() const { return is_encoder ? context : context - 1; }  // else with a token of an answer

  int64_t max_open() const { return max_running + max_waiting; }
};

// A moment of the engine. Counts named `*_total` only grow.
struct EngineStats {
  int64_t running = 0, waiting = 0;
  int64_t kv_blocks = 0, kv_blocks_used = 0;  // used: held by requests; kept prefixes that nobody uses do not count
  int64_t kv_block_tokens = 0;                // of one block
  int64_t kv_tokens_used = 0;                 // of the used blocks' places, those that hold something
  int64_t prompt_tokens_total = 0, cached_tokens_total = 0, generated_tokens_total = 0;
  int64_t preemptions_total = 0;
  int64_t drafted_tokens_total = 0, accepted_tokens_total = 0;  // of speculation
  int64_t steps_total = 0;
  int64_t steps_ahead_total = 0;  // of these, answered while a device computed the next one

  // What stays of an engine that is no more.
  EngineStats past() const {
    EngineStats totals = *this;
    totals.running = totals.waiting = 0;
    totals.kv_blocks = totals.kv_blocks_used = totals.kv_tokens_used = 0;
    return totals;
  }
  // Of engines beside each other, or one after the other, whose blocks are alike.
  EngineStats& operator+=(const EngineStats& o) {
    running += o.running, waiting += o.waiting;
    kv_blocks += o.kv_blocks, kv_blocks_used += o.kv_blocks_used, kv_tokens_used += o.kv_tokens_used;
    kv_block_tokens = std::max(kv_block_tokens, o.kv_block_tokens);
    prompt_tokens_total += o.prompt_tokens_total, cached_tokens_total += o.cached_tokens_total;
    generated_tokens_total += o.generated_tokens_total, preemptions_total += o.preemptions_total;
    drafted_tokens_total += o.drafted_tokens_total, accepted_tokens_total += o.accepted_tokens_total;
    steps_total += o.steps_total, steps_ahead_total += o.steps_ahead_total;
    return *this;
  }
};

// Every method may be called from any thread and returns soon, except drain.
class Engine {
 public:
  virtual ~Engine() = default;

  virtual const EngineLimits& limits() const = 0;
  virtual std::vector<std::string> adapters() const { return {}; }
  // Reads an adapter between two steps, and then calls `told` from the engine's thread: `error` is what is wrong with
  // it, empty when requests may name it. Throws Unsupported where the engine takes none, and UsageError for a name
  // that is taken.
  using Told = std::function<void(const std::string& error)>;
  virtual void load_adapter(const std::string& /*name*/, const std::string& /*folder*/, Told /*told*/) {
    throw Unsupported("this engine takes no adapters");
  }
  // No new request may name it; those that have it finish. False when there is none of that name.
  virtual bool unload_adapter(const std::string& /*name*/) { return false; }

  // Events may reach the sink before this returns. Throws Busy when the queue is full, Unsupported, and UsageError
  // for a request that can never run: an empty or too long prompt, a token outside the vocabulary, an unknown
  // adapter. The sink then hears nothing. max_tokens beyond the context is cut to it.
  virtual RequestId submit(Request request, std::unique_ptr<RequestSink> sink) = 0;

  // The request stops before the next step and its cache is free at once; its sink gets on_finish. Does nothing for
  // an id that has finished or never was.
  virtual void cancel(RequestId id) = 0;

  virtual EngineStats stats() const = 0;

  // False: it has failed, apart from others that can go on, and refuses every request.
  virtual bool is_alive() const { return true; }

  // Takes no more requests and waits until those it has are finished. After `patience` the rest is cancelled.
  virtual void drain(std::chrono::milliseconds patience) = 0;
};

}  // namespace weft
