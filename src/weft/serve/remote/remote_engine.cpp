// RemoteEngine: requests go out as messages, and one thread turns what comes back into calls of their sinks.
#include "weft/serve/remote/remote_engine.h"

#include <algorithm>

#include "weft/serve/sequence.h"

namespace weft::remote {
namespace {

constexpr double kRetryAfter = 1;
constexpr std::chrono::seconds kPatienceWithEnd{30};

TokenLogProbs view_of(const ScoredToken& s) { return {.token = s.token, .rank = s.rank, .top = s.top}; }

Hello receive_hello(Channel& channel, const std::string& name, EngineStats& stats) {
  for (std::vector<std::byte> bytes; channel.receive(bytes);) {
    FromReplica message = decode_from_replica(bytes);
    if (auto* const hello = std::get_if<Hello>(&message)) return std::move(*hello);
    const auto* const first = std::get_if<StatsCame>(&message);
    if (!first) throw Error("{} did not say hello", name);
    stats = first->stats;
  }
  throw Error("{} ended before it could serve", name);
}

}  // namespace

RemoteEngine::RemoteEngine(std::unique_ptr<Channel> channel, std::string name, OnFailure on_failure)
    : channel_(std::move(channel)), name_(std::move(name)), on_failure_(std::move(on_failure)) {
  Hello hello = receive_hello(*channel_, name_, stats_);
  limits_ = hello.limits;
  adapters_ = std::move(hello.adapters);
  listener_ = std::thread([this] { listen(); });
}

RemoteEngine::~RemoteEngine() {
  stop();
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatienceWithEnd, [&] { return is_over_; });
  }
  channel_->finish();  // one that failed was over before it was told to stop
  channel_->cut();
  listener_.join();
}

void RemoteEngine::stop() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(is_stopped_, true)) return;
  send(Stop{});
}

std::vector<std::string> RemoteEngine::adapters() const {
  const std::lock_guard lock(mutex_);
  return adapters_;
}

void RemoteEngine::load_adapter(const std::string& name, const std::string& folder, Told told) {
  const std::lock_guard lock(mutex_);
  if (is_draining_ || is_stopped_) throw Busy("the server is shutting down", kRetryAfter);
  if (!error_.empty()) throw Error("{}", error_);
  const bool is_loading = std::ranges::any_of(loading_, [&](const auto& one) { return one.second.first == name; });
  if (is_loading || std::ranges::find(adapters_, name) != adapters_.end())
    throw UsageError("there is an adapter {} already: unload it first", name);
  loading_[++last_number_] = {name, std::move(told)};
  send(LoadAdapter{last_number_, name, folder});
}

bool RemoteEngine::unload_adapter(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (std::erase(adapters_, name) == 0) return false;
  send(UnloadAdapter{name});
  return true;
}

void RemoteEngine::check_request(const Request& r) const {
  if (r.prompt.empty()) throw UsageError("the prompt is empty, and at least one token is needed");
  if (int64_t(r.prompt.size()) >= limits_.context)
    throw UsageError("the prompt has {} tokens and the context here is {}: shorten it", r.prompt.size(),
                     limits_.context);
  for (const int32_t token : r.prompt)
    if (token < 0 || token >= limits_.vocab) throw UsageError("{} is no token of this model", token);
  if (r.constraint && !r.constraint->form())
    throw Unsupported("output of this form is not offered by a replica in another process");
  check_outputs(r, limits_);
}

RequestId RemoteEngine::submit(Request request, std::unique_ptr<RequestSink> sink) {
  check_request(request);
  Submit message;
  if (request.constraint) message.form = *request.constraint->form();
  message.request = std::move(request);
  const std::string& adapter = message.request.adapter;
  const std::lock_guard lock(mutex_);
  if (is_draining_ || is_stopped_) throw Busy("the server is shutting down", kRetryAfter);
  if (!error_.empty()) throw Busy(error_, kRetryAfter);
  if (!adapter.empty() && std::ranges::find(adapters_, adapter) == adapters_.end())
    throw UsageError("there is no adapter {}", adapter);
  if (int64_t(open_.size()) >= limits_.max_open()) throw Busy("the queue is full; try again soon", kRetryAfter);
  message.id = last_id_ + 1;
  send(std::move(message));
  open_[++last_id_] = std::move(sink);
  ++num_open_;
  return last_id_;
}

void RemoteEngine::cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  if (open_.contains(id)) send(Cancel{id});
}

EngineStats RemoteEngine::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = error_.empty() ? stats_ : stats_.past();
  const auto open = int64_t(open_.size());
  stats.running = std::min(stats.running, open);
  stats.waiting = open - stats.running;
  return stats;
}

bool RemoteEngine::is_alive() const {
  const std::lock_guard lock(mutex_);
  return error_.empty();
}

void RemoteEngine::drain(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  is_draining_ = true;
  send(Drain{patience.count()});
  changed_.wait(lock, [&] { return num_open_ == 0; });
}

void RemoteEngine::listen() {
  std::string error = "its process is gone";
  try {
    std::vector<std::byte> bytes;
    while (channel_->receive(bytes)) {
      FromReplica message = decode_from_replica(bytes);
      std::visit([&](auto& one) { take(one); }, message);
    }
  } catch (const std::exception& e) {
    error = e.what();
  }
  fail(error);
  const std::lock_guard lock(mutex_);
  is_over_ = true;
  changed_.notify_all();
}

// What was open hears of it. After stop() this is the end that is waited for.
void RemoteEngine::fail(const std::string& error) {
  decltype(open_) open;
  decltype(loading_) loading;
  bool is_stopped = false;
  std::string why;
  {
    const std::lock_guard lock(mutex_);
    if (!error_.empty()) return;
    is_stopped = is_stopped_;
    why = error_ =
        is_stopped ? std::string("the server is shutting down") : fmt::format("{} ended: {}", name_, error);
    open.swap(open_), loading.swap(loading_);
  }
  const FinishReason reason = is_stopped ? FinishReason::cancelled : FinishReason::error;
  for (const auto& [id, sink] : open) sink->on_finish({.reason = reason, .error = is_stopped ? "" : why});
  for (const auto& [number, one] : loading) one.second(why);
  if (!is_stopped && on_failure_) on_failure_(why);
  const std::lock_guard lock(mutex_);
  num_open_ -= int64_t(open.size());
  changed_.notify_all();
}

RequestSink* RemoteEngine::find(RequestId id) const {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(id);
  return found == open_.end() ? nullptr : found->second.get();
}

void RemoteEngine::take(Hello&) const { throw Error("it said hello twice"); }

void RemoteEngine::take(PromptScored& message) {
  RequestSink* const sink = find(message.id);
  if (!sink) return;
  std::vector<TokenLogProbs> views;
  for (const ScoredToken& one : message.tokens) views.push_back(view_of(one));
  sink->on_prompt(views);
}

void RemoteEngine::take(TokensCame& message) {
  RequestSink* const sink = find(message.id);
  if (!sink) return;
  std::vector<TokenEvent> events;
  for (const AnswerToken& one : message.tokens)
    events.push_back({.token = one.token, .log_probs = view_of(one.scored)});
  sink->on_tokens(events);
}

void RemoteEngine::take(Embedded& message) {
  if (RequestSink* const sink = find(message.id)) sink->on_vector(message.vector);
}

void RemoteEngine::take(Finished& message) {
  std::unique_ptr<RequestSink> sink;
  {
    const std::lock_guard lock(mutex_);
    const auto found = open_.find(message.id);
    if (found == open_.end()) return;
    sink = std::move(found->second);
    open_.erase(found);
  }
  sink->on_finish(message.finish);
  const std::lock_guard lock(mutex_);
  --num_open_;
  changed_.notify_all();
}

void RemoteEngine::take(AdapterLoaded& message) {
  Told told;
  {
    const std::lock_guard lock(mutex_);
    adapters_ = std::move(message.adapters);
    const auto found = loading_.find(message.number);
    if (found == loading_.end()) return;
    told = std::move(found->second.second);
    loading_.erase(found);
  }
  told(message.error);
}

void RemoteEngine::take(StatsCame& message) {
  const std::lock_guard lock(mutex_);
  stats_ = message.stats;
}

void RemoteEngine::take(Ended& message) { fail(message.error); }

}  // namespace weft::remote
