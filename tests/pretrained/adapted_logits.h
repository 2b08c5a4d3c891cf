// What a model says whose rows all have the adapter of a folder.
#pragma once
#include "pretrained/model_on_ranks.h"
#include "weft/pretrained/peft.h"

namespace weft {

// source: what the model was loaded from.
inline void add_adapted_logits(ForwardModel& model, const ModelSource& source, const std::string& folder,
                               const std::vector<int32_t>& ids, Logits& all) {
  const auto set = load_lora_set(model.context(), source, model.part(), model.dtype(), folder);
  const RowAdapters::Run run{0, 0, int64_t(ids.size())};
  const LoraSet* const sets[] = {set.get()};
  const RowAdapters rows{{&run, 1}, sets};
  WholePass whole(ids);
  whole.pass.lora = &rows;
  add_logits(model, whole, all);
}

}  // namespace weft
