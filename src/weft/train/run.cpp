// run_rank: the loop around the trainer.
#include "weft/train/run.h"

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <optional>

#include "weft/data/packed_rows.h"
#include "weft/data/pair_batches.h"
#include "weft/kernels/cpu/peak.h"
#include "weft/tensor/cuda/cuda_device.h"
#include "weft/train/checkpoint_saver.h"
#include "weft/train/evaluate.h"
#include "weft/train/metrics.h"
#include "weft/train/nf4_held.h"
#include "weft/train/objectives.h"
#include "weft/train/policy/policy_batches.h"
#include "weft/train/progress.h"
#include "weft/train/saved_run.h"
#include "weft/train/start_from.h"
#include "weft/train/tensorboard.h"
#include "weft/train/trace_ops.h"
#include "weft/train/trainer.h"

namespace weft {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// What only rank 0 does: files and the progress line.
class Reporter {
 public:
  Reporter(const Recipe& recipe, int64_t first_step, int64_t plain_every)
      : recipe_(recipe),
        first_step_(first_step),
        progress_(STDERR_FILENO, plain_every),
        begin_s_(seconds_now()),
        metrics_(FileSystem::real(), join_path(recipe.log.dir, "metrics.jsonl"), first_step) {
    write_file_atomically(FileSystem::real(), join_path(recipe.log.dir, "recipe.toml"), recipe.text);
    if (recipe.log.tensorboard) tensorboard_.emplace(FileSystem::real(), recipe.log.dir, first_step + 1);
  }

  void step(const StepMetrics& m) {
    metrics_.write(m);
    if (tensorboard_) {
      std::vector<Scalar> scalars = {{"train/loss", float(m.loss)},
                                     {"train/grad_norm", float(m.grad_norm)},
                                     {"train/lr", float(m.lr)},
                                     {"speed/tokens_per_s", float(m.tokens_per_s)},
                                     {"speed/mfu", float(m.mfu)}};
      if (m.mtp_loss) scalars.push_back({"train/mtp_loss", float(*m.mtp_loss)});
      if (m.expert_load) scalars.push_back({"experts/load", float(*m.expert_load)});
      if (m.expert_rank_load) scalars.push_back({"experts/rank_load", float(*m.expert_rank_load)});
      if (m.policy)
        each_figure(*m.policy, [&](std::string_view tag, double value) { scalars.push_back({tag, float(value)}); });
      tensorboard_->write(m.step, scalars);
    }
    const double now = seconds_now(), per_step = (now - begin_s_) / double(m.step - first_step_);
    progress_.show({.step = m.step,
                    .num_steps = recipe_.train.steps,
                    .loss = m.loss,
                    .reward = m.policy ? std::optional(m.policy->reward) : std::nullopt,
                    .lr = m.lr,
                    .tokens_per_s = m.tokens_per_s,
                    .mfu = m.mfu,
                    .eta_s = per_step * double(recipe_.train.steps - m.step)},
                   now);
  }
  void eval(int64_t step, const Validation& v) {
    metrics_.write_eval(step, v);
    std::vector<Scalar> scalars;
    std::string order;  // or how often it is right
    if (v.answers) {
      scalars = {{"eval/reward", float(v.answers->reward)}, {"eval/answer_tokens", float(v.answers->tokens)}};
      progress_.note(fmt::format("step {}: validation reward {:.4f}, {:.1f} tokens an answer", step,
                                 v.answers->reward, v.answers->tokens));
      if (tensorboard_) tensorboard_->write(step, scalars);
      return;
    }
    scalars.push_back({"eval/loss", float(v.loss)});
    if (v.accuracy) {
      scalars.push_back({"eval/accuracy", float(*v.accuracy)});
      order = fmt::format(", {:.1f}% of classes right", 100 * *v.accuracy);
    }
    if (v.preference) {
      scalars.push_back({"eval/accuracy", float(v.preference->accuracy)});
      scalars.push_back({"eval/margin", float(v.preference->margin)});
      order = fmt::format(", {:.1f}% of pairs in order, margin {:.3f}", 100 * v.preference->accuracy,
                          v.preference->margin);
    }
    if (tensorboard_) tensorboard_->write(step, scalars);
    progress_.note(fmt::format("step {}: validation loss {:.4f}{}", step, v.loss, order));
  }
  void checkpoint(int64_t step, double blocked_s, double seconds) {
    metrics_.write_checkpoint(step, blocked_s, seconds);
  }
  void note(const std::string& text) { progress_.note(text); }

 private:
  const Recipe& recipe_;
  int64_t first_step_;
  ProgressLine progress_;
  double begin_s_;
  MetricsFile metrics_;
  std::optional<TensorBoardWriter> tensorboard_;
};

class Run {
 public:
  Run(const Recipe& recipe, const Dataset& dataset, Communicator& world, const RunOptions& options)
      : recipe_(recipe),
        world_(world),
        options_(options),
        team_(options.threads),
        allocator_(device_of(recipe, world)),
        stream_(team_, allocator_),
        context_{.kernels = kernels_of(recipe.mesh.device), .stream = stream_, .pulse = world.pulse()},
        dataset_(dataset),
        batches_(batches_for(recipe, dataset)),
        valid_(dataset.valid),
        trace_(world, context_),
        trainer_(context_, world, recipe, *batches_),
        saved_(trainer_, recipe, *dataset.tokenizer, dataset.fingerprint(), files_of(options.use)) {
    trainer_.observe_actions([this](const Action& action, bool is_begin) { trace_.record(action, is_begin); });
    find_peak_flops();
    peaks_ = control_memory_.empty(DType::i64, {world.size(), kShared});
    if (recipe.checkpoint.dir.empty()) return;
    store_.emplace(recipe.checkpoint.dir,
                   CheckpointOptions{.keep = recipe.checkpoint.keep > 0 ? int(recipe.checkpoint.keep) : INT32_MAX,
                                     .verify_after_write = true,
                                     .log = [this](const std::string& line) { note(line); }});
    saver_.emplace(world, *store_);
  }

  RunReport run() {
    make_folders(FileSystem::real(), recipe_.log.dir);
    if (!resume() && options_.start) {
      const Patience patience(world_);
      start_from(*options_.start, recipe_, trainer_);
    }
    {
      const Patience patience(world_);
      if (recipe_.preference.method != PreferenceMethod::none && valid_.size() > 0)
        valid_pairs_ = batches_for(recipe_, valid_);
      objective_ = make_objective(recipe_,
                                  {.data = dataset_,
                                   .batches = *batches_,
                                   .valid = valid_pairs_.get(),
                                   .start = options_.start,
                                   .teacher = options_.teacher,
                                   .make_answerer = options_.make_answerer,
                                   .stop = options_.stop},
                                  trainer_);
      trainer_.set_objective(objective_.get());
    }
    if (world_.rank() == 0) reporter_.emplace(recipe_, trainer_.next_step(), options_.plain_every);
    if (const auto* packed = dynamic_cast<const PackedBatches*>(batches_.get()))
      note(describe(packed->summary(), int32_t(recipe_.train.seq_len)));
    if (const auto* pairs = dynamic_cast<const PairBatches*>(batches_.get()))
      note(fmt::format(
          "{} pairs of answers, {} of them cut; {} are left out, with nothing to learn within half a row; "
          "{} of a step lie in {} rows at first",
          pairs->num_pairs(), pairs->num_cut(), pairs->num_left_out(), recipe_.train.global_batch,
          pairs->rows_of(0)->rows.size()));
    if (const auto* answers = dynamic_cast<const PolicyBatches*>(batches_.get()))
      note(fmt::format("{} prompts; {} are left out, which leave an answer of {} tokens no room in a row",
                       answers->num_prompts(), answers->num_left_out(), recipe_.policy.max_tokens));
    if (recipe_.model.lora.rank > 0) {
      const ParamCount count = count_params(recipe_);
      note(fmt::format("training {} of {} parameters ({:.2f}%)", count.trained, count.all,
                       100 * double(count.trained) / double(count.all)));
      if (const Nf4Held held = nf4_held(trainer_); held.weights > 0)
        note(fmt::format("frozen weights as NF4: {}", describe(held)));
    }
    report_.is_first_rank = world_.rank() == 0;
    report_.first_step = trainer_.next_step();
    report_.eval_loss = report_.reward = report_.eval_reward = std::numeric_limits<double>::quiet_NaN();
    const double begin_s = seconds_now();
    while (trainer_.next_step() < recipe_.train.steps && !report_.was_interrupted) step();
    evaluate_if_due(true);
    save_if_due(true);
    finish_save();
    report_.steps = trainer_.next_step();
    report_.seconds = seconds_now() - begin_s;
    report_.tokens_per_s = timed_s_ > 0 ? double(timed_tokens_) / timed_s_ : 0;
    report_.mfu = mfu_of(report_.tokens_per_s);
    if (world_.rank() == 0) reporter_.reset();
    return report_;
  }

 private:
  // The device of a rank becomes its thread's.
  static Device device_of(const Recipe& recipe, const Communicator& world) {
    if (recipe.mesh.device == Device::cuda) use_cuda_device(world.rank());
    return recipe.mesh.device;
  }

  // Of all ranks.
  void find_peak_flops() {
    if (recipe_.mesh.device != Device::cpu) {
      peak_flops_ = options_.device_peak_flops * world_.size();
      return;
    }
    const Tensor peak = control_memory_.empty(DType::f64, {1});
    world_.barrier();
    *peak.data<double>() = cpu::measure_peak_flops(team_, recipe_.dtype());
    world_.all_reduce(peak);
    peak_flops_ = *peak.data<double>();
  }

  void note(const std::string& text) {
    if (reporter_)
      reporter_->note(text);
    else if (world_.rank() == 0)
      fmt::print(stderr, "{}\n", text);
  }

  // Rank 0 chooses the checkpoint; all ranks load it. Whether there was one.
  bool resume() {
    if (!store_ || recipe_.checkpoint.resume == "none") return false;
    const Patience patience(world_);
    std::string path = recipe_.checkpoint.resume == "auto" ? "" : recipe_.checkpoint.resume;
    const Tensor chosen = control_memory_.empty(DType::i64, {1});
    *chosen.data<int64_t>() = -1;
    if (path.empty() && world_.rank() == 0) {
      const FoundCheckpoint found = store_->newest_valid();
      for (const RejectedCheckpoint& r : found.rejected) note(fmt::format("{} is not used: {}", r.path, r.reason));
      if (found.checkpoint) *chosen.data<int64_t>() = found.checkpoint->step();
    }
    world_.broadcast(chosen, 0);
    if (path.empty()) {
      if (*chosen.data<int64_t>() < 0) return false;
      path = store_->path_of(*chosen.data<int64_t>());
    }
    if (!exists(FileSystem::real(), join_path(path, "manifest.json")))
      throw UsageError(
          "checkpoint.resume = \"{}\" holds no checkpoint: write auto, none or the folder of one, as in {}", path,
          store_->path_of(100));
    const Checkpoint checkpoint = Checkpoint::open(path);
    tokens_seen_ = saved_.load(checkpoint).tokens;
    note(fmt::format("resumed from {}", path));
    return true;
  }

  void step() {
    const int64_t step = trainer_.next_step() + 1;  // people count from 1
    const bool is_traced = trace_is_due(step);
    if (is_traced) trace_.start();
    const double comm_before = trainer_.mesh().exposed_seconds(), begin_s = seconds_now();
    const StepResult result = trainer_.step();
    if (result.was_left) {
      report_.was_interrupted = true;
      return;
    }
    const double step_s = seconds_now() - begin_s;
    if (is_traced) finish_trace(step);
    tokens_seen_ += result.num_tokens;
    if (step == report_.first_step + 1) report_.first_loss = result.loss;
    if (step == report_.first_step + 2) timed_s_ = 0, timed_tokens_ = 0;  // a first step takes longer than others
    timed_s_ += step_s, timed_tokens_ += result.num_tokens;
    report_.loss = result.loss;
    const auto policy = objective_ ? objective_->figures(trainer_) : std::nullopt;
    if (policy) report_.reward = policy->reward;
    exchange(result.waited_s / step_s);
    if (reporter_) {
      const double tokens_per_s = double(result.num_tokens) / step_s;
      reporter_->step({.step = step,
                       .loss = result.loss,
                       .mtp_loss = result.mtp_loss,
                       .expert_load = result.expert_load,
                       .expert_rank_load = result.expert_rank_load,
                       .grad_norm = result.grad_norm,
                       .lr = result.lr,
                       .tokens = tokens_seen_,
                       .tokens_per_s = tokens_per_s,
                       .step_s = step_s,
                       .mfu = mfu_of(tokens_per_s),
                       .hfu = mfu_of(tokens_per_s) * hfu_factor(),
                       .peak_bytes = peak_bytes_,
                       .comm_s = trainer_.mesh().exposed_seconds() - comm_before,
                       .policy = policy,
                       .bubble = bubble_});
      if (result.was_skipped)
        reporter_->note(
            fmt::format("step {}: a gradient was not finite; the step was skipped{}", step, next_scale()));
    }
    evaluate_if_due(false);
    save_if_due(false);
  }

  std::string next_scale() const {
    const LossScaler& scaler = trainer_.loss_scaler();
    return scaler.is_on() ? fmt::format(", and the loss scale is now {:g}", scaler.scale()) : "";
  }

  // Every rank's peak memory, whether any rank was asked to stop, the mean share of the step in which ranks waited
  // for other stages of a pipeline, and whether all have written their part of a checkpoint.
  void exchange(double waited_share) {
    const Tensor mine = peaks_.slice_rows(world_.rank(), 1);
    mine.data<int64_t>()[0] = allocator_.stats().peak_bytes;
    mine.data<int64_t>()[1] = is_stop_set();
    constexpr double kParts = 1e9;
    mine.data<int64_t>()[2] = int64_t(waited_share * kParts);
    mine.data<int64_t>()[3] = saver_ && saver_->is_written();
    world_.all_gather(peaks_, mine);
    peak_bytes_.resize(size_t(world_.size()));
    bubble_ = 0;
    bool is_written = true;
    for (int r = 0; r < world_.size(); ++r) {
      const int64_t* const theirs = peaks_.data<int64_t>() + kShared * r;
      peak_bytes_[size_t(r)] = theirs[0];
      report_.was_interrupted |= theirs[1] != 0;
      bubble_ += double(theirs[2]) / kParts / world_.size();
      is_written &= theirs[3] != 0;
    }
    if (is_written) finish_save();
  }

  bool is_stop_set() const { return options_.stop && options_.stop->load(std::memory_order_relaxed); }

  // Whether any rank was; all of them ask.
  bool is_asked_to_stop() {
    const Tensor asked = control_memory_.empty(DType::f64, {1});
    *asked.data<double>() = is_stop_set();
    world_.all_reduce(asked);
    report_.was_interrupted |= *asked.data<double>() > 0;
    return report_.was_interrupted;
  }

  void evaluate_if_due(bool is_end) {
    const int64_t step = trainer_.next_step(), every = recipe_.train.eval_every;
    const bool has_any = valid_.size() >= 2 || (objective_ && objective_->validates());
    if (!has_any || step == evaluated_step_ || report_.was_interrupted) return;
    if (!is_end && (every == 0 || step % every != 0)) return;
    evaluated_step_ = step;
    const std::optional<Validation> v = validate();
    if (!v) return;
    report_.eval_loss = v->loss;
    if (v->answers) report_.eval_reward = v->answers->reward;
    if (reporter_) reporter_->eval(step, *v);
  }

  // None where somebody asked to stop meanwhile.
  std::optional<Validation> validate() {
    if (objective_ && objective_->validates())
      return objective_->validate(trainer_, [this] { return is_asked_to_stop(); });
    const Mesh& mesh = trainer_.mesh();
    const EvalResult result = evaluate({.world = world_,
                                        .index = mesh.data_rank(),
                                        .count = mesh.shape().dp(),
                                        .counts_targets = trainer_.counts_loss() && mesh.place().cp == 0},
                                       valid_,
                                       {.seq_len = recipe_.train.seq_len,
                                        .rows = recipe_.train.micro_batch,
                                        .documents = recipe_.data.documents,
                                        .max_rows = recipe_.train.eval_batches * recipe_.train.global_batch,
                                        .is_over = [this] { return is_asked_to_stop(); }},
                                       [this](const Batch& batch) { return trainer_.evaluate(batch); });
    Validation v{result.loss};
    if (objective_) v.accuracy = objective_->accuracy(trainer_);
    if (!result.is_whole) return {};
    return v;
  }

  void save_if_due(bool is_end) {
    const int64_t step = trainer_.next_step(), every = recipe_.checkpoint.every;
    if (!store_ || step == saved_step_ || step == report_.first_step) return;
    if (!is_end && (every == 0 || step % every != 0)) return;
    saved_step_ = step;
    finish_save();
    save_begin_s_ = seconds_now();
    world_.set_place("taking a checkpoint", step);
    saver_->start(saved_.take(tokens_seen_));
    blocked_s_ = seconds_now() - save_begin_s_;
    if (!recipe_.checkpoint.is_async) finish_save();
  }

  void finish_save() {
    if (!saver_ || !saver_->is_busy()) return;
    const double begin_s = seconds_now();
    report_.checkpoint = saver_->finish();
    const double end_s = seconds_now();
    blocked_s_ += end_s - begin_s;
    if (reporter_) reporter_->checkpoint(saved_step_, blocked_s_, end_s - save_begin_s_);
  }

  bool trace_is_due(int64_t step) const {
    const std::vector<int64_t>& steps = recipe_.log.trace_steps;
    return !steps.empty() && step >= steps[0] && step <= steps[1];
  }
  void finish_trace(int64_t step) {
    trace_.stop();
    if (step == recipe_.log.trace_steps[1] || step == recipe_.train.steps)
      trace_.write(join_path(recipe_.log.dir, "trace.json"));
  }

  double mfu_of(double tokens_per_s) const {
    if (peak_flops_ == 0) return 0;
    return tokens_per_s * recipe_.model.flops_per_token(recipe_.train.seq_len) / peak_flops_;
  }
  double hfu_factor() const {
    const int64_t seq_len = recipe_.train.seq_len;
    return 1 + recipe_.model.recomputed_flops_per_token(seq_len, recipe_.train.recompute) /
                   recipe_.model.flops_per_token(seq_len);
  }

  const Recipe& recipe_;
  Communicator& world_;
  const RunOptions& options_;
  ThreadTeam team_;
  Allocator allocator_;       // of the model and its training
  Allocator control_memory_;  // of what the run itself exchanges
  Stream stream_;
  Context context_;
  const Dataset& dataset_;
  std::unique_ptr<BatchSource> batches_;
  std::unique_ptr<BatchSource> valid_pairs_;  // of preferences
  std::unique_ptr<Objective> objective_;      // null: the next token
  TokenPart valid_;
  TraceOps trace_;  // before the trainer, whose groups it observes too
  Trainer trainer_;
  SavedRun saved_;
  std::optional<CheckpointStore> store_;
  std::optional<CheckpointSaver> saver_;  // one with the other
  double save_begin_s_ = 0, blocked_s_ = 0;
  std::optional<Reporter> reporter_;
  RunReport report_;
  double peak_flops_ = 1;
  static constexpr int64_t kShared = 4;
  Tensor peaks_;  // [ranks, kShared]: peak bytes, asked to stop, share of waiting, checkpoint written
  double bubble_ = 0;
  std::vector<int64_t> peak_bytes_;
  int64_t tokens_seen_ = 0, timed_tokens_ = 0;
  double timed_s_ = 0;
  int64_t evaluated_step_ = -1, saved_step_ = -1;
};

}  // namespace

RunReport run_rank(const Recipe& recipe, const Dataset& dataset, Communicator& world, const RunOptions& options) {
  return Run(recipe, dataset, world, options).run();
}

}  // namespace weft
