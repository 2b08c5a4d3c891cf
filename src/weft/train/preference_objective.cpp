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
    case PreferenceMethod::kto: {
      const AnswerLoss one = kto_loss(config_, first, pairs.batches->pair(pair).is_desirable, c.kl);
      return {one.loss, one.dlogp, 0};
    }
  }
  return dpo_loss(config_, first, second);
}

double PreferenceObjective::rule(int64_t step, int64_t first_row, std::span<const double> logps,
                                 std::span<double> dlogps) const {
  double sum = 0;
  for (size_t row = 0; 2 * row < logps.size(); ++row) {
    const int64_t pair = pairs_.batches->index_of(step, first_row + int64_t(row));
    const PairLoss loss = pair_loss(pairs_, pair, logps.subspan(2 * row, 2), company_);
    sum += loss.loss;
    if (!dlogps.empty()) dlogps[2 * row] = loss.dchosen, dlogps[2 * row + 1] = loss.drejected;
  }
  return sum;
}

Var answers_loss(Context& context, Decoder& part, const MicroBatches::Slot& slot, int64_t seq_len,
                 Communicator& spread, const Var& x, const SequenceRule& rule, float grad_scale, Brackets& brackets) {
  const int64_t half = seq_len / 2, first = slot.first_row * seq_len;
  std::vector<SequencePart> parts;
  for (const TokenSpan& span : slot.tokens)
    for (int64_t at = 0; at < span.count;) {
      const int64_t token = span.first_token - first + at, count = std::min(half - token % half, span.count - at);
      parts.push_back({.sequence = token / half, .begin = span.begin + at, .count = count});
      at += count;
    }
  const int64_t num_sequences = slot.pass.num_tokens * spread.size() / half;
  return part.result(context, slot.pass, x, brackets,
                     [&](const Partition& partition, Param& weight, float softcap, const Var& hidden) {
                       return sequence_loss(partition.tensor, {weight, softcap}, slot.batch.targets.data(), parts,
                                            num_sequences, spread, rule, grad_scale, hidden);
                     });
}

Var PreferenceObjective::loss(Context& context, Decoder& part, const MicroBatches::Slot& slot, const Var& x,
                              float grad_scale, Brackets& brackets) {
  const SequenceRule rule = [&](std::span<const double> logps, std::span<double> dlogps) {
    return this->rule(slot.pass.step, slot.first_row, logps, dlogps);
  };
  return answers_loss(context, part, slot, train_.seq_len, spread_, x, rule, grad_scale, brackets);
}

Var PreferenceObjective::evaluate(Context& context, Decoder& part, const MicroBatches::Slot& slot, const Var& x,
                                  Brackets& brackets) {
  const SequenceRule keep = [&](std::span<const double> logps, std::span<double>) {
    measured_.assign(logps.begin(), logps.end());
    return 0.0;
  };
  return answers_loss(context, part, slot, train_.seq_len, spread_, x, keep, 0, brackets);
}

std::vector<double> PreferenceObjective::measure(Trainer& trainer, int64_t count, bool uses_adapters,
                                                 FunctionRef<void(int64_t, Batch&)> fill,
                                                 FunctionRef<bool()> is_over) {
  const Mesh& mesh = trainer.mesh();
  const int64_t rows = train_.micro_batch, at_once = rows * mesh.shape().dp();
  Allocator memory;  // not part of the training's figures
  const Tensor all = memory.empty(DType::f64, {count, 2});
  double* const logps = all.data<double>();
  std::fill_n(logps, all.numel(), 0.0);
  Batch batch;
  constexpr int64_t kBetween = 8;  // batches, so that stages of a pipeline do not wait for each other after each
  // Every rank takes part in every batch, also where none of its rows is left: others may wait for it.
  for (int64_t begin = 0, b = 0; begin < count; begin += at_once, ++b) {
    if (b % kBetween == kBetween - 1 && is_over()) return {};
    const int64_t first = begin + mesh.data_rank() * rows;
    fill(first, batch);
    trainer.evaluate(batch, uses_adapters);
    if (!trainer.counts_loss() || measured_.empty() || spread_.rank() > 0) continue;
    for (int64_t row = 0; row < std::min(rows, count - first); ++row)
      for (int64_t half = 0; half < 2; ++half) logps[2 * (first + row) + half] = measured_[size_t(2 * row + half)];
  }
  mesh.world().all_reduce(all);
  return {logps, logps + all.numel()};
}

std::vector<double> PreferenceObjective::measure_in_order(Trainer& trainer, const PairBatches& pairs, int64_t count,
                                                          bool uses_adapters, FunctionRef<bool()> is_over) {
  return measure(
      trainer, count, uses_adapters,
      [&](int64_t first, Batch& batch) { pairs.fill_in_order(first, int32_t(train_.micro_batch), batch); }, is_over);
}

void PreferenceObjective::measure_reference(Trainer& trainer, ReferredPairs& pairs) {
  pairs.reference = measure_in_order(trainer, *pairs.batches, pairs.batches->num_pairs(), false);
}

PreferenceObjective::Company PreferenceObjective::company_of(const ReferredPairs& pairs, int64_t count,
                                                             std::span<const double> logps,
                                                             FunctionRef<int64_t(int64_t)> pair_of) const {
  Company c;
  if (config_.method == PreferenceMethod::orpo) {
    int64_t tokens = 0;
    for (int64_t row = 0; row < count; ++row) tokens += pairs.batches->pair(pair_of(row)).targets[0];
    c.token_weight = double(count) / double(std::max<int64_t>(tokens, 1));
  }
  if (config_.method == PreferenceMethod::kto) {
    double sum = 0;
    for (int64_t row = 0; row < count; ++row)
      sum += logps[size_t(2 * row + 1)] - pairs.answer(pair_of(row), 1, 0).reference;
    c.kl = std::max(0.0, sum / double(count));
  }
  return c;
}

bool PreferenceObjective::begin_step(Trainer& trainer, int64_t step) {
  const int64_t rows = train_.global_batch;
  std::vector<double> logps;
  if (config_.method == PreferenceMethod::kto)
    logps = measure(trainer, rows, true, [&](int64_t first, Batch& batch) {
      pairs_.batches->fill(step, int32_t(first), int32_t(train_.micro_batch), batch);
    });
  company_ = company_of(pairs_, rows, logps, [&](int64_t row) { return pairs_.batches->index_of(step, row); });
  return true;
}

std::optional<Validation> PreferenceObjective::validate(Trainer& trainer, FunctionRef<bool()> is_over) {
  if (!valid_.batches) return {};
  const int64_t all = valid_.batches->num_pairs(), at_once = train_.micro_batch * trainer.mesh().shape().dp();
  const int64_t count = train_.eval_batches > 0 ? std::min(all, train_.eval_batches * at_once) : all;
  const std::vector<double> logps = measure_in_order(trainer, *valid_.batches, count, true, is_over);
  if (logps.empty()) return {};
  const Company company = company_of(valid_, count, logps, [](int64_t row) { return row; });
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
