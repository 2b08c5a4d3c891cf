// SequentialEngine: prefill in pieces, then a token at a time, each with a look at what was cancelled.
#include "weft/serve/sequential_engine.h"

#include <algorithm>

namespace weft {

SequentialEngine::SequentialEngine(ForwardModel& model, const SequentialOptions& options)
    : model_(model), options_(options) {
  if (model.mesh().world().size() > 1) throw UsageError("--mesh: this engine runs on one rank; leave the mesh out");
  const ModelConfig& c = model.config();
  limits_ = {.vocab = c.vocab, .context = c.context, .max_running = 1, .max_waiting = options.max_waiting};
}

SequentialEngine::~SequentialEngine() {
  for (Job& job : waiting_) reject(job);
}

void SequentialEngine::reject(Job& job) {
  job.sink->on_finish(
      {.reason = FinishReason::cancelled, .usage = {.prompt_tokens = int64_t(job.request.prompt.size())}});
}

void SequentialEngine::check_request(const Request& r) const {
  if (r.kind != Request::Kind::generate) throw Unsupported("this server makes no embeddings");
  if (!r.adapter.empty()) throw UsageError("there is no adapter {}", r.adapter);
  if (r.prompt.empty()) throw UsageError("the prompt is empty, and at least one token is needed");
  if (int64_t(r.prompt.size()) >= limits_.context)
    throw UsageError("the prompt has {} tokens and the model's context is {}: shorten it", r.prompt.size(),
                     limits_.context);
  for (const int32_t token : r.prompt) {
    if (token < 0 || token >= limits_.vocab) throw UsageError("{} is no token of this model", token);
  }
}

RequestId SequentialEngine::submit(Request request, std::unique_ptr<RequestSink> sink) {
  check_request(request);
  constexpr double kRetryAfter = 1;
  const std::lock_guard lock(mutex_);
  if (is_draining_ || is_stopped_) throw Busy("the server is shutting down", kRetryAfter);
  if (int64_t(waiting_.size()) >= options_.max_waiting) throw Busy("the queue is full; try again soon", kRetryAfter);
  request.max_tokens = std::min(request.max_tokens, limits_.context - int64_t(request.prompt.size()));
  Job job{.id = ++last_id_, .request = std::move(request), .sink = std::move(sink), .submitted = Clock::now()};
  const auto later = std::find_if(waiting_.begin(), waiting_.end(),
                                  [&](const Job& other) { return other.request.priority > job.request.priority; });
  const RequestId id = job.id;
  waiting_.insert(later, std::move(job));
  changed_.notify_all();
  return id;
}

void SequentialEngine::cancel(RequestId id) {
  std::optional<Job> removed;
  {
    const std::lock_guard lock(mutex_);
    if (id == running_) is_cancelled_ = true;
    const auto job = std::find_if(waiting_.begin(), waiting_.end(), [&](const Job& j) { return j.id == id; });
    if (job == waiting_.end()) return;
    removed.emplace(std::move(*job));
    waiting_.erase(job);
    changed_.notify_all();
  }
  reject(*removed);
}

EngineStats SequentialEngine::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = totals_;
  stats.running = running_ != 0;
  stats.waiting = int64_t(waiting_.size());
  stats.kv_blocks = 1, stats.kv_blocks_used = stats.running;
  stats.kv_block_tokens = limits_.context;
  return stats;
}

void SequentialEngine::drain(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  is_draining_ = true;
  const auto is_idle = [&] { return running_ == 0 && waiting_.empty(); };
  if (changed_.wait_for(lock, patience, is_idle)) return;
  is_cancelled_ = true;
  std::deque<Job> rest;
  rest.swap(waiting_);
  lock.unlock();
  for (Job& job : rest) reject(job);
  lock.lock();
  changed_.wait(lock, is_idle);
}

void SequentialEngine::stop() {
  const std::lock_guard lock(mutex_);
  is_stopped_ = is_cancelled_ = true;
  changed_.notify_all();
}

std::optional<SequentialEngine::Job> SequentialEngine::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_stopped_ || !waiting_.empty(); });
  if (is_stopped_) return {};
  std::optional<Job> job(std::move(waiting_.front()));
  waiting_.pop_front();
  running_ = job->id;
  is_cancelled_ = false;
  return job;
}

void SequentialEngine::run() {
  while (std::optional<Job> job = next()) {
    serve(*job);
    const std::lock_guard lock(mutex_);
    running_ = 0;
    changed_.notify_all();
  }
}

void SequentialEngine::serve(Job& job) {
  job.started = Clock::now();
  Finish finish;
  try {
    finish = continue_prompt(job);
  } catch (const Error& e) {
    finish = {.reason = FinishReason::error, .error = e.what()};
  }
  finish.usage.prompt_tokens = int64_t(job.request.prompt.size());
  finish.times.queued_s = std::chrono::duration<double>(job.started - job.submitted).count();
  {
    const std::lock_guard lock(mutex_);
    totals_.prompt_tokens_total += finish.usage.prompt_tokens;
    totals_.generated_tokens_total += finish.usage.completion_tokens;
    totals_.steps_total += finish.usage.completion_tokens;
  }
  job.sink->on_finish(finish);
}

Tensor SequentialEngine::forward(std::span<const int32_t> tokens, KvCache& cache, bool all) {
  positions_.resize(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) positions_[i] = int32_t(cache.length() + int64_t(i));
  const Pass pass{.ids = tokens.data(),
                  .num_tokens = int64_t(tokens.size()),
                  .attention = {.positions = positions_.data(), .cache = &cache}};
  return all ? model_.logits(pass, 0, pass.num_tokens) : model_.logits(pass, pass.num_tokens - 1, 1);
}

// False when it was cancelled.
bool SequentialEngine::prefill(Job& job, KvCache& cache, Tensor& logits, LogProbs& work) {
  const Request& r = job.request;
  const std::span<const int32_t> prompt = r.prompt;
  const auto row = [&](int64_t i) {
    return std::span(logits.data<float>() + i * limits_.vocab, size_t(limits_.vocab));
  };
  const TokenLogProbs nothing;
  if (r.prompt_logprobs) job.sink->on_prompt({&nothing, 1});
  for (size_t at = 0; at < prompt.size();) {
    if (is_cancelled_) return false;
    const size_t count = std::min(size_t(options_.prefill_tokens), prompt.size() - at);
    logits = forward(prompt.subspan(at, count), cache, r.prompt_logprobs.has_value());
    for (size_t i = 0; r.prompt_logprobs && i < count && at + i + 1 < prompt.size(); ++i) {
      const TokenLogProbs one = work.of(row(int64_t(i)), prompt[at + i + 1], *r.prompt_logprobs);
      job.sink->on_prompt({&one, 1});
    }
    at += count;
  }
  return true;
}

int32_t SequentialEngine::choose(Job& job, const Tensor& logits, const std::vector<int32_t>& answer,
                                 Sampler& sampler) {
  const Request& r = job.request;
  SamplingPast past{.prompt = r.prompt, .answer = answer, .bad_words = r.bad_words};
  if (int64_t(answer.size()) < r.min_tokens) past.banned = r.stop_tokens;
  if (r.constraint) {
    allowed_.resize(size_t(limits_.vocab + 31) / 32);
    r.constraint->fill(allowed_);
    past.allowed = allowed_;
  }
  const float* const last = logits.data<float>() + logits.numel() - limits_.vocab;
  const uint64_t position = r.prompt.size() + answer.size();
  const int32_t token = sampler.choose({last, size_t(limits_.vocab)}, position, past);
  const bool is_end = std::find(r.stop_tokens.begin(), r.stop_tokens.end(), token) != r.stop_tokens.end();
  if (r.constraint && !is_end) r.constraint->accept(token);
  return token;
}

Finish SequentialEngine::continue_prompt(Job& job) {
  const Request& r = job.request;
  KvCache cache(model_.context(), int(model_.config().layers), int64_t(r.prompt.size()) + r.max_tokens);
  Sampler sampler(r.sampling);
  LogProbs work;
  Tensor logits;
  Finish finish{.reason = FinishReason::cancelled};
  if (!prefill(job, cache, logits, work)) return finish;
  const auto prefilled = Clock::now();
  finish.times.prefill_s = std::chrono::duration<double>(prefilled - job.started).count();
  std::vector<int32_t> answer;
  finish.reason = FinishReason::length;
  while (int64_t(answer.size()) < r.max_tokens) {
    const int32_t token = choose(job, logits, answer, sampler);
    ++finish.usage.completion_tokens;
    if (std::find(r.stop_tokens.begin(), r.stop_tokens.end(), token) != r.stop_tokens.end()) {
      finish.reason = FinishReason::stop;
      finish.stop_token = token;
      break;
    }
    TokenEvent event{.token = token};
    const float* const last = logits.data<float>() + logits.numel() - limits_.vocab;
    if (r.logprobs) event.log_probs = work.of({last, size_t(limits_.vocab)}, token, *r.logprobs);
    job.sink->on_tokens({&event, 1});
    answer.push_back(token);
    if (is_cancelled_) {
      finish.reason = FinishReason::cancelled;
      break;
    }
    if (int64_t(answer.size()) < r.max_tokens) logits = forward({&answer.back(), 1}, cache, false);
  }
  finish.times.decode_s = std::chrono::duration<double>(Clock::now() - prefilled).count();
  return finish;
}

}  // namespace weft
