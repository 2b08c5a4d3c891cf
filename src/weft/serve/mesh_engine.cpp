// MeshEngine: requests between their threads and the engine's.
#include "weft/serve/mesh_engine.h"

#include <algorithm>
#include <utility>

namespace weft {

MeshEngine::~MeshEngine() { reject(std::move(incoming_), FinishReason::cancelled, ""); }

void MeshEngine::reject(std::vector<SequencePtr> sequences, FinishReason reason, const std::string& error) {
  for (const SequencePtr& s : sequences)
    s->sink->on_finish({.reason = reason, .error = error, .usage = {.prompt_tokens = s->num_prompt}});
}

void MeshEngine::check_request(const Request& r) const {
  if (r.prompt.empty()) throw UsageError("the prompt is empty, and at least one token is needed");
  if (int64_t(r.prompt.size()) > limits_.most_prompt())
    throw UsageError("the prompt has {} tokens and the context here is {}: shorten it", r.prompt.size(),
                     limits_.context);
  for (const int32_t token : r.prompt) {
    if (token < 0 || token >= limits_.vocab) throw UsageError("{} is no token of this model", token);
  }
  check_outputs(r, limits_);
}

void MeshEngine::check_open() const {
  if (!failure_.empty()) throw Busy(failure_, kSoon);
  if (is_draining_ || is_stopped_) throw Busy("the server is shutting down", kSoon);
}

RequestId MeshEngine::submit(Request request, std::unique_ptr<RequestSink> sink) {
  check_request(request);
  const std::lock_guard lock(mutex_);
  check_open();
  if (int64_t(num_open_) >= limits_.max_open()) throw Busy("the queue is full; try again soon", kSoon);
  const int32_t adapter = adapter_number(request.adapter);
  if (request.kind != Request::Kind::generate) request.max_tokens = 0;
  request.max_tokens = std::min(request.max_tokens, limits_.context - int64_t(request.prompt.size()));
  incoming_.push_back(std::make_unique<Sequence>(++last_id_, std::move(request), std::move(sink)));
  incoming_.back()->adapter = adapter;
  incoming_.back()->submitted = Clock::now();
  ++num_open_;
  changed_.notify_all();
  return last_id_;
}

void MeshEngine::cancel(RequestId id) {
  std::vector<SequencePtr> removed;
  {
    const std::lock_guard lock(mutex_);
    const auto at = std::find_if(incoming_.begin(), incoming_.end(), [&](const auto& s) { return s->id == id; });
    if (at == incoming_.end()) {
      cancelled_.push_back(id);
      changed_.notify_all();
      return;
    }
    removed.push_back(std::move(*at));
    incoming_.erase(at);
  }
  reject(std::move(removed), FinishReason::cancelled, "");
  finished(1);
}

EngineStats MeshEngine::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.waiting += int64_t(incoming_.size());
  return stats;
}

void MeshEngine::finished(size_t count) {
  const std::lock_guard lock(mutex_);
  num_open_ -= count;
  changed_.notify_all();
}

void MeshEngine::drain(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  is_draining_ = true;
  const auto is_idle = [&] { return num_open_ == 0; };
  if (changed_.wait_for(lock, patience, is_idle)) return;
  cancels_all_ = true;
  std::vector<SequencePtr> rest = std::exchange(incoming_, {});
  changed_.notify_all();
  lock.unlock();
  const size_t count = rest.size();
  reject(std::move(rest), FinishReason::cancelled, "");
  finished(count);
  lock.lock();
  changed_.wait(lock, is_idle);
}

void MeshEngine::stop() {
  const std::lock_guard lock(mutex_);
  is_stopped_ = true;
  changed_.notify_all();
}

void MeshEngine::run() {
  if (!is_driver()) return follow();
  try {
    while (take_requests()) step();
  } catch (const std::exception& e) {
    end_all(FinishReason::error, e.what());
    throw;
  }
  end_all(FinishReason::cancelled, "");
  stop_others();
}

std::optional<MeshEngine::News> MeshEngine::take(bool has_work, Communicator& world) {
  News news;
  std::unique_lock lock(mutex_);
  const auto has_news = [&] {
    return has_work || is_stopped_ || cancels_all_ || !incoming_.empty() || !cancelled_.empty() || has_other_news();
  };
  constexpr std::chrono::seconds kWhile(1);  // in which another rank may have failed
  while (!changed_.wait_for(lock, kWhile, has_news)) world.check_alive();
  if (is_stopped_) return {};
  news.arrived.swap(incoming_);
  news.cancelled.swap(cancelled_);
  news.cancels_all = std::exchange(cancels_all_, false);
  stats_.waiting += int64_t(news.arrived.size());
  return news;
}

int32_t MeshEngine::adapter_number(const std::string& name) const {
  if (!name.empty()) throw UsageError("there is no adapter {}", name);
  return 0;
}

void MeshEngine::publish(const EngineStats& stats) {
  const std::lock_guard lock(mutex_);
  stats_ = stats;
}

void MeshEngine::close(FinishReason reason, const std::string& error) {
  std::vector<SequencePtr> rest;
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    failure_ = error;
    rest.swap(incoming_);
  }
  const size_t count = rest.size();
  reject(std::move(rest), reason, error);
  if (count > 0) finished(count);
}

Finish MeshEngine::finish_now(const Sequence& s, Finish finish) {
  const auto now = Clock::now(), started = s.started.value_or(now), prefilled = s.prefilled.value_or(now);
  const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
  finish.usage = {
      .prompt_tokens = s.num_prompt, .cached_tokens = s.num_cached, .completion_tokens = s.num_completion};
  finish.times = {.queued_s = seconds(started - s.submitted),
                  .prefill_s = seconds(prefilled - started),
                  .decode_s = seconds(now - prefilled)};
  return finish;
}

}  // namespace weft
