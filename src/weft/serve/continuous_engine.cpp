// ContinuousEngine: take what came, plan a step, compute it, read its logits, tell.
#include "weft/serve/continuous_engine.h"

#include <algorithm>

#include "weft/serve/unit_length.h"
#include "weft/tensor/device_lost.h"

namespace weft {
namespace {

int64_t num_states(const ForwardModel& model, const ContinuousOptions& o) {
  return model.config().has_states() ? o.max_running + o.kept_states.value_or(0) : 0;
}

int64_t num_blocks(const ForwardModel& model, const ContinuousOptions& o) {
  if (o.kv_blocks > 0) return o.kv_blocks;
  const int64_t block =
      o.block_tokens * cache_bytes_of_token(model.config(), model.mesh().shape(), kv_format_of(o, model));
  const int64_t states = num_states(model, o) * state_bytes_of_sequence(model);
  if (o.kv_bytes < states + block)
    throw UsageError("--kv-cache: a block of {} tokens{} takes {} bytes, more than the {} that are given",
                     o.block_tokens, states > 0 ? " and the states" : "", states + block, o.kv_bytes);
  return (o.kv_bytes - states) / block;
}

// With states, where the model has such: they take at most half of the cache.
ContinuousOptions options_for(const ForwardModel& model, ContinuousOptions o) {
  if (!model.config().has_states()) return o;
  o.max_running = std::min(o.max_running, o.tokens_per_step);
  if (o.kv_blocks == 0) {
    const StateShares shares =
        share_states(state_bytes_of_sequence(model), o.kv_bytes, o.max_running, o.max_draft_tokens, o.keeps_prefixes);
    o.max_running = shares.running, o.kept_states = shares.kept;
  }
  if (!o.kept_states) o.kept_states = o.max_running * (o.max_draft_tokens + (o.keeps_prefixes ? 1 : 0));
  return o;
}

// Rotary positions that depend on how long the longest text of a step is would make an answer depend on its company:
// such a model serves texts up to the length where they begin to.
int64_t longest_text(const ModelConfig& c) {
  const RopeScaling& s = c.rope_scaling;
  return s.depends_on_length() ? std::min(c.context, s.original_context) : c.context;
}

// With a block for each of the model's own.
std::unique_ptr<Draft> make_draft(const ForwardModel& model, const ContinuousOptions& o) {
  if (!o.draft) return nullptr;
  return std::make_unique<Draft>(*o.draft, model.config().vocab, num_blocks(model, o), o.block_tokens,
                                 kv_format_of(o, *o.draft), o.tokens_per_step, o.max_running, o.max_draft_tokens);
}

std::unique_ptr<MtpDraft> make_mtp_draft(StepRunner& runner, ForwardModel& model, const ContinuousOptions& o) {
  if (model.config().mtp_layers == 0 || o.draft || o.max_draft_tokens == 0 || !model.is_driver()) return nullptr;
  return std::make_unique<MtpDraft>(runner, model);
}

std::function<void(std::span<const DraftTask>)> propose_draft_tokens(Draft* draft, MtpDraft* mtp) {
  if (draft) return [draft](std::span<const DraftTask> tasks) { draft->propose(tasks); };
  if (mtp) return [mtp](std::span<const DraftTask> tasks) { mtp->propose(tasks); };
  return {};
}

}  // namespace

ContinuousEngine::ContinuousEngine(ForwardModel& model, const ContinuousOptions& options)
    : model_(model),
      options_(options_for(model, options)),
      runner_(model, num_blocks(model, options_), options_.block_tokens, kv_format_of(options_, model),
              num_states(model, options_), options_.load_adapter),
      draft_(make_draft(model, options_)),
      mtp_(make_mtp_draft(runner_, model, options_)),
      scheduler_({.pool = {.num_blocks = num_blocks(model, options_),
                           .block_tokens = options_.block_tokens,
                           .keeps_prefixes = options_.keeps_prefixes},
                  .max_running = options_.max_running,
                  .tokens_per_step = options_.tokens_per_step,
                  .num_states = num_states(model, options_),
                  .max_draft_tokens = options_.max_draft_tokens,
                  .propose = propose_draft_tokens(draft_.get(), mtp_.get())}),
      choice_(model.context(), model.config().num_outputs()) {
  limits_ = {.vocab = model.config().vocab,
             .context = std::min(longest_text(model.config()), scheduler_.most_tokens()),
             .max_running = scheduler_.max_running(),
             .max_waiting = options.max_waiting,
             .labels = model.config().labels};
  add_first_adapters();
  tell_stats();
}

bool ContinuousEngine::take_requests() {
  std::optional<News> news = MeshEngine::take(scheduler_.any() != nullptr, model_.mesh().world());
  if (!news) return false;
  if (!news->cancelled.empty() || news->cancels_all) settle();
  load_adapters();
  for (SequencePtr& s : news->arrived) scheduler_.add(std::move(s));
  for (const RequestId id : news->cancelled)
    if (Sequence* s = scheduler_.find(id)) end(*s, {.reason = FinishReason::cancelled});
  while (news->cancels_all && scheduler_.any()) end(*scheduler_.any(), {.reason = FinishReason::cancelled});
  return true;
}

// The next step is computed before the one before it is answered, where that goes. What is planned knows only how
// long texts are.
void ContinuousEngine::step() {
  plan();
  attempt([this] {
    const Tensor logits = next_.parts.empty() ? Tensor() : compute();
    answer();
    std::swap(computed_, next_);
    if (!computed_.parts.empty()) go_on(logits);
  });
  tell_stats();
  tell_ends();
  drop_adapters();
}

// Else others may wait in the middle of a step that fails, or every further one would.
bool ContinuousEngine::goes_alone() const { return model_.mesh().world().size() == 1 && !model_.has_failed(); }

void ContinuousEngine::plan() {
  scheduler_.set_good_rows(cost_.good_rows());
  const std::span<const StepPart> plan = scheduler_.plan();
  next_.parts.assign(plan.begin(), plan.end());
  if (runner_.takes_adapters())  // rows of one adapter are computed together
    std::ranges::stable_sort(next_.parts, {}, [](const StepPart& part) { return part.sequence->adapter; });
}

Tensor ContinuousEngine::compute() {
  next_.began = Clock::now(), next_.num_rows = 0;
  runner_.clear();
  for (const StepPart& part : next_.parts) {
    Sequence& s = *part.sequence;
    if (!s.started) s.started = next_.began;
    runner_.add(std::span(s.tokens).subspan(size_t(part.first), size_t(part.count)), s.draft_tokens, part.first,
                s.blocks, part.num_wanted(), s.adapter, part.runs, part.end() == s.size() ? s.unread : -1);
    next_.num_rows += part.count + int64_t(s.draft_tokens.size());
  }
  try {
    return runner_.run(choice_.found_there());
  } catch (const Error&) {
    if (goes_alone()) answer();  // what was computed before is not lost with it
    throw;
  }
}

// Of the step that was computed last, before which all texts are known. It is answered now unless that can wait.
void ContinuousEngine::go_on(const Tensor& logits) {
  const std::span<const StepPart> parts = computed_.parts;
  choice_.begin(parts, logits);
  scheduler_.commit();
  ++totals_.steps_total;
  if (!logits) is_behind_ = true;  // all prompts are under way, none at its end
  const bool may_wait = options_.goes_ahead && options_.max_draft_tokens == 0;
  if (!may_wait || !choice_.leave_unread(parts, model_.config().has_states())) return answer();
  ++totals_.steps_ahead_total;
}

void ContinuousEngine::answer() {
  const std::span<const StepPart> parts = computed_.parts;  // whose sequences go when they end
  if (parts.empty()) return;
  choice_.choose(parts);
  if (mtp_) mtp_->learn(parts);
  if (choice_.has_logits()) {
    const auto now = Clock::now();
    if (!std::exchange(is_behind_, false))
      cost_.learn(computed_.num_rows,
                  std::chrono::duration<double>(now - std::max(computed_.began, answered_)).count());
    answered_ = now;
    for (size_t i = 0; i < parts.size(); ++i)
      if (parts[i].sequence) read(parts[i], choice_.of(i));
  }
  computed_.parts.clear();
}

void ContinuousEngine::attempt(FunctionRef<void()> work) {
  try {
    work();
  } catch (const DeviceLost&) {
    throw;
  } catch (const Error& e) {
    if (!goes_alone()) throw;
    fail(e);
  }
}

void ContinuousEngine::fail(const Error& error) {
  for (Step* const step : {&computed_, &next_}) {
    for (const StepPart& part : step->parts)
      if (part.sequence) end(*part.sequence, {.reason = FinishReason::error, .error = error.what()});
    step->parts.clear();
  }
}

// Before sequences go for other reasons than that their answers end.
void ContinuousEngine::settle() {
  attempt([this] { answer(); });
}

// Its rows of the step after the one that is answered are of a token that is not the one.
void ContinuousEngine::repeat_last(Sequence& s) {
  scheduler_.repeat_last(s);
  drop_parts(s);
}

void ContinuousEngine::drop_parts(const Sequence& s) {
  for (Step* const step : {&computed_, &next_})
    for (StepPart& part : step->parts)
      if (part.sequence == &s) part.sequence = nullptr;
}

void ContinuousEngine::tell_ends() {
  for (const Ended& e : ended_) e.sequence->sink->on_finish(e.finish);
  const size_t count = ended_.size();
  ended_.clear();
  if (count > 0) finished(count);
}

void ContinuousEngine::read(const StepPart& part, const PartChoice& chosen) {
  Sequence& s = *part.sequence;
  score_prompt(s, part, chosen.first_row);
  pool(s, part, chosen.first_row);
  if (chosen.is_lost) return repeat_last(s);
  const bool goes_on = chosen.count > 0 || chosen.stop || !chosen.error.empty();
  if (s.remaining() > 0 && !goes_on) return;
  if (!s.prefilled) {
    s.prefilled = Clock::now();
    totals_.prompt_tokens_total += s.num_prompt;
    totals_.cached_tokens_total += s.num_cached;
  }
  const int64_t num_chosen = chosen.count + (chosen.stop ? 1 : 0);
  s.num_completion += num_chosen, totals_.generated_tokens_total += num_chosen;
  if (!s.draft_tokens.empty()) {
    totals_.drafted_tokens_total += int64_t(s.draft_tokens.size()),
        totals_.accepted_tokens_total += chosen.num_accepted;
    scheduler_.accept(s, chosen.num_accepted);
  }
  const Request& r = s.request;
  const int64_t last_row = chosen.first_row + part.num_wanted() - 1;
  if (r.kind == Request::Kind::embed) return embed(s, last_row);
  if (r.kind == Request::Kind::weigh) return weigh(s, last_row);
  for (int64_t i = 0; i < chosen.count; ++i) {
    TokenEvent event{.token = s.tokens[size_t(s.size() - chosen.count + i)]};
    if (r.logprobs)
      event.log_probs = choice_.logits().log_probs(chosen.first + i, event.token, *r.logprobs,
                                                   chosen.log_sums[size_t(i)], log_probs_);
    s.sink->on_tokens({&event, 1});
  }
  if (!chosen.error.empty())
    return end(s, {.reason = FinishReason::error, .error = chosen.error, .is_refusal = chosen.is_refusal});
  if (chosen.stop) return end(s, {.reason = FinishReason::stop, .stop_token = chosen.stop});
  if (s.num_answer() >= r.max_tokens) end(s, {.reason = FinishReason::length});
}

void ContinuousEngine::pool(Sequence& s, const StepPart& part, int64_t first_row) {
  if (!s.request.pools_all() || part.num_wanted() == 0) return;
  runner_.hidden(first_row, part.num_wanted(), hidden_);
  const size_t width = hidden_.size() / size_t(part.num_wanted());
  s.pooled.resize(width);
  for (size_t begin = 0; begin < hidden_.size(); begin += width) {
    const double weight = weight_of(s.request.pooling, s.num_pooled++, s.num_prompt);
    for (size_t i = 0; i < width; ++i) s.pooled[i] += weight * double(hidden_[begin + i]);
  }
}

// The hidden state of the last token, which has seen all of them, or their mean.
void ContinuousEngine::embed(Sequence& s, int64_t row) {
  if (s.request.pools_all()) {
    const double weights = weights_of(s.request.pooling, s.num_prompt);
    vector_.clear();
    for (const double sum : s.pooled) vector_.push_back(float(sum / weights));
  } else {
    runner_.hidden(row, 1, vector_);
  }
  if (s.request.normalises) to_unit_length(vector_);
  s.sink->on_vector(vector_);
  end(s, {.reason = FinishReason::stop});
}

void ContinuousEngine::weigh(Sequence& s, int64_t row) {
  const std::span<const float> logits = choice_.logits().whole(row);
  vector_.clear();
  for (const int32_t token : s.request.weighed) vector_.push_back(logits[size_t(token)]);
  s.sink->on_vector(vector_);
  end(s, {.reason = FinishReason::stop});
}

void ContinuousEngine::score_prompt(Sequence& s, const StepPart& part, int64_t first_row) {
  if (!s.request.prompt_logprobs) return;
  const auto tell = [&](const TokenLogProbs& one) {
    s.sink->on_prompt({&one, 1});
    ++s.num_told;
  };
  if (s.num_told == 0) tell({});
  for (int64_t row = part.first_wanted; row < part.end() && s.num_told < s.num_prompt; ++row) {
    const LogitRows& logits = choice_.logits();
    const int64_t at = first_row + row - part.first_wanted;
    tell(logits.log_probs(at, s.tokens[size_t(row + 1)], *s.request.prompt_logprobs, logits.log_sum(at), log_probs_));
  }
}

void ContinuousEngine::end(Sequence& s, Finish finish) {
  finish = finish_now(s, std::move(finish));
  drop_parts(s);
  ended_.push_back({scheduler_.remove(s), std::move(finish)});
}

void ContinuousEngine::tell_stats() {
  const BlockPool& pool = scheduler_.pool();
  totals_.running = scheduler_.num_running(), totals_.waiting = scheduler_.num_waiting();
  totals_.kv_blocks = pool.num_blocks(), totals_.kv_blocks_used = pool.num_used();
  totals_.kv_block_tokens = pool.block_tokens();
  totals_.kv_tokens_used = scheduler_.num_tokens_held();
  totals_.preemptions_total = scheduler_.num_preemptions();
  publish(totals_);
}

// Of a server that ends: nothing may stay open, and nothing more comes.
void ContinuousEngine::end_all(FinishReason reason, const std::string& error) {
  close(reason, error);
  std::deque<Adapter> adapters;
  {
    const std::lock_guard lock(mutex_);
    adapters.swap(adapters_);
  }
  for (const Adapter& a : adapters)
    if (a.state == Adapter::State::loading) a.told(error.empty() ? "the server is shutting down" : error);
  while (Sequence* s = scheduler_.any()) end(*s, {.reason = reason, .error = error});
  computed_.parts.clear();
  step();
}

}  // namespace weft
