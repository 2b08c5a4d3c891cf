// EnginePool: requests wait in their model's member, and one thread brings the models there.
#include "weft/serve/engine_pool.h"

#include <algorithm>
#include <deque>

#include "weft/serve/sequence.h"
#include "weft/serve/watched_sink.h"

namespace weft {
namespace {

constexpr double kRetryAfterLoad = 5;  // seconds, when a model could not be loaded

}  // namespace

class EnginePool::Member : public Engine {
 public:
  Member(EnginePool& pool, std::string name, EngineLimits limits, std::vector<std::string> adapters, Load load)
      : pool_(pool),
        name_(std::move(name)),
        limits_(limits),
        adapters_(std::move(adapters)),
        load_(std::move(load)) {}

  const EngineLimits& limits() const override { return limits_; }
  std::vector<std::string> adapters() const override { return adapters_; }

  RequestId submit(Request request, std::unique_ptr<RequestSink> sink) override {
    check(request);
    Lock lock(pool_.mutex_);
    if (is_draining_ || pool_.is_stopping_) throw Busy("the server is shutting down", 1);
    if (!can_ask() && int64_t(waiting_.size()) >= limits_.max_open()) throw Busy("the queue is full", 1);
    const RequestId id = ++last_id_;
    open_[id] = {};
    last_used_ = Clock::now();
    if (can_ask()) {
      send({id, std::move(request), std::move(sink), last_used_}, lock);
    } else {
      waiting_.push_back({id, std::move(request), std::move(sink), last_used_});
      pool_.changed_.notify_all();
    }
    return id;
  }

  void cancel(RequestId id) override {
    Lock lock(pool_.mutex_);
    const auto found = open_.find(id);
    if (found == open_.end()) return;
    found->second.is_cancelled = true;
    const RequestId sent = found->second.sent_as;
    if (sent == 0) return pool_.changed_.notify_all();
    with_engine(lock, [&](Engine& engine) { engine.cancel(sent); });
  }

  EngineStats stats() const override {
    Lock lock(pool_.mutex_);
    EngineStats sum = past_;
    sum.waiting = int64_t(waiting_.size());
    with_engine(lock, [&](Engine& engine) { sum += engine.stats(); });
    return sum;
  }

  void drain(std::chrono::milliseconds patience) override {
    Lock lock(pool_.mutex_);
    is_draining_ = true;
    pool_.changed_.wait_for(lock, patience, [&] { return open_.empty(); });
    for (auto& [id, open] : open_) open.is_cancelled = true;
    pool_.changed_.notify_all();
    with_engine(lock, [](Engine& engine) { engine.drain(std::chrono::milliseconds(0)); });
    pool_.changed_.wait(lock, [&] { return open_.empty(); });
  }

 private:
  friend class EnginePool;
  struct Waiting {
    RequestId id;
    Request request;
    std::shared_ptr<RequestSink> sink;
    Clock::time_point since;
  };
  struct Open {
    RequestId sent_as = 0;  // 0: not yet
    bool is_cancelled = false;
  };

  void check(const Request& request) const {
    if (request.prompt.empty()) throw UsageError("a prompt has at least one token");
    if (int64_t(request.prompt.size()) > limits_.context)
      throw UsageError("the prompt has {} tokens, and the model's context {}", request.prompt.size(),
                       limits_.context);
    if (!request.adapter.empty() && std::ranges::find(adapters_, request.adapter) == adapters_.end())
      throw UsageError("there is no adapter {}", request.adapter);
    check_outputs(request, limits_);
  }
  bool can_ask() const { return loaded_ && !is_leaving_ && loaded_->is_alive(); }

  // Calls `ask` without the lock, if there is an engine, which does not leave meanwhile.
  template <class Ask>
  void with_engine(Lock& lock, const Ask& ask) const {
    if (!loaded_) return;
    ++num_callers_;
    lock.unlock();
    const auto done = [&] {
      lock.lock();
      --num_callers_;
      pool_.changed_.notify_all();
    };
    try {
      ask(loaded_->engine());
    } catch (...) {
      done();
      throw;
    }
    done();
  }

  // To the loaded engine. What it throws leaves nothing behind.
  void send(Waiting w, Lock& lock) {
    ++num_sent_, ++num_answering_;
    with_engine(lock, [&](Engine& engine) {
      const auto over = [this, id = w.id] {
        const Lock finished(pool_.mutex_);
        forget(id);
      };
      // Before anybody hears of the end, so that who asks next finds this one used before.
      const auto ending = [this] {
        const Lock finishing(pool_.mutex_);
        --num_answering_;
        last_used_ = Clock::now();
      };
      RequestId sent = 0;
      try {
        sent = engine.submit(std::move(w.request), std::make_unique<WatchedSink>(std::move(w.sink), over, ending));
      } catch (...) {
        ending(), over();
        throw;
      }
      bool is_cancelled = false;
      {
        const Lock told(pool_.mutex_);
        const auto found = open_.find(w.id);
        if (found == open_.end()) return;  // has finished already
        found->second.sent_as = sent;
        is_cancelled = found->second.is_cancelled;
      }
      if (is_cancelled) engine.cancel(sent);
    });
  }
  void forget(RequestId id) {
    open_.erase(id);
    --num_sent_;
    pool_.changed_.notify_all();
  }

  EnginePool& pool_;
  const std::string name_;
  const EngineLimits limits_;
  const std::vector<std::string> adapters_;
  const Load load_;

  // All that follows is under the pool's mutex.
  std::deque<Waiting> waiting_;
  std::map<RequestId, Open> open_;
  RequestId last_id_ = 0;
  int64_t num_sent_ = 0;             // open requests that the loaded engine has or is about to get
  int64_t num_answering_ = 0;        // of these, whose end nobody has heard of
  mutable int64_t num_callers_ = 0;  // that are inside it
  std::unique_ptr<Loaded> loaded_;
  bool is_leaving_ = false, is_draining_ = false;
  Clock::time_point last_used_ = Clock::now();
  EngineStats past_;  // of engines that have left: what only grows
};

EnginePool::EnginePool(Options options) : options_(std::move(options)), thread_([this] { work(); }) {}

EnginePool::~EnginePool() {
  {
    const Lock lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Engine& EnginePool::add(std::string name, EngineLimits limits, std::vector<std::string> adapters, Load load) {
  const Lock lock(mutex_);
  members_.push_back(std::make_unique<Member>(*this, std::move(name), limits, std::move(adapters), std::move(load)));
  return *members_.back();
}

EnginePool::Member* EnginePool::next_failed() const {
  const auto found =
      std::ranges::find_if(members_, [](const auto& m) { return m->loaded_ && !m->loaded_->is_alive(); });
  return found == members_.end() ? nullptr : found->get();
}

// Whose request has waited longest, among those that are not there.
EnginePool::Member* EnginePool::next_wanted() const {
  Member* next = nullptr;
  for (const auto& m : members_)
    if (!m->loaded_ && !m->waiting_.empty() && (!next || m->waiting_.front().since < next->waiting_.front().since))
      next = m.get();
  return next;
}

// Of those that are there; one that answers nothing before one that does.
EnginePool::Member* EnginePool::longest_unused(bool is_idle_only) const {
  Member* longest = nullptr;
  const auto key = [](const Member& m) { return std::pair(m.num_answering_ > 0, m.last_used_); };
  for (const auto& m : members_)
    if (m->loaded_ && (!is_idle_only || m->num_sent_ == 0) && (!longest || key(*m) < key(*longest)))
      longest = m.get();
  return longest;
}

size_t EnginePool::num_loaded() const {
  return size_t(std::ranges::count_if(members_, [](const auto& m) { return m->loaded_ != nullptr; }));
}

void EnginePool::work() {
  Lock lock(mutex_);
  while (!is_stopping_) {
    tell_cancelled(lock);
    if (Member* const failed = next_failed()) {
      unload(*failed, lock);
      continue;
    }
    if (Member* const wanted = next_wanted()) {
      if (num_loaded() < options_.most_loaded) {
        load(*wanted, lock);
      } else {
        unload(*longest_unused(false), lock);
      }
      continue;
    }
    if (Member* const idle = options_.most_idle.count() > 0 ? longest_unused(true) : nullptr) {
      const Clock::time_point leaves = idle->last_used_ + options_.most_idle;
      if (Clock::now() >= leaves) {
        unload(*idle, lock);
      } else {
        changed_.wait_until(lock, leaves);
      }
      continue;
    }
    changed_.wait(lock);
  }
  for (const auto& m : members_)
    for (auto& [id, open] : m->open_) open.is_cancelled = true;
  tell_cancelled(lock);
  for (const auto& m : members_)
    if (m->loaded_) unload(*m, lock);
}

// Those that were cancelled before they came to an engine.
void EnginePool::tell_cancelled(Lock& lock) {
  for (;;) {
    std::vector<Member::Waiting> gone;
    for (const auto& m : members_) {
      std::erase_if(m->waiting_, [&](Member::Waiting& w) {
        const bool is_gone = m->open_.at(w.id).is_cancelled;
        if (is_gone) m->open_.erase(w.id), gone.push_back(std::move(w));
        return is_gone;
      });
    }
    if (gone.empty()) return;
    lock.unlock();
    for (const Member::Waiting& w : gone) w.sink->on_finish({.reason = FinishReason::cancelled});
    lock.lock();
    changed_.notify_all();
  }
}

// And gives it the requests that wait for it, or tells them what is wrong.
void EnginePool::load(Member& member, Lock& lock) {
  lock.unlock();
  const Clock::time_point begin = Clock::now();
  std::unique_ptr<Loaded> loaded;
  std::string error;
  try {
    loaded = member.load_();
    options_.log(fmt::format("{} is loaded, in {:.1f} s", member.name_,
                             std::chrono::duration<double>(Clock::now() - begin).count()));
  } catch (const std::exception& e) {
    error = fmt::format("{} cannot be loaded: {}", member.name_, e.what());
    options_.log(error);
  }
  lock.lock();
  member.loaded_ = std::move(loaded);
  member.last_used_ = Clock::now();
  // Those that come later are answered by the engine at once, or are the reason for another attempt.
  std::deque<Member::Waiting> waiting = std::exchange(member.waiting_, {});
  for (Member::Waiting& next : waiting) {
    const std::shared_ptr<RequestSink> sink = next.sink;
    Finish refusal{.reason = FinishReason::error, .error = error};
    if (!member.loaded_) refusal.retry_after_s = kRetryAfterLoad;
    if (!member.loaded_ || member.open_.at(next.id).is_cancelled) {
      if (member.loaded_) refusal.reason = FinishReason::cancelled;
      member.open_.erase(next.id);
    } else {
      try {
        member.send(std::move(next), lock);
        continue;
      } catch (const std::exception& e) {
        refusal.error = e.what(), refusal.is_refusal = dynamic_cast<const UsageError*>(&e) != nullptr;
      }
    }
    lock.unlock();
    sink->on_finish(refusal);
    lock.lock();
    changed_.notify_all();
  }
}

// When it has answered what it was asked; at the end of all it is not waited for.
void EnginePool::unload(Member& member, Lock& lock) {
  member.is_leaving_ = true;
  const auto is_free = [&] { return member.num_sent_ == 0 && member.num_callers_ == 0; };
  for (tell_cancelled(lock); !is_free() && !is_stopping_; tell_cancelled(lock)) changed_.wait(lock);
  if (!is_free()) member.with_engine(lock, [](Engine& engine) { engine.drain(std::chrono::milliseconds(0)); });
  EngineStats last;
  member.with_engine(lock, [&](Engine& engine) { last = engine.stats(); });
  changed_.wait(lock, is_free);
  member.past_ += last.past();
  std::unique_ptr<Loaded> leaving = std::move(member.loaded_);
  member.is_leaving_ = false;
  lock.unlock();
  leaving.reset();
  options_.log(fmt::format("{} is unloaded", member.name_));
  lock.lock();
}

}  // namespace weft
