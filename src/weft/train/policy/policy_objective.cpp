// PolicyObjective: a round of answers, then steps on them.
#include "weft/train/policy/policy_objective.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "weft/base/file.h"
#include "weft/base/philox.h"
#include "weft/base/timing.h"

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
                                 const Tokenizer& tokenizer, std::unique_ptr<Answerer> answerer, Beside beside,
                                 const Mesh& mesh)
    : recipe_(recipe),
      batches_(batches),
      tokenizer_(tokenizer),
      answerer_(std::move(answerer)),
      beside_(std::move(beside)),
      mesh_(mesh),
      read_(recipe, mesh, batches, 1) {
  if (valid.empty()) return;
  valid_ = answerable(recipe, valid, "data.valid");
  const int64_t most = recipe.train.eval_batches * recipe.train.global_batch;
  if (most > 0 && most < int64_t(valid_.size())) valid_.resize(size_t(most));
}

// Answers and what they are worth come from the ranks that were given them.
PolicyObjective::Answers PolicyObjective::answer(Trainer& trainer, std::span<const Question> questions,
                                                 std::vector<const Prompt*> prompts) {
  Communicator& world = trainer.mesh().world();
  const Patience patience(world);
  world.set_place("answers of the model", trainer.next_step() + 1);
  const auto begin = std::chrono::steady_clock::now();
  const Answerer::Given given = answerer_->answer(questions);
  world.set_place("rewards of answers", trainer.next_step() + 1);
  std::vector<double> rewards(given.answers.size());
  if (beside_.reward) {
    std::vector<ScoredAnswer> scored;
    for (size_t i = 0; i < given.answers.size(); ++i)
      scored.push_back(scored_answer(*prompts[size_t(given.first) + i], given.answers[i], tokenizer_));
    rewards = beside_.reward->score(scored);
  }

  int64_t most = 0;
  for (const Question& q : questions) most = std::max(most, q.max_tokens);
  Answers all{share_answers(world, int64_t(questions.size()), most, given, rewards), std::move(prompts)};
  if (beside_.reward_model && !all.answers.empty()) {
    std::vector<std::vector<int32_t>> texts;
    for (size_t i = 0; i < all.answers.size(); ++i) {
      texts.push_back(all.prompts[i]->ids);
      texts.back().insert(texts.back().end(), all.answers[i].tokens.begin(), all.answers[i].tokens.end());
    }
    all.rewards = beside_.reward_model->score(texts);
  }
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

// Groups of answers that are all worth the same, from which nothing is learned, are replaced by those to other
// prompts, as often as there are attempts. Figures are of the first one: what the model is worth.
bool PolicyObjective::begin_round(Trainer& trainer, int64_t round) {
  const PolicyConfig& c = recipe_.policy;
  const auto group = std::ptrdiff_t(c.answers);
  std::vector<int64_t> asked(size_t(batches_.answers_of_round() / c.answers));
  std::iota(asked.begin(), asked.end(), 0);
  Answers all = attempt(trainer, round, 0, asked);
  if (all.answers.empty()) return false;
  note(all);
  const auto are_alike = [&](int64_t g) {
    return weft::are_alike(std::span(all.rewards).subspan(size_t(g * group), size_t(group)));
  };
  for (int64_t number = 1; number < c.attempts; ++number) {
    std::erase_if(asked, [&](int64_t g) { return !are_alike(g); });
    if (asked.empty()) break;
    Answers more = attempt(trainer, round, number, asked);
    if (more.answers.empty()) return false;
    round_.answers_s += more.seconds;
    for (size_t i = 0; i < asked.size(); ++i) {
      const auto from = std::ptrdiff_t(i) * group, to = asked[i] * group;
      std::move(more.answers.begin() + from, more.answers.begin() + from + group, all.answers.begin() + to);
      std::copy_n(more.rewards.begin() + from, group, all.rewards.begin() + to);
      std::copy_n(more.prompts.begin() + from, group, all.prompts.begin() + to);
    }
  }
  const std::vector<double> rewards = all.rewards;
  batches_.begin(round, learned(std::move(all)));
  if (trainer.mesh().world().rank() == 0 && c.log_answers > 0) log(trainer.next_step(), rewards);
  if (c.updates > 1 || c.beta > 0) measure(trainer, round);
  return true;
}

// Answers to the prompts of some of a round's groups.
PolicyObjective::Answers PolicyObjective::attempt(Trainer& trainer, int64_t round, int64_t number,
                                                  std::span<const int64_t> groups) {
  const uint64_t kPurpose = name_hash("rl.answer") + uint64_t(number);
  const PolicyConfig& c = recipe_.policy;
  std::vector<Question> questions;
  std::vector<const Prompt*> prompts;
  for (const int64_t g : groups)
    for (int64_t i = g * c.answers; i < (g + 1) * c.answers; ++i) {
      const Philox4 bits = philox(recipe_.train.seed, uint64_t(round * batches_.answers_of_round() + i), kPurpose);
      prompts.push_back(&batches_.prompt_of(round, i, number));
      questions.push_back({.prompt = prompts.back()->ids,
                           .max_tokens = c.max_tokens,
                           .temperature = c.temperature,
                           .seed = to_number(bits)});
    }
  return answer(trainer, questions, std::move(prompts));
}

void PolicyObjective::note(const Answers& answers) {
  const auto count = double(answers.rewards.size()), group = double(recipe_.policy.answers);
  round_ = {.answers_s = answers.seconds, .answer_tokens_per_s = answers.tokens_per_s};
  for (size_t i = 0; i < answers.rewards.size(); ++i) {
    round_.reward += answers.rewards[i] / count, round_.cut += answers.answers[i].is_cut / count;
    round_.answer_tokens += double(answers.answers[i].tokens.size()) / count;
  }
  for (size_t begin = 0; begin < answers.rewards.size(); begin += size_t(recipe_.policy.answers)) {
    const std::span of_prompt = std::span(answers.rewards).subspan(begin, size_t(recipe_.policy.answers));
    round_.reward_std += spread_of(of_prompt).deviation * group / count;
    round_.alike += are_alike(of_prompt) * group / count;
  }
}

std::vector<PolicyBatches::Answer> PolicyObjective::learned(Answers answers) const {
  const PolicyConfig& c = recipe_.policy;
  const std::vector<double> worth = advantages(c, answers.rewards);
  std::vector<PolicyBatches::Answer> all;
  std::vector<int64_t> lengths;
  for (size_t i = 0; i < worth.size(); ++i) {
    const std::vector<int32_t>& prompt = answers.prompts[i]->ids;
    GivenAnswer& given = answers.answers[i];
    PolicyBatches::Answer answer{
        .tokens = prompt, .prompt = prompt.size(), .advantage = worth[i], .given = std::move(given.logps)};
    answer.tokens.insert(answer.tokens.end(), given.tokens.begin(), given.tokens.end());
    answer.is_cut = given.is_cut;
    const bool is_learned = c.learns_cut_answers() || !given.is_cut;
    lengths.push_back(is_learned ? int64_t(answer.answer_tokens()) : 0);
    all.push_back(std::move(answer));
  }
  // Each step has weights of its own.
  const auto of_step = size_t(batches_.answers_of_step());
  for (size_t i = 0; i < all.size(); ++i)
    all[i].weight = token_weight(c, lengths[i], std::span(lengths).subspan(i / of_step * of_step, of_step));
  return all;
}

// The first of a round, as a reader sees them.
void PolicyObjective::log(int64_t step, std::span<const double> rewards) {
  if (!log_) log_.emplace(FileSystem::real(), join_path(recipe_.log.dir, "answers.jsonl"), step);
  const auto quoted = [](const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  const auto count = std::min(size_t(recipe_.policy.log_answers), batches_.answers().size());
  for (size_t i = 0; i < count; ++i) {
    const PolicyBatches::Answer& answer = batches_.answers()[i];
    const std::span<const int32_t> all = answer.tokens;
    log_->write(fmt::format(
        "{{\"step\":{},\"reward\":{},\"advantage\":{},\"cut\":{},\"prompt\":{},\"completion\":{},\"tokens\":[{}]}}",
        step + 1, rewards[i], answer.advantage, answer.is_cut,
        quoted(tokenizer_.decode(all.first(answer.prompt), true)),
        quoted(tokenizer_.decode(all.subspan(answer.prompt), true)), fmt::join(all.subspan(answer.prompt), ",")));
  }
}

template <class Visit>
void PolicyObjective::each_part(int64_t step, int64_t first_row, std::span<const TokenSpan> tokens, Visit&& visit) {
  const int64_t length = recipe_.train.seq_len;
  for (const TokenSpan& span : tokens) {
    const int64_t end = span.first_token + span.count;
    for (int64_t row = span.first_token / length; row * length < end; ++row)
      for (const PolicyBatches::Placed& placed : batches_.row(step, first_row + row)) {
        PolicyBatches::Answer& answer = batches_.answer(step, placed);
        // The token before one of the answer's predicts it.
        const int64_t begin = row * length + placed.begin + int64_t(answer.prompt) - 1;
        const int64_t from = std::max(begin, span.first_token);
        const int64_t count = std::min(begin + int64_t(answer.answer_tokens()), end) - from;
        if (count > 0)
          visit(answer, size_t(from - begin), size_t(span.begin + from - span.first_token), size_t(count));
      }
  }
}

// What the model that gave the answers, and the reference, say of this rank's tokens.
void PolicyObjective::measure(Trainer& trainer, int64_t round) {
  const TrainConfig& t = recipe_.train;
  Batch batch;
  const auto keep = [&](int64_t step, int64_t first, std::vector<double> PolicyBatches::Answer::*logps) {
    if (measured_.empty()) return;  // the head is on another rank
    each_part(
        step, first, measured_tokens_, [&](PolicyBatches::Answer& answer, size_t token, size_t at, size_t count) {
          (answer.*logps).resize(answer.answer_tokens());
          std::copy_n(measured_.begin() + std::ptrdiff_t(at), count, (answer.*logps).begin() + std::ptrdiff_t(token));
        });
  };
  for (int64_t step = round * recipe_.policy.updates; batches_.round_of(step) == round; ++step) {
    const int64_t count = batches_.num_micro_batches(step, t.accumulation);
    for (int64_t m = 0; m < count; ++m) {
      const int64_t first = (trainer.mesh().data_rank() * count + m) * t.micro_batch;
      batches_.fill(step, int32_t(first), int32_t(t.micro_batch), batch);
      if (recipe_.policy.updates > 1) {
        trainer.evaluate(batch);
        keep(step, first, &PolicyBatches::Answer::old_logps);
      }
      if (recipe_.policy.beta == 0) continue;
      if (!beside_.reference) {
        trainer.evaluate(batch, false);
      } else {
        measured_.clear();
        const MicroBatches::Slot& slot = read_.evaluation(batch);
        measured_tokens_.assign(slot.tokens.begin(), slot.tokens.end());
        const TokenRule take = [&](std::span<const double> logps, std::span<double>) {
          measured_.assign(logps.begin(), logps.end());
          return 0.0;
        };
        const auto head_of = [&](const Partition& partition, const HeadView& head, const Var& hidden) {
          return token_loss(partition.tensor, head, float(recipe_.policy.temperature), slot.batch.targets.data(),
                            take, 0, hidden);
        };
        beside_.reference->result(slot.pass, head_of);
      }
      keep(step, first, &PolicyBatches::Answer::reference);
    }
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
        measured_tokens_.assign(slot.tokens.begin(), slot.tokens.end());
        return 0.0;
      },
      0, brackets);
}

// Of the round's answers, those with tokens in this micro-batch; none where each token has its own.
std::vector<double> PolicyObjective::log_ratios(const MicroBatches::Slot& slot, std::span<const double> logps) {
  if (!recipe_.policy.has_one_ratio() || recipe_.policy.updates == 1) return {};
  Allocator memory;  // of the host
  const Tensor all = memory.empty(DType::f64, {int64_t(batches_.answers().size())});
  const std::span ratios(all.data<double>(), batches_.answers().size());
  std::ranges::fill(ratios, 0.0);
  each_part(
      slot.pass.step, 0, slot.tokens, [&](const PolicyBatches::Answer& of, size_t token, size_t at, size_t count) {
        const double mean = log_ratio_of(logps.subspan(at, count), std::span(of.old_logps).subspan(token, count));
        ratios[size_t(&of - batches_.answers().data())] += mean * double(count) / double(of.answer_tokens());
      });
  mesh_.cp().all_reduce(all);
  return {ratios.begin(), ratios.end()};
}

double PolicyObjective::rule(const MicroBatches::Slot& slot, std::span<const double> logps,
                             std::span<double> dlogps) {
  const bool is_as_given = slot.pass.step % recipe_.policy.updates == 0 && recipe_.policy.temperature == 1;
  const std::vector<double> ratios = log_ratios(slot, logps);
  double loss = 0;
  each_part(slot.pass.step, 0, slot.tokens,
            [&](const PolicyBatches::Answer& of, size_t token, size_t at, size_t count) {
              const auto part = [&](const std::vector<double>& all) {
                return all.empty() ? std::span<const double>() : std::span(all).subspan(token, count);
              };
              LearnedAnswer answer{.logps = logps.subspan(at, count),
                                   .old_logps = part(of.old_logps),
                                   .reference = part(of.reference),
                                   .advantage = of.advantage,
                                   .weight = of.weight};
              if (!ratios.empty()) answer.log_ratio = ratios[size_t(&of - batches_.answers().data())];
              const PolicySums sums =
                  policy_loss(recipe_.policy, answer, dlogps.empty() ? dlogps : dlogps.subspan(at, count));
              loss += sums.loss;
              sums_.tokens += sums.tokens, sums_.clipped += sums.clipped, sums_.divergence += sums.divergence;
              for (size_t t = 0; is_as_given && t < count && token + t < of.given.size(); ++t)
                gap_ += std::abs(answer.logps[t] - double(of.given[token + t])), ++gap_tokens_;
            });
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
  const Answers answers = answer(trainer, questions, valid_);
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
                     [&](const Partition& partition, const HeadView& head, const Var& hidden) {
                       return token_loss(partition.tensor, head, float(config.temperature), slot.batch.targets.data(),
                                         rule, grad_scale, hidden);
                     });
}

}  // namespace weft
