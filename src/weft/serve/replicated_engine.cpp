// ReplicatedEngine: who gets the next request, and what all are told.
#include "weft/serve/replicated_engine.h"

#include <algorithm>
#include <cstring>
#include <future>

#include "weft/base/checksum.h"
#include "weft/serve/watched_sink.h"

namespace weft {
namespace {

constexpr size_t kBeginning = 64;            // tokens by which prompts are compared
constexpr size_t kMostBeginnings = 1 << 14;  // that are remembered

uint64_t hash_beginning(const Request& request) {
  Digester digester;
  digester.update(bytes_of(request.adapter));
  const size_t count = std::min(request.prompt.size(), kBeginning);
  digester.update({reinterpret_cast<const std::byte*>(request.prompt.data()), count * sizeof(int32_t)});
  uint64_t hash = 0;
  std::memcpy(&hash, digester.finish().value.data(), sizeof hash);
  return hash;
}

}  // namespace

ReplicatedEngine::ReplicatedEngine(std::vector<Engine*> replicas)
    : replicas_(std::move(replicas)), limits_(replicas_.front()->limits()) {
  limits_.max_running *= int64_t(replicas_.size());
  limits_.max_waiting *= int64_t(replicas_.size());
  for (size_t i = 0; i < replicas_.size(); ++i) open_.push_back(std::make_shared<std::atomic<int64_t>>(0));
}

std::vector<Engine*> ReplicatedEngine::alive() const {
  std::vector<Engine*> alive;
  for (Engine* one : replicas_)
    if (one->is_alive()) alive.push_back(one);
  if (alive.empty()) alive.push_back(replicas_.front());
  return alive;
}

size_t ReplicatedEngine::choose(const Request& request) {
  const auto open = [&](size_t i) { return replicas_[i]->is_alive() ? open_[i]->load() : INT64_MAX / 2; };
  size_t least = 0;
  for (size_t i = 1; i < replicas_.size(); ++i)
    if (open(i) < open(least)) least = i;
  const int64_t much = std::max<int64_t>(replicas_.front()->limits().max_running / 8, 1);
  const std::lock_guard lock(mutex_);
  if (last_with_.size() >= kMostBeginnings) last_with_.clear();
  const auto [known, is_new] = last_with_.try_emplace(hash_beginning(request), least);
  if (!is_new && open(known->second) > open(least) + much) known->second = least;
  return known->second;
}

RequestId ReplicatedEngine::submit(Request request, std::unique_ptr<RequestSink> sink) {
  const size_t chosen = choose(request);
  const Count count = open_[chosen];
  ++*count;
  try {
    auto watched = std::make_unique<WatchedSink>(std::move(sink), [count] { --*count; });
    return replicas_[chosen]->submit(std::move(request), std::move(watched)) * replicas_.size() + chosen;
  } catch (...) {
    --*count;
    throw;
  }
}

void ReplicatedEngine::cancel(RequestId id) { replicas_[id % replicas_.size()]->cancel(id / replicas_.size()); }

void ReplicatedEngine::load_adapter(const std::string& name, const std::string& folder, Told told) {
  struct Answers {
    std::mutex mutex;
    size_t missing;
    std::string error;
  };
  const auto answers = std::make_shared<Answers>();
  const std::vector<Engine*> engines = alive();
  answers->missing = engines.size();
  const auto one_told = [this, answers, name, told](const std::string& error) {
    {
      const std::lock_guard lock(answers->mutex);
      if (answers->error.empty()) answers->error = error;
      if (--answers->missing > 0) return;
    }
    if (!answers->error.empty()) unload_adapter(name);
    told(answers->error);
  };
  engines.front()->load_adapter(name, folder, one_told);
  for (size_t i = 1; i < engines.size(); ++i) {
    try {
      engines[i]->load_adapter(name, folder, one_told);
    } catch (const Error& e) {  // as when it is about to stop
      one_told(e.what());
    }
  }
}

bool ReplicatedEngine::unload_adapter(const std::string& name) {
  bool had_it = false;
  for (Engine* one : replicas_) had_it |= one->unload_adapter(name);
  return had_it;
}

std::vector<std::string> ReplicatedEngine::adapters() const {
  const std::vector<Engine*> engines = alive();
  std::vector<std::string> names = engines.front()->adapters();
  for (size_t i = 1; i < engines.size(); ++i) {
    const std::vector<std::string> those = engines[i]->adapters();
    std::erase_if(names, [&](const std::string& name) { return std::ranges::find(those, name) == those.end(); });
  }
  return names;
}

EngineStats ReplicatedEngine::stats() const {
  EngineStats sum;
  for (const Engine* one : replicas_) sum += one->stats();
  return sum;
}

void ReplicatedEngine::drain(std::chrono::milliseconds patience) {
  std::vector<std::future<void>> all;
  for (Engine* one : replicas_) all.push_back(std::async(std::launch::async, [=] { one->drain(patience); }));
  for (std::future<void>& one : all) one.get();
}

}  // namespace weft
