// RemoteEngine: an engine that runs in another process, behind a channel.
#pragma once
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "weft/serve/engine.h"
#include "weft/serve/remote/channel.h"
#include "weft/serve/remote/messages.h"

namespace weft::remote {

// What a request gets is what the other engine gives, told from a thread of this one. A request that the other
// engine refuses for a reason that is not known here ends with that as its error. When the engine fails there or the
// connection breaks, open requests end with an error, and further ones are refused.
class RemoteEngine : public Engine {
 public:
  // Waits until the other end, a ReplicaServer, has said hello. `name` tells it in messages: "replica 1". on_failure
  // is told why it ended before it was stopped, once, from a thread of this.
  using OnFailure = std::function<void(const std::string& error)>;
  RemoteEngine(std::unique_ptr<Channel> channel, std::string name, OnFailure on_failure = {});
  ~RemoteEngine() override;  // stops it

  // The other process ends its engine. Open requests are cancelled.
  void stop();

  const EngineLimits& limits() const override { return limits_; }
  std::vector<std::string> adapters() const override;
  // Where the engine takes none, `told` hears of it.
  void load_adapter(const std::string& name, const std::string& folder, Told told) override;
  bool unload_adapter(const std::string& name) override;
  RequestId submit(Request request, std::unique_ptr<RequestSink> sink) override;
  void cancel(RequestId id) override;
  EngineStats stats() const override;  // as of its last news; what is on its way waits
  bool is_alive() const override;
  void drain(std::chrono::milliseconds patience) override;

 private:
  void check_request(const Request& request) const;
  void send(const ToReplica& message) { channel_->send(encode(message)); }
  void listen();
  void fail(const std::string& error);
  RequestSink* find(RequestId id) const;

  void take(Hello&) const;
  void take(PromptScored& message);
  void take(TokensCame& message);
  void take(Embedded& message);
  void take(Finished& message);
  void take(AdapterLoaded& message);
  void take(StatsCame& message);
  void take(Ended& message);

  const std::unique_ptr<Channel> channel_;
  const std::string name_;
  const OnFailure on_failure_;
  EngineLimits limits_;

  mutable std::mutex mutex_;  // of what follows; no sink is called under it
  std::condition_variable changed_;
  std::map<RequestId, std::unique_ptr<RequestSink>> open_;  // removed by the thread that listens alone
  int64_t num_open_ = 0;                                    // of these, and of those that hear of their end just now
  RequestId last_id_ = 0;
  std::map<uint64_t, std::pair<std::string, Told>> loading_;  // adapters, by number
  uint64_t last_number_ = 0;
  std::vector<std::string> adapters_;
  EngineStats stats_;
  bool is_draining_ = false, is_stopped_ = false, is_over_ = false;
  std::string error_;  // why it ended; empty while it is alive
  std::thread listener_;
};

}  // namespace weft::remote
