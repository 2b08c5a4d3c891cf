// serve_check: what the planner says of a model that is to be served here, before anything is allocated.
#pragma once
#include "serve_engine.h"
#include "weft/parallel/mesh.h"

namespace weft::app {

// `--mesh auto`: the ranks of this machine on which an answer's token takes least time, and what is said about it.
MeshShape choose_mesh(const EngineOptions& options, const ModelSource& source);

// Throws Error with the shortage and the remedy when weights, the largest step and the cache need more memory than is
// free on this machine.
void check_memory(const EngineOptions& options, const ModelSource& source, const MeshShape& mesh);

}  // namespace weft::app
