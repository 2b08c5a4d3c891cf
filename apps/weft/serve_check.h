// serve_check: what the planner says of a model that is to be served here, before anything is allocated.
#pragma once
#include "serve_engine.h"
#include "weft/parallel/mesh.h"

namespace weft::app {

// `--mesh auto`: the ranks of this machine on which an answer's token takes least time, and what is said about it.
MeshShape choose_mesh(const EngineOptions& options, const ModelSource& source);

// Free bytes for all ranks of one replica, whose first is rank `first_rank` of the devices; no more than `limit` of a
// device or this machine, if there is one. A launcher's ranks on this machine share it evenly.
int64_t available_to_replica(const EngineOptions& options, int ranks, int first_rank, int64_t limit = 0);

struct MemoryChoice {
  int64_t kv_bytes = 0;    // of the cache, over all ranks; 0: what is free once there are weights
  int64_t far_layers = 0;  // of each stage
};
// What is in memory, and what is said about it. Throws Error with the shortage and the remedy when weights, the
// largest step and the cache need more than is free on this machine or than --memory-limit says.
MemoryChoice choose_memory(const EngineOptions& options, const ModelSource& source, const MeshShape& mesh);

}  // namespace weft::app
