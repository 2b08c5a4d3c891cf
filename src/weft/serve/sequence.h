// Sequence: one request while an engine has it: its tokens, what the cache holds of them, and what it was told.
#pragma once
#include <algorithm>
#include <chrono>

#include "weft/base/error.h"
#include "weft/serve/engine.h"
#include "weft/serve/request.h"

namespace weft {

// What the choice behind this answer depends on, which the constraint has accepted. allowed: memory for what that
// then says.
inline SamplingPast past_of(const Request& request, std::span<const int32_t> prompt, std::span<const int32_t> said,
                            int64_t vocab, std::vector<uint32_t>& allowed) {
  SamplingPast past{.prompt = prompt, .answer = said, .bad_words = request.bad_words};
  if (int64_t(said.size()) < request.min_tokens) past.banned = request.stop_tokens;
  if (request.constraint) {
    allowed.resize(size_t(vocab + 31) / 32);
    request.constraint->fill(allowed);
    past.allowed = allowed, past.ends = request.stop_tokens;
  }
  return past;
}

// Throws UsageError where what the request allows, forbids and demands leaves no token to come next.
void check_choice(Sampler& sampler, const Request& request, const SamplingPast& past, int64_t vocab);
// The same of the answer's first token; or Unsupported where the model chooses none, but makes scores, or the other
// way round. Throws UsageError where what is weighed is nothing that the model has.
void check_outputs(const Request& request, const EngineLimits& limits);

struct Sequence {
  using Clock = std::chrono::steady_clock;

  Sequence(RequestId its_id, Request its_request, std::unique_ptr<RequestSink> its_sink)
      : id(its_id),
        request(std::move(its_request)),
        sink(std::move(its_sink)),
        tokens(std::move(request.prompt)),
        num_prompt(int64_t(tokens.size())),
        sampler(request.sampling) {}

  RequestId id;
  Request request;  // its prompt is in `tokens`
  std::unique_ptr<RequestSink> sink;
  std::vector<int32_t> tokens;  // the prompt, then the answer; the cache holds the first num_computed
  int64_t num_prompt;
  Sampler sampler;
  int32_t adapter = 0;  // its number; 0: none
  // The last of `tokens` is not known yet: a device has it, at this place among what was found; -1: all are known.
  int32_t unread = -1;

  // The scheduler's.
  int64_t num_computed = 0;
  std::vector<int32_t> blocks;  // of the cache, in order
  // Of a model with states: the one that is its own, where what it knows is, but where the next row reads `source`,
  // which it holds beside; -1: it has none.
  int32_t state = -1, source = -1;
  struct Mark {
    int64_t tokens;  // behind so many of its tokens, in the step under way, ...
    int32_t state;   // ... this state is left, which it holds
  };
  std::vector<Mark> marks;
  int64_t branch = 0;      // so many first tokens are others' too; 0: none, or their state was found
  int32_t last_kept = -1;  // the block behind which its answer's last state is kept; -1: none
  int64_t num_known = 0;   // of these, the first, which the pool can find again
  uint64_t turn = 0;       // within its priority: smaller ones go first
  bool was_admitted = false;
  int64_t num_cached = 0;             // of the prompt, found in the cache when it was first admitted
  std::vector<int32_t> draft_tokens;  // of what follows `tokens`: rows of the step under way that may not be accepted
  int64_t num_hoped = INT64_MAX;      // draft tokens that are worth their rows, by how the last ones fared
  float share_drafted = 1;            // of late, the steps with draft tokens of which one or more was accepted
  int64_t num_undrafted = 0;          // steps that had none since that is not worth it

  // The engine's.
  int64_t num_told = 0;        // entries of the prompt's log probabilities
  int64_t num_pooled = 0;      // tokens whose hidden states are in `pooled`
  std::vector<double> pooled;  // a sum
  int64_t num_completion = 0;  // tokens chosen, a stop token among them
  int64_t num_at_once = 0;     // of the next ones, those that are read before another step, since one was lost
  Clock::time_point submitted;
  std::optional<Clock::time_point> started, prefilled;

  int64_t size() const { return int64_t(tokens.size()); }
  int64_t num_answer() const { return size() - num_prompt; }
  std::span<const int32_t> prompt() const { return std::span(tokens).first(size_t(num_prompt)); }
  std::span<const int32_t> answer() const { return std::span(tokens).subspan(size_t(num_prompt)); }
  SamplingPast past(std::span<const int32_t> said, int64_t vocab, std::vector<uint32_t>& allowed) const {
    return past_of(request, prompt(), said, vocab, allowed);
  }
  // Tokens that are to be computed; not the last one of an answer.
  int64_t remaining() const {
    const bool has_ended = unread >= 0 && num_answer() >= request.max_tokens;
    return size() - num_computed - (has_ended ? 1 : 0);
  }
  // The first row that somebody waits for: what follows the last token, or a prompt's token that has not been scored
  // or pooled. The first entry of a scored prompt takes no row.
  int64_t first_wanted() const {
    if (request.pools_all()) return std::min(num_pooled, size() - 1);
    const bool is_scored = request.prompt_logprobs && num_told < num_prompt;
    return is_scored ? std::max<int64_t>(num_told - 1, 0) : size() - 1;
  }
};

}  // namespace weft
