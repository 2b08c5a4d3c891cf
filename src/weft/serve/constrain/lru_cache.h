// LruCache: the values that were used last, by key.
#pragma once
#include <list>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

namespace weft::constrain {

// Value is cheap to copy and has an empty state, such as a shared_ptr. May be used by many threads.
template <class Value>
class LruCache {
 public:
  explicit LruCache(size_t most) : most_(most) {}

  Value find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto found = index_.find(key);
    if (found == index_.end()) return {};
    entries_.splice(entries_.begin(), entries_, found->second);
    return found->second->second;
  }
  void put(const std::string& key, Value value) {
    const std::lock_guard lock(mutex_);
    if (index_.contains(key)) return;
    entries_.emplace_front(key, std::move(value));
    index_.emplace(key, entries_.begin());
    if (entries_.size() <= most_) return;
    index_.erase(entries_.back().first);
    entries_.pop_back();
  }
  size_t size() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }

 private:
  using Entries = std::list<std::pair<std::string, Value>>;
  const size_t most_;
  mutable std::mutex mutex_;
  Entries entries_;  // the one used last in front
  std::unordered_map<std::string, typename Entries::iterator> index_;
};

}  // namespace weft::constrain
