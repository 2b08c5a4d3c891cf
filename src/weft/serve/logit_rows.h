// LogitRows: a step's logits, from which tokens are chosen, on the host or on a device. On a device the answers to
// what is wished are computed there and only they are copied; a whole row is copied where nothing less will do.
#pragma once
#include "weft/autograd/context.h"
#include "weft/serve/log_probs.h"
#include "weft/serve/sampler.h"
#include "weft/tensor/late_copy.h"

namespace weft {

class LogitRows {
 public:
  // logits [rows, V] f32, of whose columns the first `vocab` are tokens; they must stay valid until the next begin().
  // Does not wait: wishes may be made while the logits are being computed.
  void begin(const Tensor& logits, int64_t vocab);
  int64_t size() const { return int64_t(rows_.size()); }

  // Whether the rows are in memory that the host reads: then no wishes are needed. Otherwise only what was wished can
  // be asked for. Each row is used by one thread.
  bool are_here() const { return are_here_; }
  // The token that the sampler chooses at this position. wants_log_prob: its log_probs() too, with at most kMostTop
  // alternatives.
  void wish_choice(int64_t row, Sampler& sampler, uint64_t position, const SamplingPast& past, bool wants_log_prob);
  // log_probs() of a given token, with at most kMostTop alternatives.
  static constexpr int32_t kMostTop = 1;
  void wish_token(int64_t row, int32_t token);
  void wish_whole(int64_t row) { rows_[size_t(row)].state = State::whole; }
  // Queues the kernels that compute what was wished.
  void find(Context& context);
  // After find(): no row has to be copied whole, so that the logits may be overwritten before read().
  bool may_change() const;
  // On the device, the results that find() computes: [rows, bytes of FoundTokens] u8; valid until the next find().
  const Tensor& found_there() const { return found_there_; }
  // A wished row's place among those.
  int32_t place(int64_t row) const { return int32_t(rows_[size_t(row)].at); }
  bool may_be_lost(int64_t row) const {
    return rows_[size_t(row)].wish.query.want == TokenQuery::Want::drawn_of_likely;
  }
  // Waits for the results. have_changed: the logits may have been overwritten since find().
  void read(Context& context, bool have_changed = false);
  // After a token of a text was lost (is_lost), so many of its tokens are read at once before reading is put off
  // again: where one token in as many is lost, going ahead still gains more than it costs.
  static constexpr int64_t kAtOnceAfterLoss = 32;
  // The candidates for this row did not fit what the device returns, and the row was overwritten before it was
  // copied.
  bool is_lost(int64_t row) const { return rows_[size_t(row)].state == State::lost; }

  // Whether choose() uses `past`; otherwise that of the wish counted.
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
