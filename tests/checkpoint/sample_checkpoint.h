// A small model's tensors with known values, saved and compared.
#pragma once
#include <gtest/gtest.h>

#include "weft/checkpoint/checkpoint_store.h"
#include "weft/tensor/allocator.h"

namespace weft {

struct SampleModel {
  explicit SampleModel(int64_t scale = 1) {
    const std::vector<std::pair<std::string, Shape>> shapes{
        {"wte", {13 * scale, 8}}, {"h.0.attn", {8, 24}}, {"h.0.bias", {24}}, {"empty", {0, 4}}, {"ln", {8}}};
    for (const auto& [name, shape] : shapes) {
      weights.push_back({name, allocator.zeros(DType::f32, shape)});
      moments.push_back({"m." + name, allocator.zeros(DType::f32, shape)});
      moments.push_back({"v." + name, allocator.zeros(DType::f32, shape)});
    }
  }

  // Sets every element to a function of `step`, name and index; `state` too.
  void set(int64_t step) {
    for (auto* list : {&weights, &moments}) {
      for (size_t i = 0; i < list->size(); ++i) {
        auto* x = (*list)[i].tensor.data<float>();
        for (int64_t j = 0; j < (*list)[i].tensor.numel(); ++j)
          x[j] = float(step * 1000 + int64_t(i) * 100) + float(j);
      }
    }
    state = {.step = step,
             .tokens = step * 4096,
             .seed = UINT64_MAX - 1,
             .data_cursor = step * 8,
             .loss_scale = 0.1,
             .loss_scale_good_steps = 7,
             .config_hash = "abc",
             .world = {{"dp", 2}, {"tp", 4}},
             .extra = {{"k", "v\n"}}};
  }

  bool operator==(const SampleModel& other) const {
    const auto equal = [](const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
      return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const NamedTensor& x, const NamedTensor& y) {
        const size_t bytes = x.tensor.bytes();
        return x.name == y.name && bytes == y.tensor.bytes() &&
               std::memcmp(x.tensor.raw(), y.tensor.raw(), bytes) == 0;
      });
    };
    return equal(weights, other.weights) && equal(moments, other.moments) && state == other.state;
  }

  std::string save(CheckpointStore& store) const {
    CheckpointWriter writer =
        store.begin(state.step, CheckpointStore::bytes_of(weights) + CheckpointStore::bytes_of(moments));
    writer.add_tensors("model.safetensors", weights);
    writer.add_tensors("optimizer.safetensors", moments);
    writer.add_file("recipe.toml", "[train]\nsteps = 5\n");
    writer.add_state(state);
    return writer.commit();
  }

  void load(const Checkpoint& checkpoint) {
    checkpoint.load(kModelGroup, weights);
    checkpoint.load(kOptimizerGroup, moments);
    state = checkpoint.state();
  }

  Allocator allocator;
  std::vector<NamedTensor> weights, moments;
  TrainingState state;
};

// The step of the newest valid checkpoint, whose every value must be the one saved; -1 when there is none.
inline int64_t load_newest(const CheckpointStore& store, int64_t scale = 1) {
  const FoundCheckpoint found = store.newest_valid();
  if (!found.checkpoint) return -1;
  SampleModel loaded(scale), expected(scale);
  loaded.load(*found.checkpoint);
  expected.set(found.checkpoint->step());
  EXPECT_TRUE(loaded == expected) << found.checkpoint->path();
  return found.checkpoint->step();
}

}  // namespace weft
