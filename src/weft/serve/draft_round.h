// DraftRound: answers that are drafted on, a token of each at a time.
#pragma once
#include <span>
#include <vector>

#include "weft/serve/logit_rows.h"
#include "weft/serve/sequence.h"

namespace weft {

// Chooses as the sequence's own sampler would, by the same random numbers and under the same constraint, from the
// logits of whoever drafts. A draft token is kept where it is the very token that the large model's logits give, so
// answers stay what they are; the nearer the two are, the more often that is so, whatever the sampling.
//
// Where a device chooses and no choice depends on those before it, all draft tokens of a sequence are computed before
// the first of them is read: each is made of what the device found of the one before.
class DraftRound {
 public:
  struct Running {
    Sequence* sequence;
    int64_t most;               // draft tokens
    int64_t num_tokens;         // that it had before there were any
    std::vector<int64_t> rows;  // of its logits, each time
    bool is_over = false;

    int64_t row() const { return rows.back(); }
  };

  // vocab: of the large model. own_vocab: of the logits; a token beyond them is the last draft token.
  DraftRound(int64_t vocab, int64_t own_vocab) : vocab_(vocab), own_vocab_(own_vocab) {}

  // Of a sequence without draft tokens; most is at least 1.
  void begin(Sequence& sequence, int64_t most) {
    running_.push_back({.sequence = &sequence, .most = most, .num_tokens = sequence.size()});
  }
  // Those that go on, whose tokens end with their draft tokens so far, of which the last may be unread.
  std::span<const Running> running() const { return running_; }
  // The next token of each, of logits [running, own_vocab] in this order. Who has enough is no longer running.
  void choose(Context& context, const Tensor& logits);
  // What unread tokens are, for StepRunner: of a sequence its place, -1 where it is known; and where they are.
  int32_t unread(const Running& running) const;
  Tensor found_there() const { return num_turns_ > 0 ? turns_[num_turns_ - 1].found_there() : Tensor(); }
  // When none is running any more: gives all their draft tokens.
  void finish(Context& context);

 private:
  LogitRows& next_turn();
  template <class Work>
  void each(Context& context, Work&& work);
  void read_at_once(Context& context);
  void choose_one(Running& running, std::vector<uint32_t>& allowed) const;
  void give_draft_tokens(const Running& running) const;

  const int64_t vocab_, own_vocab_;
  std::vector<Running> running_, over_;
  // Of each token of the round; those of the last may be fewer.
  std::vector<LogitRows> turns_;
  size_t num_turns_ = 0;
  bool are_unread_ = false;  // of this round, all
  std::vector<std::vector<uint32_t>> allowed_;
};

}  // namespace weft
