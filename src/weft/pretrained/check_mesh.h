// check_mesh: whether a model that only runs forward can be cut over a mesh.
#pragma once
#include "weft/parallel/mesh.h"

namespace weft {

// Of what a mesh has at most as many ranks as the model has.
struct Divisible {
  int64_t layers = 0, heads = 0, experts = 0;
  bool cuts_context = false;  // ranks may compute different tokens of a text
};

// Throws UsageError naming the axis.
void check_mesh(const MeshShape& shape, const Divisible& model);

}  // namespace weft
