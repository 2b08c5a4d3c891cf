// ContinuousEngine: adapters come and go between steps.
#include <algorithm>
#include <utility>

#include "weft/serve/continuous_engine.h"

namespace weft {

// On every rank.
void ContinuousEngine::add_first_adapters() {
  for (const auto& [name, folder] : options_.adapters) {
    if (find_adapter(Adapter::State::ready, &name)) throw UsageError("two adapters are called {}", name);
    const std::string error = runner_.load_adapter_here(++last_adapter_, folder);
    if (!error.empty()) throw UsageError("{}", error);
    adapters_.push_back({.name = name, .folder = folder, .id = last_adapter_});
  }
}

// Of this state, and of this name if there is one; null when there is none.
const ContinuousEngine::Adapter* ContinuousEngine::find_adapter(Adapter::State state, const std::string* name) const {
  const auto found = std::ranges::find_if(
      adapters_, [&](const Adapter& a) { return a.state == state && (!name || a.name == *name); });
  return found == adapters_.end() ? nullptr : &*found;
}

ContinuousEngine::Adapter* ContinuousEngine::find_adapter(Adapter::State state, const std::string* name) {
  return const_cast<Adapter*>(std::as_const(*this).find_adapter(state, name));
}

bool ContinuousEngine::has_other_news() const {
  return find_adapter(Adapter::State::loading) || find_adapter(Adapter::State::leaving);
}

int32_t ContinuousEngine::adapter_number(const std::string& name) const {
  if (name.empty()) return 0;
  if (const Adapter* const adapter = find_adapter(Adapter::State::ready, &name)) return adapter->id;
  throw UsageError("there is no adapter {}", name);
}

std::vector<std::string> ContinuousEngine::adapters() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const Adapter& a : adapters_)
    if (a.state == Adapter::State::ready) names.push_back(a.name);
  return names;
}

void ContinuousEngine::load_adapter(const std::string& name, const std::string& folder, Told told) {
  if (!runner_.takes_adapters()) throw Unsupported("this engine takes no adapters");
  const std::lock_guard lock(mutex_);
  check_open();
  if (find_adapter(Adapter::State::ready, &name) || find_adapter(Adapter::State::loading, &name))
    throw UsageError("there is an adapter {} already: unload it first", name);
  if (int64_t(adapters_.size()) >= options_.most_adapters)
    throw UsageError("there are {} adapters, as many as this server holds: unload one first", adapters_.size());
  adapters_.push_back({.name = name,
                       .folder = folder,
                       .id = ++last_adapter_,
                       .state = Adapter::State::loading,
                       .told = std::move(told)});
  changed_.notify_all();
}

bool ContinuousEngine::unload_adapter(const std::string& name) {
  const std::lock_guard lock(mutex_);
  Adapter* const adapter = find_adapter(Adapter::State::ready, &name);
  if (!adapter) return false;
  adapter->state = Adapter::State::leaving;
  changed_.notify_all();
  return true;
}

void ContinuousEngine::load_adapters() {
  std::unique_lock lock(mutex_);
  while (Adapter* const next = find_adapter(Adapter::State::loading)) {
    lock.unlock();  // while it is loading nobody else changes it, and others are put behind it
    const int32_t id = next->id;
    const std::string error = runner_.load_adapter(id, next->folder);
    lock.lock();
    const Told told = std::move(next->told);
    next->state = Adapter::State::ready;
    if (!error.empty()) std::erase_if(adapters_, [&](const Adapter& a) { return a.id == id; });
    lock.unlock();
    told(error);
    lock.lock();
  }
}

// Those that are leaving and that no request has any more.
void ContinuousEngine::drop_adapters() {
  std::vector<int32_t> unused;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(adapters_, [&](const Adapter& a) {
      const bool is_unused =
          a.state == Adapter::State::leaving && !scheduler_.has_adapter(a.id) &&
          std::ranges::none_of(incoming_, [&](const SequencePtr& s) { return s->adapter == a.id; });
      if (is_unused) unused.push_back(a.id);
      return is_unused;
    });
  }
  for (const int32_t id : unused) runner_.drop_adapter(id);
}

}  // namespace weft
