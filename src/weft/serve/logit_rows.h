// LogitRows: the logits of a step for those who choose tokens of them, wherever they lie. Of rows on a device what is
// wished is found there, and no more than that comes; whole rows come where nothing less tells what is asked.
#pragma once
#include "weft/autograd/context.h"
#include "weft/serve/log_probs.h"
#include "weft/serve/sampler.h"
#include "weft/tensor/late_copy.h"

namespace weft {

class LogitRows {
 public:
  // logits [rows, V] f32, whose first `vocab` columns are tokens, stay until the next begin(). Nothing is waited for:
  // what follows can be wished while they are computed.
  void begin(const Tensor& logits, int64_t vocab);
  int64_t size() const { return int64_t(rows_.size()); }

  // Rows that the host reads where they lie need no wishes. Of others nothing is told but what is wished, each row by
  // one thread.
  bool are_here() const { return are_here_; }
  // The sampler's choice at this position. wants_log_prob: log_probs() will be asked about it, with at most kMostTop
  // alternatives.
  void wish_choice(int64_t row, Sampler& sampler, uint64_t position, const SamplingPast& past, bool wants_log_prob);
  // log_probs() of a token that is known, and at most kMostTop alternatives.
  static constexpr int32_t kMostTop = 1;
  void wish_token(int64_t row, int32_t token);
  void wish_whole(int64_t row) { rows_[size_t(row)].state = State::whole; }
  // Queues what finds what was wished.
  void find(Context& context);
  // After find(): no row has to be whole, so that logits may change before read().
  bool may_change() const;
  // On the device, what it will have found for find()'s wishes: [rows, bytes of FoundTokens] u8; until the next
  // find().
  const Tensor& found_there() const { return found_there_; }
  // A wished row's place among those.
  int32_t place(int64_t row) const { return int32_t(rows_[size_t(row)].at); }
  bool may_be_lost(int64_t row) const {
    return rows_[size_t(row)].wish.query.want == TokenQuery::Want::drawn_of_likely;
  }
  // Waits for all that was wished. have_changed: logits may be others since.
  void read(Context& context, bool have_changed = false);
  // Of a text one of whose tokens was lost, so many are read at once before any is left unread again: where one in as
  // many is lost, going ahead gains more.
  static constexpr int64_t kAtOnceAfterLoss = 32;
  // So many tokens of a row could be chosen that only the whole row would tell, which has changed since.
  bool is_lost(int64_t row) const { return rows_[size_t(row)].state == State::lost; }

  // Whether choose() reads what came before, which else was told with the wish.
  bool needs_past(int64_t row) const { return rows_[size_t(row)].state == State::whole; }
  // As Sampler::choose, by the sampler that the wish was made with.
  int32_t choose(int64_t row, Sampler& sampler, uint64_t position, const SamplingPast& past) const;
  // log_sum_exp of a row, whole or of which log-probabilities were wished.
  double log_sum(int64_t row) const;
  // Of a token, with more than kMostTop alternatives where the row is whole.
  TokenLogProbs log_probs(int64_t row, int32_t token, int32_t num_top, double log_sum, LogProbs& memory) const;
  std::span<const float> whole(int64_t row) const;

  // Rows that came whole from a device, since the beginning.
  int64_t num_copied() const { return num_copied_; }

 private:
  enum class State : uint8_t {
    unknown,
    wished,
    found,
    whole,
    changed,  // whole, after what the wish changes
    lost
  };
  struct Row {
    State state = State::unknown;
    TokenWish wish;
    int64_t at = 0;  // among what was found, or among copied rows
  };
  Tensor room_for_found(Context& context, int64_t queries);
  void take_found(bool have_changed);
  void copy_rows(Stream& stream);
  FoundTokens found(const Row& row) const;

  Tensor logits_, found_there_, copied_;
  Tensor kept_;  // found_there_, and more
  LateCopy found_later_;
  const std::byte* found_ = nullptr;
  int64_t vocab_ = 0, num_copied_ = 0;
  bool are_here_ = true;
  std::vector<Row> rows_;
  // Kept for the next step.
  std::vector<TokenQuery> queries_;
  std::vector<TokenChange> changes_;
  std::vector<uint32_t> masks_;
};

}  // namespace weft
