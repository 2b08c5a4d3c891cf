// Request: what an engine is asked to continue, all in tokens, and the events that tell what becomes of it.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/pretrained/embedding_rule.h"
#include "weft/serve/log_probs.h"
#include "weft/serve/sampler.h"

namespace weft {

namespace api {
struct OutputForm;
}

// Which tokens may come next, for output that must have a form. Belongs to one request and is used by one thread at a
// time. It begins after the prompt.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  // Token t may come next when bit t % 32 of allowed[t / 32] is set; all words are written. Of an end token (see
  // Request::stop_tokens) it is set where the form is complete. None is where no token spells how it goes on.
  virtual void fill(std::span<uint32_t> allowed) = 0;
  virtual void accept(int32_t token) = 0;       // it was allowed
  virtual void rewind(int64_t num_tokens) = 0;  // forgets the last accepted ones: draft tokens that were not accepted
  // The end of what it accepted, for messages.
  virtual std::string said() const { return {}; }
  // What it was made from, so that another process can make it; null: this one cannot be told.
  virtual const api::OutputForm* form() const { return nullptr; }
};

// Stop strings, echo and n belong to the layer above: it sees text, knows the prompt, and submits n requests.
struct Request {
  enum class Kind : uint8_t { generate, embed, weigh };
  Kind kind = Kind::generate;
  std::vector<int32_t> prompt;  // at least one token
  std::string adapter;          // empty: the model itself
  int64_t second_text = 0;  // where the second of two texts begins, for models that tell them apart; 0: there is one
  // Of Kind::embed: how its vector is made of hidden states, and whether that is divided by its length.
  Pooling pooling = Pooling::last;
  bool normalises = true;
  // Of Kind::weigh: tokens whose logits behind the prompt are wanted, or labels, of a model that scores texts.
  std::vector<int32_t> weighed;

  int64_t max_tokens = 16;  // 0: only the prompt's log probabilities are wanted
  int64_t min_tokens = 0;   // until there are that many, no stop token is chosen, but where a constraint has no other
  SamplingOptions sampling;
  // Each ends the answer. The model's end tokens are among them; the layer above leaves them out where they are to be
  // ignored.
  std::vector<int32_t> stop_tokens;
  std::vector<std::vector<int32_t>> bad_words;  // sequences that never appear in the answer
  std::unique_ptr<TokenConstraint> constraint;  // null: none

  // How many alternatives are reported with each token of the answer and of the prompt. 0: only the token's own log
  // probability; nullopt: nothing.
  std::optional<int32_t> logprobs, prompt_logprobs;

  int32_t priority = 0;  // smaller ones go first
  std::string user;      // who asks, for fairness; empty: nobody

  // Its vector is made of what all tokens of the prompt are left at.
  bool pools_all() const { return kind == Kind::embed && pooling != Pooling::last; }
};

using RequestId = uint64_t;

// A token of the answer. `log_probs` is empty unless asked for, and valid during the call.
struct TokenEvent {
  int32_t token;
  TokenLogProbs log_probs;
};

enum class FinishReason : uint8_t { stop, length, cancelled, error };

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;      // of the prompt: found in the cache of prefixes
  int64_t completion_tokens = 0;  // as chosen, a stop token among them
};

struct RequestTimes {
  double queued_s = 0, prefill_s = 0, decode_s = 0;
};

struct Finish {
  FinishReason reason = FinishReason::stop;
  std::optional<int32_t> stop_token;  // the one that ended it, which no TokenEvent told
  std::string error;                  // one sentence that a client may read
  bool is_refusal = false;            // the error is the request's own: it asks for what cannot be
  double retry_after_s = 0;           // of an error: when it is worth trying again; 0: it is not known to pass
  Usage usage;
  RequestTimes times;
};

// Told what becomes of one request, from the engine's thread, in order. Calls return soon and do not throw; they may
// call Engine::cancel. The engine owns the sink and destroys it some time after on_finish.
class RequestSink {
 public:
  virtual ~RequestSink() = default;
  // With prompt_logprobs, before any token: an entry for each token of the prompt, the first of them empty. A long
  // prompt may come in several calls.
  virtual void on_prompt(std::span<const TokenLogProbs>) {}
  virtual void on_tokens(std::span<const TokenEvent> tokens) = 0;
  virtual void on_vector(std::span<const float>) {}  // of Kind::embed, [D]; of Kind::weigh, a logit of each token
  virtual void on_finish(const Finish& finish) = 0;  // exactly once; the last call
};

}  // namespace weft
