// PolicyObjective: a round of answers, then steps on them.
#include "weft/train/policy/policy_objective.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "weft/base/file.h"
#include "weft/base/philox.h"
#include "weft/base/timing.h"
#include "weft/train/pass_of.h"

namespace weft {
namespace {

// Sums over all ranks.
std::vector<double> sum_over(Communicator& world, std::span<const double> mine) {
  Allocator memory;  // not part of the training's figures
  const Tensor all = memory.empty(DType::f64, {int64_t(mine.size())});
  std::ranges::copy(mine, all.data<double>());
  world.all_reduce(all);
  return {all.data<double>(), all.data<double>() + mine.size()};
}

}  // namespace

PolicyObjective::PolicyObjective(const Recipe& recipe, PolicyBatches& batches, const std::vector<Prompt>& valid,
                                 const Tokenizer& tokenizer, std::unique_ptr<Answerer> answerer,
                                 std::unique_ptr<ForwardModel> reference)
    : recipe_(recipe),
      batches_(batches),
      tokenizer_(tokenizer),
      answerer_(std::move(answerer)),
      reward_(make_reward(recipe.policy)),
      reference_(std::move(reference)) {
  if (valid.empty()) return;
  valid_ = answerable(recipe, valid, "data.valid");
  const int64_t most = recipe.train.eval_batches * recipe.train.global_batch;
  if (most > 0 && most < int64_t(valid_.size())) valid_.resize(size_t(most));
}

// Answers and what they are worth come from the ranks that were given them.
PolicyObjective::Answers PolicyObjective::answer(Trainer& trainer, std::span<const Question> questions,
                                                 PromptOf prompt_of) {
  Communicator& world = trainer.mesh().world();
  const Patience patience(world);
  world.set_place("answers of the model", trainer.next_step() + 1);
  const auto begin = std::chrono::steady_clock::now();
  const Answerer::Given given = answerer_->answer(questions);
  std::vector<ScoredAnswer> scored;
  for (size_t i = 0; i < given.answers.size(); ++i)
    scored.push_back(scored_answer(prompt_of(size_t(given.first) + i), given.answers[i], tokenizer_));
  world.set_place("rewards of answers", trainer.next_step() + 1);
  const std::vector<double> rewards = reward_->score(scored);

  int64_t most = 0;
  for (const Question& q : questions) most = std::max(most, q.max_tokens);
  Answers all{share_answers(world, int64_t(questions.size()), most, given, rewards)};
  const Answerer::Speed speed = answerer_->speed();
  const double rate = speed.seconds > 0 ? double(speed.tokens) / speed.seconds : 0;
  all.tokens_per_s = sum_over(world, std::array{rate})[0];
  all.seconds = seconds_since(begin);
  return all;
}

bool PolicyObjective::begin_step(Trainer& trainer, int64_t step) {
  sums_ = {}, gap_ = gap_tokens_ = 0;
  return batches_.has(step) || begin_round(trainer, batches_.round_of(step));
}

bool PolicyObjective::begin_round(Trainer& trainer, int64_t round) {
  const uint64_t kPurpose = name_hash("rl.answer");
  const PolicyConfig& c = recipe_.policy;
  std::vector<Question> questions;
  for (int64_t row = 0; row < batches_.rows_of_round(); ++row) {
    const Philox4 bits = philox(recipe_.train.seed, uint64_t(round * batches_.rows_of_round() + row), kPurpose);
    questions.push_back({.prompt = batches_.prompt_of(round, row).ids,
                         .max_tokens = c.max_tokens,
                         .temperature = c.temperature,
                         .seed = to_number(bits)});
  }
  Answers answers = answer(trainer, questions,
                           [&](size_t row) -> const Prompt& { return batches_.prompt_of(round, int64_t(row)); });
  if (answers.answers.empty()) return false;
  batches_.begin(round, rows_of(round, answers));
  if (trainer.mesh().world().rank() == 0 && c.log_answers > 0) log(trainer.next_step(), answers);
  if (c.updates > 1 || c.beta > 0) measure(trainer, round);
  return true;
}

std::vector<PolicyBatches::Row> PolicyObjective::rows_of(int64_t round, Answers& answers) {
  const PolicyConfig& c = recipe_.policy;
  const std::vector<double> worth = advantages(c, answers.rewards);
  const auto count = double(worth.size()), group = double(c.answers);
  round_ = {.answers_s = answers.seconds, .answer_tokens_per_s = answers.tokens_per_s};
  std::vector<PolicyBatches::Row> rows;
  std::vector<int64_t> lengths;
  for (size_t i = 0; i < worth.size(); ++i) {
    const std::vector<int32_t>& prompt = batches_.prompt_of(round, int64_t(i)).ids;
    PolicyBatches::Row row{.tokens = prompt, .prompt = prompt.size(), .advantage = worth[i]};
    GivenAnswer& answer = answers.answers[i];
    row.tokens.insert(row.tokens.end(), answer.tokens.begin(), answer.tokens.end());
    row.given = std::move(answer.logps);
    const bool is_learned = c.learns_cut_answers() || !answer.is_cut;
    lengths.push_back(is_learned ? int64_t(row.answer_tokens()) : 0);
    round_.reward += answers.rewards[i] / count, round_.cut += answer.is_cut / count;
    round_.answer_tokens += double(row.answer_tokens()) / count;
    rows.push_back(std::move(row));
  }
  for (size_t begin = 0; begin < worth.size(); begin += size_t(c.answers)) {
    const std::span<const double> of_prompt = std::span(answers.rewards).subspan(begin, size_t(c.answers));
    round_.reward_std += spread_of(of_prompt).deviation * group / count;
    round_.alike += std::ranges::all_of(of_prompt, [&](double r) { return r == of_prompt[0]; }) * group / count;
  }
  // Each step has weights of its own.
  const auto of_step = size_t(recipe_.train.global_batch);
  for (size_t i = 0; i < rows.size(); ++i)
    rows[i].weight = token_weight(c, lengths[i], std::span(lengths).subspan(i / of_step * of_step, of_step));
  return rows;
}

// The first of a round, as a reader sees them.
void PolicyObjective::log(int64_t step, const Answers& answers) {
  if (!log_) log_.emplace(FileSystem::real(), join_path(recipe_.log.dir, "answers.jsonl"), step);
  const auto quoted = [](const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  const auto count = std::min(size_t(recipe_.policy.log_answers), batches_.rows().size());
  for (size_t i = 0; i < count; ++i) {
    const PolicyBatches::Row& row = batches_.rows()[i];
    const std::span<const int32_t> all = row.tokens;
    log_->write(fmt::format(
        "{{\"step\":{},\"reward\":{},\"advantage\":{},\"cut\":{},\"prompt\":{},\"completion\":{},\"tokens\":[{}]}}",
        step + 1, answers.rewards[i], row.advantage, answers.answers[i].is_cut,
        quoted(tokenizer_.decode(all.first(row.prompt), true)),
        quoted(tokenizer_.decode(all.subspan(row.prompt), true)), fmt::join(all.subspan(row.prompt), ",")));
  }
}

// What the model that gave the answers, and the reference, say of this rank's rows.
void PolicyObjective::measure(Trainer& trainer, int64_t round) {
  const TrainConfig& t = recipe_.train;
  Batch batch;
  SequenceSpans spans;
  const auto keep = [&](int64_t step, int64_t first, std::vector<double> PolicyBatches::Row::*logps) {
    if (measured_.empty()) return;  // the head is on another rank
    for (int64_t r = 0; r < t.micro_batch; ++r) {
      PolicyBatches::Row& row = batches_.row(step, first + r);
      const auto begin = measured_.begin() + r * t.seq_len + int64_t(row.prompt) - 1;
      (row.*logps).assign(begin, begin + int64_t(row.answer_tokens()));
    }
  };
  for (int64_t step = round * recipe_.policy.updates; batches_.round_of(step) == round; ++step)
    for (int64_t m = 0; m < t.accumulation; ++m) {
      const int64_t first = (trainer.mesh().data_rank() * t.accumulation + m) * t.micro_batch;
      batches_.fill(step, int32_t(first), int32_t(t.micro_batch), batch);
      if (recipe_.policy.updates > 1) {
        trainer.evaluate(batch);
        keep(step, first, &PolicyBatches::Row::old_logps);
      }
      if (recipe_.policy.beta == 0) continue;
      if (!reference_) {
        trainer.evaluate(batch, false);
      } else {
        measured_.clear();
        reference_->result(pass_of(batch, 0, spans),
                           [&](const Partition& partition, Param& weight, float softcap, const Var& hidden) {
                             const TokenRule take = [&](std::span<const double> logps, std::span<double>) {
                               measured_.assign(logps.begin(), logps.end());
                               return 0.0;
                             };
                             return token_loss(partition.tensor, {weight, softcap, float(recipe_.policy.temperature)},
                                               batch.targets.data(), take, 0, hidden);
                           });
      }
      keep(step, first, &PolicyBatches::Row::reference);
    }
}

Var PolicyObjective::loss(Context& context, Decoder& part, const MicroBatches::Slot& slot, const Var& x,
                          float grad_scale, Brackets& brackets) {
  return answer_tokens_loss(
      context, part, slot, x, recipe_.policy,
      [&](std::span<const double> logps, std::span<double> dlogps) { return rule(slot, logps, dlogps); }, grad_scale,
      brackets);
}

Var PolicyObjective::evaluate(Context& context, Decoder& part, const MicroBatches::Slot& slot, const Var& x,
                              Brackets& brackets) {
  return answer_tokens_loss(
      context, part, slot, x, recipe_.policy,
      [&](std::span<const double> logps, std::span<double>) {
        measured_.assign(logps.begin(), logps.end());
        return 0.0;
      },
      0, brackets);
}

double PolicyObjective::rule(const MicroBatches::Slot& slot, std::span<const double> logps,
                             std::span<double> dlogps) {
  const bool is_as_given = slot.pass.step % recipe_.policy.updates == 0 && recipe_.policy.temperature == 1;
  double loss = 0;
  for (int32_t r = 0; r < slot.batch.rows; ++r) {
    const PolicyBatches::Row& row = batches_.row(slot.pass.step, slot.first_row + r);
    if (row.weight == 0) continue;
    const size_t begin = size_t(r) * size_t(slot.batch.seq_len) + row.prompt - 1, count = row.answer_tokens();
    const LearnedAnswer answer{.logps = logps.subspan(begin, count),
                               .old_logps = row.old_logps,
                               .reference = row.reference,
                               .advantage = row.advantage,
                               .weight = row.weight};
    const PolicySums sums =
        policy_loss(recipe_.policy, answer, dlogps.empty() ? dlogps : dlogps.subspan(begin, count));
    loss += sums.loss;
    sums_.tokens += sums.tokens, sums_.clipped += sums.clipped, sums_.divergence += sums.divergence;
    for (size_t t = 0; is_as_given && t < row.given.size(); ++t)
      gap_ += std::abs(answer.logps[t] - double(row.given[t])), ++gap_tokens_;
  }
  return loss;
}

std::optional<PolicyFigures> PolicyObjective::figures(Trainer& trainer) {
  const double mine[] = {sums_.tokens, sums_.clipped, sums_.divergence, gap_, gap_tokens_};
  const std::vector<double> all = sum_over(
      trainer.mesh().world(), trainer.counts_loss() ? std::span<const double>(mine) : std::vector<double>(5));
  PolicyFigures figures = round_;
  if (all[0] > 0) figures.clipped = all[1] / all[0];
  if (recipe_.policy.beta > 0 && all[0] > 0) figures.kl = all[2] / all[0];
  if (all[4] > 0) figures.gap = all[3] / all[4];
  return figures;
}

std::optional<Validation> PolicyObjective::validate(Trainer& trainer, FunctionRef<bool()> is_over) {
  std::vector<Question> questions;
  for (const Prompt* p : valid_)
    questions.push_back({.prompt = p->ids, .max_tokens = recipe_.policy.max_tokens, .temperature = 0});
  const Answers answers = answer(trainer, questions, [&](size_t i) -> const Prompt& { return *valid_[i]; });
  if (answers.answers.empty()) {
    is_over();  // so that it is known to whoever asks next
    return {};
  }
  Validation::Answers mean;
  const auto count = double(questions.size());
  for (const double reward : answers.rewards) mean.reward += reward / count;
  for (const GivenAnswer& a : answers.answers) mean.tokens += double(a.tokens.size()) / count;
  return Validation{.loss = std::numeric_limits<double>::quiet_NaN(), .answers = mean};
}

Var answer_tokens_loss(Context& context, Decoder& part, const MicroBatches::Slot& slot, const Var& x,
                       const PolicyConfig& config, const TokenRule& rule, float grad_scale, Brackets& brackets) {
  return part.result(context, slot.pass, x, brackets,
                     [&](const Partition& partition, Param& weight, float softcap, const Var& hidden) {
                       return token_loss(partition.tensor, {weight, softcap, float(config.temperature)},
                                         slot.batch.targets.data(), rule, grad_scale, hidden);
                     });
}

}  // namespace weft
