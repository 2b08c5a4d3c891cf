// ReplicaServer: lets a RemoteEngine in another process use an engine of this one.
#pragma once
#include <condition_variable>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "weft/serve/engine.h"
#include "weft/serve/remote/channel.h"
#include "weft/serve/remote/messages.h"

namespace weft::remote {

class ReplicaServer {
 public:
  // Says hello and does what it is told, on a thread of its own. on_stop is called there, once: when the other end
  // says stop or is gone. The engine and the constraints outlive this; these may be null.
  ReplicaServer(Socket socket, Engine& engine, api::ConstraintFactory* constraints, std::function<void()> on_stop);
  ~ReplicaServer();  // open requests are cancelled
  ReplicaServer(const ReplicaServer&) = delete;

  // The engine has failed, and its requests have been told. Waits until this has gone out; nothing goes out after it.
  void tell_failure(const std::string& error);
  // Waits until the other end has said stop, behind which the engine has ended; tells what is left to tell. Throws
  // Error when the other end is gone instead.
  void finish();

 private:
  struct Shared;  // with the sinks of requests, which may live longer
  class Sink;
  void listen();
  void cancel_all();
  void take(Submit& message);
  void take(Cancel& message);
  void take(LoadAdapter& message);
  void take(UnloadAdapter& message);
  void take(Drain& message);
  void take(Stop&) { is_told_to_stop_ = true; }

  Engine& engine_;
  Channel channel_;
  const std::shared_ptr<Shared> shared_;
  api::ConstraintFactory* const constraints_;
  const std::function<void()> on_stop_;
  bool is_told_to_stop_ = false;  // of the thread that listens
  std::vector<std::future<void>> drains_;
  std::promise<void> stopped_;  // or why the other end is gone
  std::future<void> when_stopped_ = stopped_.get_future();
  std::thread listener_;
};

}  // namespace weft::remote
