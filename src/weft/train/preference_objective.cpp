// PreferenceObjective: log-probabilities of rows, measured and trained.
#include "weft/train/preference_objective.h"

#include <algorithm>
#include <cstring>

#include "weft/base/file.h"

namespace weft {

Answer ReferredPairs::answer(int64_t pair, size_t half, double logp) const {
  const double by_reference = reference.empty() ? 0 : reference[size_t(pair) * 2 + half];
  return {.logp = logp, .reference = by_reference, .tokens = batches->pair(pair).targets[half]};
}

PairLoss PreferenceObjective::pair_loss(const ReferredPairs& pairs, int64_t pair, std::span<const double> logps,
                                        const Company& c) const {
  const Answer first = pairs.answer(pair, 0, logps[0]), second = pairs.answer(pair, 1, logps[1]);
  switch (config_.method) {
    case PreferenceMethod::none:
    case PreferenceMethod::dpo: break;
    case PreferenceMethod::orpo: return orpo_loss(config_, first, second, c.token_weight);
    case PreferenceMethod::reward: return score_pair_loss(config_, first, second);
    case PreferenceMethod::kto: {
      const AnswerLoss one = kto_loss(config_, first, pairs.batches->pair(pair).is_desirable, c.kl);
      return {one.loss, one.dlogp, 0};
    }
  }
  return dpo_loss(config_, first, second);
}

double PreferenceObjective::rule(int64_t first_row, int64_t num_rows, std::span<const double> logps,
                                 std::span<double> dlogps) const {
  double sum = 0;
  size_t at = 0;
  for (auto row = size_t(first_row); row < size_t(first_row + num_rows) && row < rows_->rows.size(); ++row)
    for (const PlacedItem& placed : rows_->rows[row]) {
      const PairLoss loss = pair_loss(pairs_, rows_->items[size_t(placed.item)].pair, logps.subspan(at, 2), company_);
      sum += loss.loss;
      if (!dlogps.empty()) dlogps[at] = loss.dchosen, dlogps[at + 1] = loss.drejected;
      at += 2;
    }
  return sum;
}

Var answers_loss(Context& context, Decoder& part, const MicroBatches::Slot& slot, int64_t seq_len,
                 std::span<const SequenceAt> sequences, Communicator& spread, const Var& x, const SequenceRule& rule,
                 float grad_scale, Brackets& brackets) {
  const std::vector<SequencePart> parts = sequence_parts(slot, seq_len, sequences);
  return part.result(context, slot.pass, x, brackets,
                     [&](const Partition& partition, const HeadView& head, const Var& hidden) {
                       return sequence_loss(partition.tensor, head, slot.batch.targets.data(), parts,
                                            int64_t(sequences.size()), spread, rule, grad_scale, hidden);
                     });
}

// Of rows from first_row on, as many as the slot has.
Var PreferenceObjective::sequences_loss(Context& context, Decoder& part, const MicroBatches::Slot& slot,
                                        const PairBatches::Rows& rows, int64_t first_row, const Var& x,
                                        const SequenceRule& rule, float grad_scale, Brackets& brackets) {
  std::vector<SequenceAt> sequences;
  for (int64_t row = 0; row < rows_in(slot) && first_row + row < int64_t(rows.rows.size()); ++row)
    for (const PlacedItem& placed : rows.rows[size_t(first_row + row)]) {
      const auto& [first, second] = rows.items[size_t(placed.item)].lengths;
      const int64_t begin = row * train_.seq_len + placed.begin;
      sequences.push_back({begin, first});
      sequences.push_back({begin + first, second});
    }
  return answers_loss(context, part, slot, train_.seq_len, sequences, spread_, x, rule, grad_scale, brackets);
}

Var PreferenceObjective::loss(Context& context, Decoder& part, const MicroBatches::Slot& slot, const Var& x,
                              float grad_scale, Brackets& brackets) {
  const SequenceRule rule = [&](std::span<const double> logps, std::span<double> dlogps) {
    return this->rule(slot.first_row, rows_in(slot), logps, dlogps);
  };
  return sequences_loss(context, part, slot, *rows_, slot.first_row, x, rule, grad_scale, brackets);
}

Var PreferenceObjective::evaluate(Context& context, Decoder& part, const MicroBatches::Slot& slot, const Var& x,
                                  Brackets& brackets) {
  const SequenceRule keep = [&](std::span<const double> logps, std::span<double>) {
    measured_.assign(logps.begin(), logps.end());
    return 0.0;
  };
  return sequences_loss(context, part, slot, *evaluated_, first_evaluated_, x, keep, 0, brackets);
}

std::vector<double> PreferenceObjective::measure(Trainer& trainer, const PairBatches& pairs,
                                                 const PairBatches::Rows& all, bool uses_adapters,
                                                 FunctionRef<bool()> is_over) {
  const Mesh& mesh = trainer.mesh();
  const int64_t rows = train_.micro_batch, at_once = rows * mesh.shape().dp(), count = int64_t(all.rows.size());
  Allocator memory;  // not part of the training's figures
  const Tensor found = memory.empty(DType::f64, {int64_t(all.items.size()), 2});
  double* const logps = found.data<double>();
  std::fill_n(logps, found.numel(), 0.0);
  Batch batch;
  constexpr int64_t kBetween = 8;  // batches, so that stages of a pipeline do not wait for each other after each
  // Every rank takes part in every batch, also where none of its rows is left: others may wait for it.
  for (int64_t begin = 0, b = 0; begin < count; begin += at_once, ++b) {
    if (b % kBetween == kBetween - 1 && is_over()) return {};
    evaluated_ = &all, first_evaluated_ = begin + mesh.data_rank() * rows;
    pairs.fill(all, first_evaluated_, int32_t(rows), batch);
    trainer.evaluate(batch, uses_adapters);
    if (!trainer.counts_loss() || measured_.empty() || spread_.rank() > 0) continue;
    size_t at = 0;
    for (int64_t row = first_evaluated_; row < std::min(first_evaluated_ + rows, count); ++row)
      for (const PlacedItem& placed : all.rows[size_t(row)])
        for (size_t half = 0; half < 2; ++half) logps[2 * size_t(placed.item) + half] = measured_[at++];
  }
  mesh.world().all_reduce(found);
  return {logps, logps + found.numel()};
}

void PreferenceObjective::measure_reference(Trainer& trainer, ReferredPairs& pairs) {
  const PairBatches& batches = *pairs.batches;
  pairs.reference = measure(trainer, batches, batches.rows_in_order(batches.num_pairs()), false);
}

PreferenceObjective::Company PreferenceObjective::company_of(const ReferredPairs& pairs,
                                                             std::span<const PairBatches::Item> items,
                                                             std::span<const double> logps) const {
  Company c;
  const auto count = double(items.size());
  if (config_.method == PreferenceMethod::orpo) {
    int64_t tokens = 0;
    for (const PairBatches::Item& item : items) tokens += pairs.batches->pair(item.pair).targets[0];
    c.token_weight = count / double(std::max<int64_t>(tokens, 1));
  }
  if (config_.method == PreferenceMethod::kto) {
    double sum = 0;
    for (size_t i = 0; i < items.size(); ++i) sum += logps[2 * i + 1] - pairs.answer(items[i].pair, 1, 0).reference;
    c.kl = std::max(0.0, sum / count);
  }
  return c;
}

bool PreferenceObjective::begin_step(Trainer& trainer, int64_t step) {
  rows_ = pairs_.batches->rows_of(step);
  std::vector<double> logps;
  if (config_.method == PreferenceMethod::kto) logps = measure(trainer, *pairs_.batches, *rows_, true);
  company_ = company_of(pairs_, rows_->items, logps);
  return true;
}

std::optional<Validation> PreferenceObjective::validate(Trainer& trainer, FunctionRef<bool()> is_over) {
  if (!valid_.batches) return {};
  const int64_t all = valid_.batches->num_pairs(), at_once = train_.micro_batch * trainer.mesh().shape().dp();
  const int64_t count = train_.eval_batches > 0 ? std::min(all, train_.eval_batches * at_once) : all;
  const PairBatches::Rows rows = valid_.batches->rows_in_order(count);
  const std::vector<double> logps = measure(trainer, *valid_.batches, rows, true, is_over);
  if (logps.empty()) return {};
  const Company company = company_of(valid_, rows.items, logps);
  double loss = 0, margins = 0;
  int64_t in_order = 0;
  for (int64_t i = 0; i < count; ++i) {
    const std::span<const double> both = std::span(logps).subspan(size_t(2 * i), 2);
    const double margin =
        reward(config_, valid_.answer(i, 0, both[0])) - reward(config_, valid_.answer(i, 1, both[1]));
    loss += pair_loss(valid_, i, both, company).loss;
    margins += margin, in_order += margin > 0;
  }
  const auto n = double(count);
  Validation v{loss / n};
  if (config_.method != PreferenceMethod::kto)
    v.preference = {double(in_order) / n, margins / n};  // there the second answer is to another prompt
  return v;
}

void save_reference(const ReferredPairs& pairs, const std::string& path) {
  const Digest content = pairs.batches->content();
  std::string bytes(content.value.begin(), content.value.end());
  const std::span<const std::byte> values = std::as_bytes(std::span(pairs.reference));
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size());
  write_file_atomically(FileSystem::real(), path, bytes);
}

void load_reference(ReferredPairs& pairs, const std::string& path) {
  const std::string bytes = read_file(path, uint64_t(1) << 32);
  Digest content;
  std::vector<double> values(size_t(pairs.batches->num_pairs()) * 2);
  const size_t head = content.value.size();
  if (bytes.size() == head + values.size() * sizeof(double)) std::memcpy(content.value.data(), bytes.data(), head);
  if (content != pairs.batches->content())
    throw Error(
        "{} is of other pairs than these {}, or was cut elsewhere: go on with the data and the train.seq_len that "
        "training began with, or start anew in another log.dir",
        path, pairs.batches->num_pairs());
  std::memcpy(values.data(), bytes.data() + head, values.size() * sizeof(double));
  pairs.reference = std::move(values);
}

}  // namespace weft
