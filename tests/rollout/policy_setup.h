// PolicyCase: a small model that learns from its own answers on some mesh, and its comparison with one rank.
#pragma once
#include "base/temporary_folder.h"
#include "train/mesh_cases.h"
#include "weft/rollout/engine_answerer.h"
#include "weft/tensor/cuda/cuda_device.h"
#include "weft/train/launch.h"
#include "weft/train/objectives.h"
#include "weft/train/policy/policy_objective.h"

namespace weft {

// What a program says answers are worth: they differ in length, and in characters that JSON writes longer.
inline const std::vector<std::string> kLengthOfLine = {"sh", "-c", "while read -r line; do echo ${#line}; done"};

inline std::string prompts_file(const std::string& folder, const std::string& answer) {
  std::string text;
  for (int i = 0; i < 6; ++i)
    text +=
        fmt::format("{{\"prompt\": \"p{}{}:\", \"answer\": \"{}\"}}\n", i, std::string(size_t(i % 3), 'x'), answer);
  std::string path = folder + "/prompts.jsonl";
  write_file_atomically(FileSystem::real(), path, std::string_view(text));
  return path;
}

// Many tokens end an answer, so that answers of a model that knows nothing differ in length.
inline std::unique_ptr<Answerer> answerer_with_many_ends(Trainer& trainer, const Recipe& recipe,
                                                         AnswererOptions options) {
  options.stop_tokens.clear();
  for (int32_t token = 220; token < 259; ++token) options.stop_tokens.push_back(token);
  return make_engine_answerer(trainer, recipe, std::move(options));
}

struct Learned {
  TrainedRun run;
  std::vector<PolicyFigures> figures;           // of each step
  std::vector<std::vector<int32_t>> sequences;  // of all rounds
  std::vector<double> validation;               // before each step
  std::vector<int64_t> tokens;                  // of each step
};

// judge: of rl.reward_model.
inline Learned learn(Recipe recipe, int steps, const std::string& answer = "e", const ModelSource* start = nullptr,
                     const ModelSource* judge = nullptr) {
  const TemporaryFolder folder;
  recipe.data.train = recipe.data.valid = prompts_file(folder.path(), answer);
  recipe.data.cache_dir = folder.path() + "/cache", recipe.data.valid_fraction = 0;
  recipe.log.dir = folder.path();
  const Dataset data = open_data(recipe);
  Learned result;
  run_ranks(recipe.mesh.size(), [&](Communicator& world) {
    const Device device = recipe.mesh.device;
    if (device == Device::cuda) use_cuda_device(world.rank());
    TestRank rank(kernels_of(device), 1, device);
    const auto batches = batches_for(recipe, data);
    Trainer trainer(rank.context, world, recipe, *batches);
    const auto objective = make_objective(recipe,
                                          {.data = data,
                                           .batches = *batches,
                                           .start = start,
                                           .teacher = judge,
                                           .make_answerer = answerer_with_many_ends},
                                          trainer);
    trainer.set_objective(objective.get());
    Learned mine;
    const auto& rows = dynamic_cast<const PolicyBatches&>(*batches);
    for (int i = 0; i < steps; ++i) {
      mine.validation.push_back(objective->validate(trainer, [] { return false; })->answers->reward);
      const StepResult r = trainer.step();
      mine.run.losses.push_back(r.loss), mine.run.grad_norms.push_back(r.grad_norm);
      mine.tokens.push_back(r.num_tokens);
      mine.figures.push_back(objective->figures(trainer).value());
      if (i % recipe.policy.updates == 0)
        for (const PolicyBatches::Answer& given : rows.answers()) mine.sequences.push_back(given.tokens);
    }
    add_tensors(recipe, trainer, mine.run);
    if (world.rank() == 0) result = std::move(mine);
  });
  return result;
}

inline Recipe policy_recipe(const MeshCase& mesh, PolicyMethod method, int64_t updates = 1, double beta = 0) {
  Recipe r = recipe_of(mesh);
  r.model.vocab = 259, r.model.context = 24;  // bytes
  r.train.seq_len = 24;
  r.policy = PolicyConfig::of(method);
  r.policy.reward = RewardKind::command, r.policy.command = kLengthOfLine, r.policy.command_timeout_s = 60;
  r.policy.answers = 4, r.policy.max_tokens = 12, r.policy.updates = updates, r.policy.beta = beta;
  make_smooth(r);
  return r;
}

struct PolicyCase {
  const char* name;
  MeshCase mesh;
  PolicyMethod method = PolicyMethod::grpo;
  int64_t updates = 1;
  double beta = 0;
};

// The one rank is a CPU's.
inline void expect_answers_and_learning_of_one_rank(const PolicyCase& c, Device device = Device::cpu, int steps = 4) {
  const Learned one = learn(policy_recipe(on_one_rank(c.mesh), c.method, c.updates, c.beta), steps);
  Recipe recipe = policy_recipe(c.mesh, c.method, c.updates, c.beta);
  recipe.mesh.device = device;
  Learned got = learn(recipe, steps);
  EXPECT_EQ(got.sequences, one.sequences);
  const double tolerance = 5 * tolerance_of(recipe_of(c.mesh));
  for (size_t i = 0; i < one.run.losses.size(); ++i) EXPECT_NEAR(got.run.losses[i], one.run.losses[i], 1e-5) << i;
  got.run.losses = one.run.losses;  // which are all but 0, so that their ratio says nothing
  const Difference d = difference(got.run, one.run);
  EXPECT_LE(d.gradient, tolerance) << d.gradient_name;
  EXPECT_LE(d.weight, tolerance) << d.weight_name;
  EXPECT_EQ(got.validation, one.validation);
  double cut = 0;
  for (size_t i = 0; i < one.figures.size(); ++i) {
    const PolicyFigures &a = got.figures[i], &b = one.figures[i];
    EXPECT_EQ(a.reward, b.reward);
    EXPECT_GT(b.reward_std, 0);
    cut += b.cut;
    EXPECT_NEAR(a.clipped, b.clipped, 1e-9);
    ASSERT_EQ(a.kl.has_value(), c.beta > 0);
    if (a.kl) {
      EXPECT_NEAR(*a.kl, *b.kl, 1e-6);
    }
    // What an answer's tokens were chosen by is what the trainer says of them.
    ASSERT_EQ(a.gap.has_value(), i % size_t(c.updates) == 0);
    for (const PolicyFigures& f : {a, b}) EXPECT_LE(f.gap.value_or(0), 1e-5);
  }
  EXPECT_GT(cut, 0);
  EXPECT_LT(cut, double(one.figures.size()));
  EXPECT_GT(one.run.grad_norms[0], 1e-4);
}

}  // namespace weft
