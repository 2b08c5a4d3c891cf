// LogitRows: all wishes in one call of the device, then the rows that have to be whole.
#include "weft/serve/logit_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "weft/base/error.h"
#include "weft/tensor/repeated_step.h"

namespace weft {

void LogitRows::begin(const Tensor& logits, int64_t vocab) {
  logits_ = logits, vocab_ = vocab;
  are_here_ = logits.device() != Device::cuda;
  rows_.resize(size_t(logits.dim(0)));
  for (size_t i = 0; i < rows_.size(); ++i)
    rows_[i].state = are_here_ ? State::whole : State::unknown, rows_[i].at = int64_t(i);
}

void LogitRows::wish_choice(int64_t row, Sampler& sampler, uint64_t position, const SamplingPast& past,
                            bool wants_log_prob) {
  if (are_here_) return;
  Row& r = rows_[size_t(row)];
  const bool is_wished = sampler.wish(position, past, vocab_, r.wish);
  const bool is_changed = is_wished && (!r.wish.changes.empty() || !r.wish.mask.empty());
  r.state = is_wished && !(is_changed && wants_log_prob) ? State::wished : State::whole;
  r.wish.query.wants_log_sum = wants_log_prob;
}

void LogitRows::wish_token(int64_t row, int32_t token) {
  if (are_here_) return;
  Row& r = rows_[size_t(row)];
  r.state = State::wished;
  r.wish.changes.clear(), r.wish.mask.clear();
  r.wish.query = {.want = TokenQuery::Want::given, .given = token, .wants_log_sum = true};
}

// Where it stays: what the device reads of it next, it reads before it is written again.
Tensor LogitRows::room_for_found(Context& context, int64_t queries) {
  constexpr int64_t kBytes = sizeof(FoundTokens);
  if (!kept_ || kept_.dim(0) < queries) kept_ = context.empty(DType::u8, {queries, kBytes});
  return kept_.slice_rows(0, queries);
}

void LogitRows::find(Context& context) {
  found_there_ = {};
  if (are_here_) return;
  queries_.clear(), changes_.clear(), masks_.clear();
  int32_t num_masks = 0;
  for (size_t i = 0; i < rows_.size(); ++i) {
    Row& r = rows_[i];
    if (r.state != State::wished) continue;
    r.at = int64_t(queries_.size());
    TokenQuery& q = queries_.emplace_back(r.wish.query);
    q.row = int32_t(i), q.first_change = int32_t(changes_.size());
    q.mask = r.wish.mask.empty() ? -1 : num_masks++;
    changes_.insert(changes_.end(), r.wish.changes.begin(), r.wish.changes.end());
    masks_.insert(masks_.end(), r.wish.mask.begin(), r.wish.mask.end());
  }
  if (queries_.empty()) return;
  found_there_ = room_for_found(context, int64_t(queries_.size()));
  const FindTokensArgs args{.found = found_there_,
                            .logits = logits_,
                            .vocab = vocab_,
                            .queries = queries_,
                            .changes = changes_,
                            .masks = masks_};
  {
    const RepeatedStep step(context.stream, this, int64_t(queries_.size()));
    context.kernels.find_tokens(context.stream, args);
  }
  found_later_.start(context.stream, found_there_);
}

bool LogitRows::may_change() const {
  return !are_here_ && std::ranges::none_of(rows_, [](const Row& r) { return r.state == State::whole; });
}

void LogitRows::read(Context& context, bool have_changed) {
  if (are_here_) return;
  if (found_there_) take_found(have_changed);
  copy_rows(context.stream);
}

void LogitRows::take_found(bool have_changed) {
  found_ = found_later_.wait();
  for (Row& r : rows_) {
    if (r.state != State::wished) continue;
    if (found(r).token != FoundTokens::kManyTokens)
      r.state = State::found;
    else if (have_changed)
      r.state = State::lost;
    else
      r.state = r.wish.query.changes_logits() ? State::changed : State::whole;
  }
}

// Neighbours together.
void LogitRows::copy_rows(Stream& stream) {
  const auto is_copied = [](const Row& r) { return r.state == State::whole || r.state == State::changed; };
  const int64_t count = std::ranges::count_if(rows_, is_copied);
  num_copied_ += count;
  copied_ = count > 0 ? stream.host_memory().empty(DType::f32, {count, logits_.dim(1)}) : Tensor{};
  int64_t at = 0;
  for (int64_t begin = 0; begin < size();) {
    int64_t end = begin;
    while (end < size() && is_copied(rows_[size_t(end)])) rows_[size_t(end)].at = at + end - begin, ++end;
    if (end > begin)
      stream.copy(copied_.slice_rows(at, end - begin), logits_.slice_rows(begin, end - begin)), at += end - begin;
    begin = std::max(end, begin + 1);
  }
}

FoundTokens LogitRows::found(const Row& row) const {
  FoundTokens found;
  std::memcpy(&found, found_ + row.at * int64_t(sizeof(found)), sizeof(found));
  return found;
}

std::span<const float> LogitRows::whole(int64_t row) const {
  const Row& r = rows_[size_t(row)];
  check(r.state == State::whole || r.state == State::changed, "row {} of the logits was not asked for", row);
  const Tensor& from = are_here_ ? logits_ : copied_;
  return {from.data<float>() + r.at * from.dim(1), size_t(vocab_)};
}

int32_t LogitRows::choose(int64_t row, Sampler& sampler, uint64_t position, const SamplingPast& past) const {
  const Row& r = rows_[size_t(row)];
  if (r.state == State::found) return Sampler::choose(found(r));
  return r.state == State::changed ? sampler.choose_changed(whole(row), position)
                                   : sampler.choose(whole(row), position, past);
}

double LogitRows::log_sum(int64_t row) const {
  const Row& r = rows_[size_t(row)];
  if (r.state != State::found) return log_sum_exp(whole(row));
  const FoundTokens f = found(r);
  return double(f.highest) + std::log(f.total_at_one);
}

TokenLogProbs LogitRows::log_probs(int64_t row, int32_t token, int32_t num_top, double log_sum,
                                   LogProbs& memory) const {
  const Row& r = rows_[size_t(row)];
  if (r.state != State::found) return memory.of(whole(row), token, num_top, log_sum);
  const FoundTokens f = found(r);
  check(token == f.token, "of token {} nothing was found", token);
  check(num_top <= kMostTop, "{} alternatives of a row that is not whole", num_top);
  const TokenLogProbs own = LogProbs::of(f.logit, token, f.num_likelier, log_sum);
  return num_top > 0 ? memory.beside(own, f.likeliest, f.highest, log_sum) : own;
}

}  // namespace weft
