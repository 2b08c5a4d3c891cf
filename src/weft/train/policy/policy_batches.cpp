// PolicyBatches: prompts in their order, answers in rows, the longest first.
#include "weft/train/policy/policy_batches.h"

#include <algorithm>

#include "weft/base/ceil_div.h"
#include "weft/base/error.h"
#include "weft/base/philox.h"
#include "weft/data/best_fit.h"
#include "weft/data/permutation.h"
#include "weft/train/policy/rewards.h"

namespace weft {

std::vector<const Prompt*> answerable(const Recipe& recipe, const std::vector<Prompt>& prompts,
                                      std::string_view key) {
  const PolicyConfig& c = recipe.policy;
  // A context has room for a token behind a prompt. The last token is none that is read, but by a reward model.
  const int64_t length = recipe.train.seq_len + (c.reward == RewardKind::model ? 0 : 1);
  const int64_t room = std::min(length - c.max_tokens, recipe.model.context - 1);
  require_answers(c, prompts, key);
  std::vector<const Prompt*> all;
  for (const Prompt& prompt : prompts)
    if (int64_t(prompt.ids.size()) <= room) all.push_back(&prompt);
  if (all.empty())
    throw UsageError(
        "{}: none of {} prompts has at most {} tokens, which a row of {} leaves beside an answer of {}: write a "
        "larger "
        "train.seq_len or a smaller rl.max_tokens",
        key, prompts.size(), room, recipe.train.seq_len, c.max_tokens);
  return all;
}

PolicyBatches::PolicyBatches(const Recipe& recipe, const std::vector<Prompt>& prompts)
    : recipe_(recipe),
      prompts_(answerable(recipe, prompts, "data.train")),
      num_left_out_(int64_t(prompts.size() - prompts_.size())) {}

const Prompt& PolicyBatches::prompt_of(int64_t round, int64_t answer, int64_t attempt) const {
  const uint64_t kEpoch = name_hash("data.prompts_epoch"), kAttempt = name_hash("data.prompts_attempt");
  const int64_t of_round = answers_of_round() / recipe_.policy.answers, place = answer / recipe_.policy.answers;
  const int64_t sample = attempt == 0 ? round * of_round + place : place;
  const Philox4 bits = attempt == 0 ? philox(recipe_.train.seed, uint64_t(sample / num_prompts()), kEpoch)
                                    : philox(recipe_.train.seed, uint64_t(round), kAttempt + uint64_t(attempt));
  const Permutation shuffled(uint64_t(num_prompts()), to_number(bits));
  return *prompts_[size_t(shuffled(uint64_t(sample % num_prompts())))];
}

void PolicyBatches::begin(int64_t round, std::vector<Answer> answers) {
  check(int64_t(answers.size()) == answers_of_round(), "{} answers of a round of {}", answers.size(),
        answers_of_round());
  round_ = round, answers_ = std::move(answers);
  rows_.clear();
  for (int64_t update = 0; update < recipe_.policy.updates; ++update) rows_.push_back(pack(update));
}

// Without a divergence from a reference, answers that are worth what the others to their prompt are have no gradient;
// but where tokens choose experts, how they spread over these is learned from all.
bool PolicyBatches::is_learned(const Answer& answer) const {
  const bool has_gradient = answer.advantage != 0 || recipe_.policy.beta > 0 || recipe_.model.experts > 0;
  return answer.weight != 0 && has_gradient && answer.answer_tokens() > 0;
}

PolicyBatches::Rows PolicyBatches::pack(int64_t update) const {
  const auto step = std::span(answers_).subspan(size_t(update * answers_of_step()), size_t(answers_of_step()));
  std::vector<int32_t> learned, lengths;
  for (size_t i = 0; i < step.size(); ++i)
    if (is_learned(step[i])) learned.push_back(int32_t(i)), lengths.push_back(int32_t(step[i].tokens.size()) - 1);
  Rows rows;
  for (const std::vector<PlacedItem>& fitted : best_fit(lengths, int32_t(recipe_.train.seq_len))) {
    rows.emplace_back();
    for (const PlacedItem& p : fitted) rows.back().push_back({.answer = learned[size_t(p.item)], .begin = p.begin});
  }
  return rows;
}

std::span<const PolicyBatches::Placed> PolicyBatches::row(int64_t step, int64_t row) const {
  const Rows& rows = rows_[size_t(update_of(step))];
  if (row >= int64_t(rows.size())) return {};
  return rows[size_t(row)];
}

int64_t PolicyBatches::num_micro_batches(int64_t step, int64_t most) const {
  if (!has(step)) return most;
  const int64_t rows = int64_t(rows_[size_t(update_of(step))].size()), of_all_ranks = answers_of_step() / most;
  return std::max<int64_t>(ceil_div(rows, of_all_ranks), 1);
}

void PolicyBatches::fill(int64_t step, int32_t first_row, int32_t rows, Batch& batch) const {
  check(has(step), "step {} is of round {}, and the answers are of round {}", step, round_of(step), round_);
  const auto length = int32_t(recipe_.train.seq_len);
  batch.reset(rows, length);
  for (int32_t r = 0; r < rows; ++r) {
    BatchRow filled(batch, r);
    fill_row(step, row(step, first_row + r), filled);
  }
  batch.sequence_starts.push_back(rows * length);
}

void PolicyBatches::fill_row(int64_t step, std::span<const Placed> placed, BatchRow& row) const {
  for (const Placed& one : placed) {
    const Answer& a = answers_[size_t(update_of(step) * answers_of_step() + one.answer)];
    row.begin_sequence();
    for (size_t t = 0; t + 1 < a.tokens.size(); ++t) row.put(a.tokens[t], t + 1 >= a.prompt ? a.tokens[t + 1] : -1);
  }
  row.pad();
}

}  // namespace weft
