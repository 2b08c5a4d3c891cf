// LaunchedReplicas: replicas on ranks that a launcher started, as one engine on the rank that listens.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serve_engine.h"
#include "weft/serve/remote/remote_engine.h"
#include "weft/serve/replicated_engine.h"

namespace weft::app {

class LaunchedReplicas {
 public:
  // Of the first replica. Waits until the others can be asked. `log` is told which of them failed.
  LaunchedReplicas(Driver& driver, const std::function<void(const std::string& line)>& log);

  Engine& engine() { return together_ ? *together_ : static_cast<Engine&>(own_); }
  void run() { own_.run(); }  // the own one, until stop(); when it fails, the server ends
  void stop();                // all of them

 private:
  MeshEngine& own_;
  std::vector<std::unique_ptr<remote::RemoteEngine>> others_;
  std::optional<ReplicatedEngine> together_;
};

// The work of another replica's driver, until the first one stops it. An engine of one rank that fails is out of
// service from then on; one of several ranks ends the job, since its other ranks may wait for each other.
void serve_replica(Driver& driver, api::ConstraintFactory* constraints);

}  // namespace weft::app
