// RewardModel: rows of whole texts, of each of which the last token has a score.
#include "weft/train/policy/reward_model.h"

#include <algorithm>

#include "weft/data/batch_row.h"
#include "weft/data/best_fit.h"
#include "weft/text/other_token.h"
#include "weft/train/sequence_parts.h"

namespace weft {
namespace {

void check_tokens(const Tokenizer& trained, const ModelSource& source) {
  if (const std::optional<int32_t> other = first_other_token(trained, *source.tokenizer()))
    throw UsageError(
        "rl.reward_model = \"{}\" has another token {} than the trained model: they must speak the same ones",
        source.path(), *other);
}

void check_model(const Recipe& recipe, const ModelSource& source) {
  const ModelConfig& c = source.config();
  if (c.labels != 1)
    throw UsageError(
        "rl.reward_model = \"{}\" {}: name a model with one label, as [preference] with method = \"reward\" trains",
        source.path(), c.labels == 0 ? "writes texts" : fmt::format("has {} labels", c.labels));
  if (c.context < recipe.train.seq_len)
    throw UsageError("rl.reward_model = \"{}\" reads {} tokens at once: write at most that as train.seq_len",
                     source.path(), c.context);
}

// Rows from `first` on; those behind the last hold nothing.
void fill(std::span<const std::vector<int32_t>> texts, const FittedRows& rows, int64_t first, Batch& batch,
          std::vector<SequenceAt>& sequences) {
  sequences.clear();
  for (int64_t r = 0; r < batch.rows; ++r) {
    BatchRow row(batch, r);
    if (const auto from = size_t(first + r); from < rows.size())
      for (const PlacedItem& placed : rows[from]) {
        const std::vector<int32_t>& text = texts[size_t(placed.item)];
        sequences.push_back({row.at(), int64_t(text.size())});
        row.begin_sequence();
        for (size_t t = 0; t < text.size(); ++t) row.put(text[t], t + 1 == text.size() ? 0 : -1);
      }
    row.pad();
  }
  batch.sequence_starts.push_back(batch.rows * batch.seq_len);
}

}  // namespace

RewardModel::RewardModel(const Recipe& recipe, const BatchSource& batches, const ModelSource& source,
                         const Tokenizer& tokenizer, Context& context, const Mesh& mesh)
    : recipe_(recipe),
      mesh_(mesh),
      read_(recipe, mesh, batches, 1),
      model_((check_model(recipe, source), context), mesh, source.config(), recipe.dtype()) {
  check_tokens(tokenizer, source);
  model_.load(source);
}

std::vector<double> RewardModel::score(std::span<const std::vector<int32_t>> texts) {
  const TrainConfig& t = recipe_.train;
  std::vector<int32_t> lengths;
  for (const std::vector<int32_t>& text : texts) lengths.push_back(int32_t(text.size()));
  const FittedRows rows = best_fit(lengths, int32_t(t.seq_len));
  Allocator memory;  // not part of the training's figures
  const Tensor found = memory.empty(DType::f64, {int64_t(texts.size())});
  double* const scores = found.data<double>();
  std::fill_n(scores, found.numel(), 0.0);
  Batch batch;
  std::vector<SequenceAt> sequences;
  const int64_t at_once = t.micro_batch * mesh_.shape().dp();
  // Every rank takes part in every batch, also where none of its rows is left: others may wait for it.
  for (int64_t begin = 0; begin < int64_t(rows.size()); begin += at_once) {
    const int64_t first = begin + mesh_.data_rank() * t.micro_batch;
    batch.reset(int32_t(t.micro_batch), int32_t(t.seq_len));
    fill(texts, rows, first, batch, sequences);
    std::vector<double> measured;
    const SequenceRule keep = [&](std::span<const double> all, std::span<double>) {
      measured.assign(all.begin(), all.end());
      return 0.0;
    };
    const MicroBatches::Slot& slot = read_.evaluation(batch);
    const std::vector<SequencePart> parts = sequence_parts(slot, t.seq_len, sequences);
    model_.result(slot.pass, [&](const Partition& partition, const HeadView& head, const Var& hidden) {
      return sequence_loss(partition.tensor, head, slot.batch.targets.data(), parts, int64_t(sequences.size()),
                           mesh_.cp(), keep, 0, hidden);
    });
    if (measured.empty() || mesh_.place().tp > 0 || mesh_.place().cp > 0) continue;
    size_t at = 0;
    for (auto row = size_t(first); row < std::min(size_t(first + t.micro_batch), rows.size()); ++row)
      for (const PlacedItem& placed : rows[row]) scores[placed.item] = measured[at++];
  }
  mesh_.world().all_reduce(found);
  return {scores, scores + found.numel()};
}

}  // namespace weft
