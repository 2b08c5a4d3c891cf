// Front: what clients of a server meet, from before its models are read until it has drained.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "command.h"
#include "stop_signals.h"
#include "weft/serve/api/api.h"
#include "weft/serve/http/server.h"

namespace weft::app {

struct FrontOptions {
  http::ServerOptions server;
  api::ApiLimits limits;
  std::string key_file;
  std::vector<std::string> allowed_origins;
  int drain_seconds = 30;
  FrontOptions() { server.max_body_bytes = limits.json.max_bytes; }
  void add_to(CLI::App& command);
  void check() const;  // throws UsageError for what no machine has to be asked about
};

class Front {
 public:
  // Listens from here on, and says that the server lives and is not ready: reading models takes long, and what is
  // wrong here is told at once. A signal to stop ends the program. Throws UsageError naming the address, the keys or
  // the certificate that cannot be used.
  Front(const FrontOptions& options, const Output& output, const StopSignals& signals);
  ~Front();
  Front(const Front&) = delete;

  // Once, to the end. After a signal it finishes what is under way and calls `stop`; `run` returns after that, or
  // throws why the server ends, as this does then. Nobody is connected when it returns.
  void serve(const std::vector<api::ServedModel>& models, const std::function<void()>& run,
             const std::function<void()>& stop);

 private:
  void wait_for_signal();
  void drain();
  std::string url() const;

  const FrontOptions options_;
  const Output output_;
  const StopSignals& signals_;
  api::Api api_;
  std::unique_ptr<http::Server> server_;  // ends before the API does
  std::vector<api::ServedModel> models_;
  std::function<void()> stop_;
  std::atomic<bool> is_serving_{false};  // what is above is there
  bool has_drained_ = false;
  std::thread stopper_;
};

}  // namespace weft::app
