// GuessRound: answers that are guessed on, a token of each at a time.
#pragma once
#include <span>
#include <vector>

#include "weft/serve/logit_rows.h"
#include "weft/serve/sequence.h"

namespace weft {

// Chooses as the sequence's own sampler would, by the same random numbers and under the same constraint, from the
// logits of whoever guesses. A guess is kept where it is the very token that the large model's logits give, so
// answers stay what they are; the nearer the two are, the more often that is so, whatever the sampling.
class GuessRound {
 public:
  struct Running {
    Sequence* sequence;
    int64_t most;        // guesses
    int64_t num_tokens;  // that it had before there were any
    int64_t row = 0;     // of its logits, the last time
    bool is_over = false;
  };

  // vocab: of the large model. own_vocab: of the logits; a token beyond them is the last guess.
  GuessRound(int64_t vocab, int64_t own_vocab) : vocab_(vocab), own_vocab_(own_vocab) {}

  // Of a sequence without guesses; most is at least 1.
  void begin(Sequence& sequence, int64_t most) {
    running_.push_back({.sequence = &sequence, .most = most, .num_tokens = sequence.size()});
  }
  // Those that go on, whose tokens end with their guesses so far.
  std::span<const Running> running() const { return running_; }
  // The next token of each, of logits [running, own_vocab] in this order. Who has enough gets its guesses and is no
  // longer running.
  void choose(Context& context, const Tensor& logits);

 private:
  void choose_one(Running& running, std::vector<uint32_t>& allowed) const;

  const int64_t vocab_, own_vocab_;
  std::vector<Running> running_;
  LogitRows logits_;
  std::vector<std::vector<uint32_t>> allowed_;
};

}  // namespace weft
