// LaunchedReplicas: an engine beside this thread for each socket that the ranks' meeting gave.
#include "launched_replicas.h"

#include "weft/serve/remote/replica_server.h"

namespace weft::app {

LaunchedReplicas::LaunchedReplicas(Driver& driver, const std::function<void(const std::string& line)>& log)
    : own_(driver.engine) {
  std::vector<Engine*> all{&own_};
  for (remote::Socket& socket : driver.sockets) {
    others_.push_back(std::make_unique<remote::RemoteEngine>(std::make_unique<remote::Channel>(std::move(socket)),
                                                             fmt::format("replica {}", all.size()), log));
    all.push_back(others_.back().get());
  }
  if (!others_.empty()) together_.emplace(std::move(all));
}

void LaunchedReplicas::stop() {
  for (const auto& one : others_) one->stop();
  own_.stop();
}

void serve_replica(Driver& driver, api::ConstraintFactory* constraints) {
  MeshEngine& engine = driver.engine;
  remote::ReplicaServer server(std::move(driver.sockets.front()), engine, constraints, [&] { engine.stop(); });
  try {
    engine.run();
  } catch (const std::exception& e) {
    server.tell_failure(e.what());
    if (!driver.is_alone) throw;
  }
  server.finish();
}

}  // namespace weft::app
