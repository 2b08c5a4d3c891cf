// Meeting: connects the speaking ranks of replicas that a launcher has started as ranks of one job.
#pragma once
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/serve/remote/channel.h"

namespace weft::remote {

// Which part a rank of the job has.
struct ReplicaPlace {
  int replica = 0, replicas = 1;
  bool is_driver = true;  // of its replica: one rank of each is
  int front = 0;          // the rank of the job that speaks for the first replica
};

// A collective call of all ranks of the job. The front gets a socket to each other replica, in order; the driver of
// another replica one to the front; the rest get none. The front listens until all have come, on this machine's own
// address where the job has one machine, else on all of its addresses, IPv4 and IPv6; both ends prove that they know
// a random secret that only the job's ranks were told. What is said afterwards is neither signed nor encrypted, as
// what ranks say to each other is not. Throws Error naming who did not come, or could not.
std::vector<Socket> meet(Communicator& job, const ReplicaPlace& place);

}  // namespace weft::remote
