// verify: a short run, and the comparison of two.
#include "weft/train/verify.h"

#include <algorithm>
#include <cmath>

#include "weft/comm/single/single.h"
#include "weft/parallel/data/near.h"
#include "weft/tensor/cuda/cuda_device.h"
#include "weft/tensor/host_access.h"
#include "weft/train/model_parts.h"
#include "weft/train/trainer.h"
#include "weft/train/weights.h"
#include "weft/train/whole_tensors.h"

namespace weft {
namespace {

// Every group's bytes of one step, the most over all ranks.
void add_sent(const Mesh& mesh, int steps, TrainedRun& run) {
  Allocator memory;
  const Tensor bytes = memory.empty(DType::i64, {1});
  for (const Communicator* group : mesh.groups()) {
    *bytes.data<int64_t>() = group->stats().bytes_sent / steps;
    mesh.world().all_reduce(bytes, Reduction::max);
    if (*bytes.data<int64_t>() > 0) run.sent_bytes[std::string(group->label())] = *bytes.data<int64_t>();
  }
}

void add_peaks(Communicator& world, int64_t peak, TrainedRun& run) {
  Allocator memory;
  const Tensor all = memory.empty(DType::i64, {world.size()});
  const Tensor mine = all.slice_rows(world.rank(), 1);
  *mine.data<int64_t>() = peak;
  world.all_gather(all, mine);
  run.peak_bytes.assign(all.data<int64_t>(), all.data<int64_t>() + world.size());
}

double largest_of(const std::vector<float>& x) {
  double most = 0;
  for (const float v : x) most = std::max(most, std::abs(double(v)));
  return most;
}

struct Worst {
  double value = 0;
  std::string name;
};
Worst worst_of(const std::vector<std::vector<float>>& got, const std::vector<std::vector<float>>& want,
               const std::vector<std::string>& names) {
  double most = 1e-30;
  for (const auto& t : want) most = std::max(most, largest_of(t));
  Worst worst;
  for (size_t p = 0; p < want.size(); ++p) {
    const double scale = std::max(largest_of(want[p]), 1e-3 * most);
    for (size_t i = 0; i < want[p].size(); ++i) {
      const double d = std::abs(double(got[p][i]) - double(want[p][i])) / scale;
      if (d > worst.value || !std::isfinite(d)) worst = {std::isfinite(d) ? d : INFINITY, names[p]};
    }
  }
  return worst;
}

}  // namespace

void add_tensors(const Recipe& recipe, Trainer& trainer, TrainedRun& run) {
  const std::vector<Owned> weights = all_weights(trainer);
  const auto owned = trainer.optimizer().owned();
  const NearInTurn in_turn(weights);
  WholeTensors whole(recipe, trainer.mesh(), owned);
  const std::vector<Tensor> gradients = gradients_of(trainer.context(), owned);
  const bool keeps = trainer.mesh().world().rank() == 0;
  for (const auto& info : whole.all()) {
    const auto take = [&](const Tensor& t, std::vector<std::vector<float>>& into) {
      if (keeps) into.emplace_back(t.data<float>(), t.data<float>() + t.numel());
    };
    if (info.is_trained)
      take(whole.gather(info, gradients), run.gradients);
    else if (keeps)
      run.gradients.emplace_back();
    take(whole.gather(info.shape,
                      [&](auto&& visit) { visit_weight(trainer.context(), weights, info.name, false, visit); }),
         run.weights);
    if (keeps) run.names.push_back(info.name);
  }
}

namespace {

using MakeObjective = FunctionRef<std::unique_ptr<Objective>(Trainer& trainer)>;

TrainedRun train_by(const Recipe& recipe, const BatchSource& batches, MakeObjective make, RoutingReplay* routing,
                    Communicator& world, int steps, int threads) {
  if (recipe.mesh.device == Device::cuda) use_cuda_device(world.rank());
  ThreadTeam team(threads);
  Allocator memory(recipe.mesh.device);
  Stream stream(team, memory);
  Context context{.kernels = kernels_of(recipe.mesh.device), .stream = stream, .pulse = world.pulse()};
  Trainer trainer(context, world, recipe, batches);
  const std::unique_ptr<Objective> objective = make(trainer);
  trainer.set_objective(objective.get());
  trainer.set_routing(routing);
  TrainedRun run;
  for (int i = 0; i < steps; ++i) {
    const StepResult r = trainer.step();
    run.losses.push_back(r.loss), run.grad_norms.push_back(r.grad_norm);
  }
  add_sent(trainer.mesh(), steps, run);
  add_peaks(world, memory.stats().peak_bytes, run);
  add_tensors(recipe, trainer, run);
  return run;
}

using TrainOne = FunctionRef<TrainedRun(const Recipe& recipe, Communicator& alone)>;

void make_comparable_by(Recipe& recipe, TrainOne train_one) {
  LrSchedule& s = recipe.optimizer.schedule;
  s.decay = Decay::constant, s.warmup = 0;
  Recipe one = recipe;
  one.mesh = {};
  one.train.micro_batch = one.train.global_batch, one.train.accumulation = 1;
  const auto alone = make_single_communicator();
  const auto first_norm = [&] { return train_one(one, *alone).grad_norms[0]; };
  double norm = first_norm(), &scale = one.train.first_loss_scale;
  if (recipe.train.precision == Precision::fp16) {
    constexpr double kRoom = 16;  // for gradients that grow
    for (; !std::isfinite(norm) && scale > kRoom; norm = first_norm()) scale /= 2;
    recipe.train.first_loss_scale = scale / kRoom;
  }
  constexpr double kAbove = 10;
  make_continuous(recipe.optimizer, kAbove * norm / std::sqrt(double(count_params(recipe).trained)));
}

}  // namespace

TrainedRun train_some(const Recipe& recipe, const BatchSource& batches, Communicator& world, int steps, int threads) {
  return train_by(
      recipe, batches, [](Trainer&) { return nullptr; }, nullptr, world, steps, threads);
}

TrainedRun train_some(const Recipe& recipe, const VerifySources& s, Communicator& world, int steps, int threads) {
  const std::unique_ptr<BatchSource> batches = batches_for(recipe, s.data);
  const auto make = [&](Trainer& trainer) {
    return make_objective(recipe,
                          {.data = s.data,
                           .batches = *batches,
                           .start = s.start,
                           .teacher = s.teacher,
                           .make_answerer = s.make_answerer,
                           .make_reward = s.make_reward,
                           .saves_reference = false},
                          trainer);
  };
  return train_by(recipe, *batches, make, s.routing, world, steps, threads);
}

void make_comparable(Recipe& recipe, const BatchSource& batches) {
  make_comparable_by(recipe,
                     [&](const Recipe& one, Communicator& alone) { return train_some(one, batches, alone, 1, 1); });
}

void make_comparable(Recipe& recipe, const VerifySources& sources) {
  make_comparable_by(recipe,
                     [&](const Recipe& one, Communicator& alone) { return train_some(one, sources, alone, 1, 1); });
}

Difference difference(const TrainedRun& got, const TrainedRun& want, double least_loss) {
  check(got.names == want.names && got.losses.size() == want.losses.size(), "the runs are of different models");
  Difference d;
  for (size_t i = 0; i < want.losses.size(); ++i) {
    const auto relative = [](double a, double b, double least) {
      return std::abs(a - b) / std::max(std::abs(b), least);
    };
    d.loss = std::max(d.loss, relative(got.losses[i], want.losses[i], least_loss));
    d.gradient = std::max(d.gradient, relative(got.grad_norms[i], want.grad_norms[i], 1e-30));
    if (d.gradient > 0) d.gradient_name = "the global norm";
  }
  const Worst gradient = worst_of(got.gradients, want.gradients, want.names);
  if (gradient.value >= d.gradient) d.gradient = gradient.value, d.gradient_name = gradient.name;
  const Worst weight = worst_of(got.weights, want.weights, want.names);
  d.weight = weight.value, d.weight_name = weight.name;
  return d;
}

double least_same_experts(Precision precision) {
  // All but twice the worst of 180 runs of ten families: 0.7% of a layer's in bf16, 2.9% in fp8; in fp32 none of 108.
  return precision == Precision::fp32 ? 0.995 : precision == Precision::fp8 ? 0.94 : 0.985;
}

double tolerance_of(Precision precision) {
  // Sums that round otherwise tip a number over to the next code, which is up to 1/8 further. Twice the worst of 21
  // runs of small models: 0.095, of a gradient's element at tp = 2.
  constexpr double kFloat8 = 0.2;
  return precision == Precision::fp32 ? 1e-5 : precision == Precision::fp8 ? kFloat8 : 2e-2;
}

double tolerance_of(const Recipe& recipe) {
  // Where a query and the keys that a state of the gated delta rule has learnt are all but at right angles, a head
  // gives next to nothing, which its norm enlarges. Twice the worst of small models: 0.056 of 10 meshes at tp = 2; in
  // fp32 1.4e-5 of 12, and 1.4e-3 where Muon makes what is small as large as the rest.
  constexpr double kDelta = 0.1, kDeltaSingle = 3e-5, kDeltaByMuon = 3e-3;
  // Where each row of a state has a rate of its own, a head's learns a sum over rows and tokens. Twice the worst of
  // 182 runs of small models in fp8: 0.27, at tp = 4; in bf16 0.047 of 45.
  constexpr double kRowRatesFloat8 = 0.55;
  // A head's skip learns a sum over all tokens and elements, most of which cancel out. Twice the worst of 150
  // runs of small models: 0.035, of Granite 4 at tp = 2; in fp8 0.77 of 54.
  constexpr double kSkip = 0.07, kSkipFloat8 = 1.5;
  // What is rounded to the other side of zero loses or gains its whole gradient. Twice the worst of 360 runs of small
  // models: 0.15, of a gate in bf16; in fp8 0.28 of 180.
  constexpr double kRelu = 0.3, kReluFloat8 = 0.55;
  // Each number of a learned activation learns a sum over all tokens and elements, most of which cancel out. Twice
  // the worst of 87 runs of small models: 0.057, at tp = 2; in fp8 0.2 of 86.
  constexpr double kLearned = 0.12, kLearnedFloat8 = 0.4;
  // A moment that rounds otherwise tips over to the next of 256 codes. Twice the worst of 20 meshes of small models
  // in fp32: 1.4e-3, of a weight at tp = 4.
  constexpr double kMoments = 3e-3;
  // What norms of heads learn is small beside the rest where scores are as good as even. Twice the worst of 12 meshes
  // of small models: 0.058, of Exaone 4 at tp = 4; in fp8 0.35 of 192, of Gemma 4 at tp = 2. Of Gemma 4, which norms
  // everything, in fp32 3.6e-5 of 170.
  constexpr double kHeadNorms = 0.12, kHeadNormsFloat8 = 0.7, kAllNormsSingle = 7e-5;
  // Of sparse attention, over how many keys a row sees: scores that are all but equal let it see another one. Twice
  // the worst of 168 runs of small models, whose rows see 4 to 32 keys of 64: 0.94 / 12; in fp8 1.5 / 12 of 96.
  constexpr double kOtherKeys = 2, kOtherKeysFloat8 = 3;
  // A norm stands behind what the head reads of several streams, which are alike in the beginning: what the weights
  // of its reading learn from the one is cancelled by the others. Twice the worst of 165 runs of small models: 0.080
  // in bf16, of streams that are mixed; in fp32 6.1e-6 of 60.
  constexpr double kStreams = 0.16, kStreamsSingle = 1.5e-5;
  const ModelConfig& m = recipe.model;
  const bool is_short = recipe.train.precision != Precision::fp32;
  const auto of_short = [&](double in_16_bits, double in_float8) {
    return recipe.train.precision == Precision::fp8 ? in_float8 : is_short ? in_16_bits : 0;
  };
  double most = tolerance_of(recipe.train.precision);
  const auto widen = [&](bool applies, double tolerance) {
    if (applies) most = std::max(most, tolerance);
  };
  widen(recipe.optimizer.kind == OptimizerKind::adamw8bit, kMoments);
  widen(m.qk_norm || m.qk_norm_across, of_short(kHeadNorms, kHeadNormsFloat8));
  widen(m.value_norm && !is_short, kAllNormsSingle);
  const auto keys = double(m.index_topk);
  widen(m.selects_keys() && recipe.train.seq_len > m.index_topk,
        of_short(kOtherKeys / keys, kOtherKeysFloat8 / keys));
  widen(m.has_streams(), is_short ? of_short(kStreams, 0) : kStreamsSingle);
  widen(m.activation == Activation::relu, of_short(kRelu, kReluFloat8));
  widen(m.is_xielu, of_short(kLearned, kLearnedFloat8));
  widen(m.has_states() && m.state_rule == StateKind::selective, of_short(kSkip, kSkipFloat8));
  widen(m.has_states() && m.state_rule == StateKind::kimi_delta, of_short(kDelta, kRowRatesFloat8));
  widen(m.has_states() && m.has_delta_rule(), is_short                                       ? kDelta
                                              : recipe.optimizer.kind == OptimizerKind::muon ? kDeltaByMuon
                                                                                             : kDeltaSingle);
  return most;
}

}  // namespace weft
