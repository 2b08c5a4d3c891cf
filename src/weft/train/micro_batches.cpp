// MicroBatches: rows of the global batch to passes.
#include "weft/train/micro_batches.h"

#include "weft/train/context_batch.h"
#include "weft/train/pass_of.h"

namespace weft {

MicroBatches::MicroBatches(const Recipe& recipe, const Mesh& mesh, const BatchSource& batches, int num_uses)
    : recipe_(recipe),
      mesh_(mesh),
      batches_(batches),
      num_uses_(num_uses),
      context_{mesh.cp(), recipe.mesh.cp_mode} {}

const MicroBatches::Slot& MicroBatches::get(int64_t step, int micro_batch) {
  Slot* free = nullptr;
  for (const auto& slot : slots_) {
    if (slot->micro_batch == micro_batch) return *slot;
    if (slot->micro_batch < 0) free = slot.get();
  }
  if (!free) free = slots_.emplace_back(std::make_unique<Slot>()).get();
  const TrainConfig& t = recipe_.train;
  // Rows of the global batch: rank by rank, and within a rank micro-batch by micro-batch.
  const int64_t first_row = (mesh_.data_rank() * count(step) + micro_batch) * t.micro_batch;
  batches_.fill(step, int32_t(first_row), int32_t(t.micro_batch), whole_);
  if (recipe_.model.mtp_layers > 0) whole_.look_further();
  fill(*free, whole_, first_row);
  free->micro_batch = micro_batch, free->uses_left = num_uses_;
  free->pass.is_training = true;
  free->pass.seed = t.seed;
  free->pass.step = step;
  free->pass.loss_scale = loss_scale_;
  free->pass.routing = routing_;
  return *free;
}

void MicroBatches::release(int micro_batch) {
  for (const auto& slot : slots_)
    if (slot->micro_batch == micro_batch && --slot->uses_left == 0) slot->micro_batch = -1;
}

const MicroBatches::Slot& MicroBatches::evaluation(const Batch& whole, bool uses_adapters) {
  fill(evaluation_, whole, 0);
  evaluation_.pass.uses_adapters = uses_adapters;
  return evaluation_;
}

void MicroBatches::fill(Slot& slot, const Batch& whole, int64_t first_row) {
  const int64_t first_token = first_row * whole.seq_len;
  slot.first_row = first_row;
  if (mesh_.cp().size() == 1) {
    slot.batch = whole;
    slot.pass = pass_of(slot.batch, first_token, slot.spans);
    slot.tokens.assign(1, {.begin = 0, .count = slot.pass.num_tokens, .first_token = first_token});
  } else {
    const ContextLayout* layout = slot.context ? &slot.context->layout() : nullptr;
    if (!layout || layout->rows() != whole.rows || layout->seq_len() != whole.seq_len)
      slot.context.emplace(ContextLayout(whole.rows, whole.seq_len, mesh_.cp().rank(), mesh_.cp().size()));
    slot.context->build(whole.sequence_starts, first_token);
    take_part(whole, slot.context->layout(), slot.batch);
    slot.pass = pass_of(slot.batch, *slot.context, context_);
    slot.tokens = slot.context->layout().token_spans();
    for (TokenSpan& span : slot.tokens) span.first_token += first_token;
  }
  slot.pass.tokens = slot.tokens;
}

}  // namespace weft
