// MtpDraft: a pass over the rows of the step before, then a row of each in every pass.
#include "weft/serve/mtp_draft.h"

#include <algorithm>
#include <numeric>

namespace weft {

MtpDraft::MtpDraft(StepRunner& runner, ForwardModel& model)
    : runner_(runner), model_(model), round_(model.config().vocab, model.config().vocab) {}

void MtpDraft::learn(std::span<const StepPart> parts) {
  learnt_.clear(), from_.clear();
  int64_t row = 0;
  for (const StepPart& part : parts) {
    const Sequence& s = *part.sequence;
    const auto came_true = [&](int64_t at) {
      return at < s.size() && (at < part.end() || s.tokens[size_t(at)] == s.draft_tokens[size_t(at - part.end())]);
    };
    const int64_t end_of_rows = part.end() + int64_t(s.draft_tokens.size());
    Rows rows{.id = s.id, .first = part.first, .next = {}, .blocks = s.blocks};
    for (int64_t at = part.first; at < end_of_rows && came_true(at); ++at) {
      from_.push_back(int32_t(row + at - part.first));
      // Of a text that ends here it does not matter what comes next, but that the row is there.
      rows.next.push_back(s.tokens[size_t(std::min(at + 1, s.size() - 1))]);
    }
    row += end_of_rows - part.first;
    learnt_.push_back(std::move(rows));
  }
}

void MtpDraft::begin(std::span<const DraftTask> tasks) {
  runner_.clear(), row_of_logits_.clear();
  int32_t row = 0;
  for (const Rows& rows : learnt_) {
    const auto task = std::ranges::find(tasks, rows.id, [](const DraftTask& w) { return w.sequence->id; });
    const bool is_asked = task != tasks.end() && rows.end() + 1 == task->sequence->size();
    runner_.add(rows.next, {}, rows.first, rows.blocks, is_asked ? 1 : 0);
    row += int32_t(rows.next.size());
    if (!is_asked) continue;
    round_.begin(*task->sequence, task->most);
    row_of_logits_.push_back(row - 1);
  }
}

// Of those who go on, the row of their newest draft token, at the position before it.
void MtpDraft::add_next() {
  runner_.clear(), from_.clear();
  for (const DraftRound::Running& r : round_.running()) {
    const Sequence& s = *r.sequence;
    runner_.add({&s.tokens.back(), 1}, {}, s.size() - 2, s.blocks, 1, 0, {}, round_.unread(r));
    from_.push_back(row_of_logits_[size_t(r.row())]);
  }
  row_of_logits_.resize(from_.size());
  std::iota(row_of_logits_.begin(), row_of_logits_.end(), 0);
}

void MtpDraft::propose(std::span<const DraftTask> tasks) {
  if (learnt_.empty()) return;
  begin(tasks);
  learnt_.clear();
  Tensor logits = runner_.predict(from_);
  while (!round_.running().empty()) {
    round_.choose(model_.context(), logits);
    if (round_.running().empty()) break;
    add_next();
    logits = runner_.predict(from_, round_.found_there());
  }
  round_.finish(model_.context());
}

}  // namespace weft
