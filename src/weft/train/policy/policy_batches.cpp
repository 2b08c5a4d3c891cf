// PolicyBatches: prompts in their order, answers in rows.
#include "weft/train/policy/policy_batches.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/base/philox.h"
#include "weft/data/permutation.h"
#include "weft/train/policy/rewards.h"

namespace weft {

std::vector<const Prompt*> answerable(const Recipe& recipe, const std::vector<Prompt>& prompts,
                                      std::string_view key) {
  const PolicyConfig& c = recipe.policy;
  // A context has room for a token behind a prompt.
  const int64_t room = std::min(recipe.train.seq_len + 1 - c.max_tokens, recipe.model.context - 1);
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

const Prompt& PolicyBatches::prompt_of(int64_t round, int64_t row) const {
  const uint64_t kPurpose = name_hash("data.prompts_epoch");
  const int64_t answers = recipe_.policy.answers;
  const int64_t sample = round * (rows_of_round() / answers) + row / answers, epoch = sample / num_prompts();
  const Philox4 bits = philox(recipe_.train.seed, uint64_t(epoch), kPurpose);
  const Permutation shuffled(uint64_t(num_prompts()), to_number(bits));
  return *prompts_[size_t(shuffled(uint64_t(sample % num_prompts())))];
}

void PolicyBatches::begin(int64_t round, std::vector<Row> rows) {
  check(int64_t(rows.size()) == rows_of_round(), "{} rows of a round of {}", rows.size(), rows_of_round());
  round_ = round, rows_ = std::move(rows);
}

void PolicyBatches::fill(int64_t step, int32_t first_row, int32_t rows, Batch& batch) const {
  check(has(step), "step {} is of round {}, and the answers are of round {}", step, round_of(step), round_);
  const auto length = size_t(recipe_.train.seq_len);
  batch.reset(rows, int32_t(length));
  for (int32_t r = 0; r < rows; ++r) {
    const Row& row = rows_[index_of(step, first_row + r)];
    const size_t start = size_t(r) * length;
    batch.sequence_starts.push_back(int32_t(start));
    for (size_t t = 0; t < length; ++t) {
      const bool is_used = t + 1 < row.tokens.size(), is_learned = is_used && t + 1 >= row.prompt && row.weight != 0;
      batch.ids[start + t] = is_used ? row.tokens[t] : 0;
      batch.targets[start + t] = is_learned ? row.tokens[t + 1] : -1;
      batch.positions[start + t] = int32_t(t);
      batch.num_targets += is_learned;
    }
  }
  batch.sequence_starts.push_back(rows * int32_t(length));
}

}  // namespace weft
