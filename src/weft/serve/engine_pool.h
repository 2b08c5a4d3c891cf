// EnginePool: engines of several models, each loaded when it is asked for; so many at once as there is room for.
#pragma once
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "weft/serve/engine.h"

namespace weft {

// A request for a model that is not loaded waits until it is. Where there is no room, the model that was asked for
// the longest ago leaves first: it finishes the requests it has, and newer ones for it wait their turn.
class EnginePool {
 public:
  // An engine with its weights and its cache, which ends when this is destroyed; by then it has no request.
  class Loaded {
   public:
    virtual ~Loaded() = default;
    virtual Engine& engine() = 0;
    virtual bool is_alive() const { return true; }  // or it has failed: then it is loaded anew when it is asked for
  };
  using Load = std::function<std::unique_ptr<Loaded>()>;  // takes its time; throws what is wrong with the model

  struct Options {
    size_t most_loaded = 1;
    std::chrono::milliseconds most_idle{0};  // a model that nobody asked for so long leaves; 0: it stays
    std::function<void(const std::string& line)> log = [](const std::string&) {};
  };
  explicit EnginePool(Options options);
  ~EnginePool();  // open requests are cancelled
  EnginePool(const EnginePool&) = delete;

  // The engine to ask; it lives as long as the pool and takes no adapters but those that `adapters` names, which the
  // loaded one has. limits: what is known without loading; a request beyond those of the loaded engine ends with an
  // error. Not beside requests.
  Engine& add(std::string name, EngineLimits limits, std::vector<std::string> adapters, Load load);

 private:
  class Member;
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;
  void work();
  Member* next_failed() const;
  Member* next_wanted() const;
  Member* longest_unused(bool is_idle_only) const;
  size_t num_loaded() const;
  void load(Member& member, Lock& lock);
  void unload(Member& member, Lock& lock);
  void tell_cancelled(Lock& lock);

  const Options options_;
  std::vector<std::unique_ptr<Member>> members_;
  std::mutex mutex_;  // of all members too; engines are never called under it
  std::condition_variable changed_;
  bool is_stopping_ = false;
  std::thread thread_;  // loads and unloads
};

}  // namespace weft
