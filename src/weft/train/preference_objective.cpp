// PreferenceObjective: log-probabilities of rows, measured and trained.
#include "weft/train/preference_objective.h"

#include <algorithm>
#include <cstring>

#include "weft/base/file.h"

namespace weft {

Answer PreferenceObjective::answer(int64_t pair, size_t half, double logp) const {
  const double reference = reference_.empty() ? 0 : reference_[size_t(pair) * 2 + half];
  return {.logp = logp, .reference = reference, .tokens = batches_.pair(pair).targets[half]};
}

double PreferenceObjective::rule(int64_t step, int64_t first_row, std::span<const double> logps,
                                 std::span<double> dlogps) const {
  double sum = 0;
  for (size_t row = 0; 2 * row < logps.size(); ++row) {
    const int64_t pair = batches_.index_of(step, first_row + int64_t(row));
    const Answer first = answer(pair, 0, logps[2 * row]), second = answer(pair, 1, logps[2 * row + 1]);
    PairLoss loss;
    switch (config_.method) {
      case PreferenceMethod::none:
      case PreferenceMethod::dpo: loss = dpo_loss(config_, first, second); break;
      case PreferenceMethod::orpo: loss = orpo_loss(config_, first, second, token_weight_); break;
      case PreferenceMethod::kto: {
        const AnswerLoss one = kto_loss(config_, first, batches_.pair(pair).is_desirable, kl_);
        loss = {one.loss, one.dlogp, 0};
        break;
      }
    }
    sum += loss.loss;
    if (!dlogps.empty()) dlogps[2 * row] = loss.dchosen, dlogps[2 * row + 1] = loss.drejected;
  }
  return sum;
}

Var answers_loss(Context& context, Decoder& part, const MicroBatches::Slot& slot, const Var& x,
                 const SequenceRule& rule, float grad_scale, Brackets& brackets) {
  return part.result(context, slot.pass, x, brackets,
                     [&](const Partition& partition, Param& weight, float softcap, const Var& hidden) {
                       return sequence_loss(partition.tensor, weight, softcap, slot.batch.targets.data(),
                                            slot.batch.sequence_starts, rule, grad_scale, hidden);
                     });
}

Var PreferenceObjective::loss(Context& context, Decoder& part, const MicroBatches::Slot& slot, const Var& x,
                              float grad_scale, Brackets& brackets) {
  const SequenceRule rule = [&](std::span<const double> logps, std::span<double> dlogps) {
    return this->rule(slot.pass.step, slot.first_row, logps, dlogps);
  };
  return answers_loss(context, part, slot, x, rule, grad_scale, brackets);
}

Var PreferenceObjective::evaluate(Context& context, Decoder& part, const MicroBatches::Slot& slot, const Var& x,
                                  Brackets& brackets) {
  const SequenceRule keep = [&](std::span<const double> logps, std::span<double>) {
    measured_.assign(logps.begin(), logps.end());
    return 0.0;
  };
  return answers_loss(context, part, slot, x, keep, 0, brackets);
}

std::vector<double> PreferenceObjective::measure(Trainer& trainer, int64_t count, bool uses_adapters,
                                                 FunctionRef<void(int64_t, Batch&)> fill) {
  const Mesh& mesh = trainer.mesh();
  const int64_t rows = train_.micro_batch, at_once = rows * mesh.shape().dp();
  Allocator memory;  // not part of the training's figures
  const Tensor all = memory.empty(DType::f64, {count, 2});
  double* const logps = all.data<double>();
  std::fill_n(logps, all.numel(), 0.0);
  Batch batch;
  // Every rank takes part in every batch, also where none of its rows is left: others may wait for it.
  for (int64_t begin = 0; begin < count; begin += at_once) {
    const int64_t first = begin + mesh.data_rank() * rows;
    fill(first, batch);
    trainer.evaluate(batch, uses_adapters);
    if (!trainer.counts_loss() || measured_.empty()) continue;
    for (int64_t row = 0; row < std::min(rows, count - first); ++row)
      for (int64_t half = 0; half < 2; ++half) logps[2 * (first + row) + half] = measured_[size_t(2 * row + half)];
  }
  mesh.world().all_reduce(all);
  return {logps, logps + all.numel()};
}

void PreferenceObjective::measure_reference(Trainer& trainer) {
  reference_ = measure(trainer, batches_.num_pairs(), false, [&](int64_t first, Batch& batch) {
    batches_.fill_in_order(first, int32_t(train_.micro_batch), batch);
  });
}

void PreferenceObjective::begin_step(Trainer& trainer, int64_t step) {
  const int64_t rows = train_.global_batch;
  if (config_.method == PreferenceMethod::orpo) {
    int64_t tokens = 0;
    for (int64_t row = 0; row < rows; ++row) tokens += batches_.pair(batches_.index_of(step, row)).targets[0];
    token_weight_ = double(rows) / double(std::max<int64_t>(tokens, 1));
  }
  if (config_.method != PreferenceMethod::kto) return;
  const std::vector<double> logps = measure(trainer, rows, true, [&](int64_t first, Batch& batch) {
    batches_.fill(step, int32_t(first), int32_t(train_.micro_batch), batch);
  });
  double sum = 0;
  for (int64_t row = 0; row < rows; ++row)
    sum += logps[size_t(2 * row + 1)] - answer(batches_.index_of(step, row), 1, 0).reference;
  kl_ = std::max(0.0, sum / double(rows));
}

void save_reference(const PreferenceObjective& objective, const std::string& path) {
  const std::vector<double>& values = objective.reference();
  std::string bytes(values.size() * sizeof(double), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  write_file_atomically(FileSystem::real(), path, bytes);
}

void load_reference(PreferenceObjective& objective, const std::string& path, int64_t pairs) {
  const std::string bytes = read_file(path, uint64_t(1) << 32);
  std::vector<double> values(size_t(pairs) * 2);
  if (bytes.size() != values.size() * sizeof(double))
    throw Error(
        "{} holds {} bytes, not two numbers for each of {} pairs: the data are not those that training began with",
        path, bytes.size(), pairs);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  objective.set_reference(std::move(values));
}

}  // namespace weft
