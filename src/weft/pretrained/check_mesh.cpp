// check_mesh: axis by axis.
#include "weft/pretrained/check_mesh.h"

#include "weft/base/error.h"

namespace weft {

void check_mesh(const MeshShape& s, const Divisible& model) {
  if (s.pp > model.layers)
    throw UsageError("--mesh pp={}: the model has {} layers: write at most that", s.pp, model.layers);
  if (s.tp > model.heads)
    throw UsageError("--mesh tp={}: the model has {} attention heads: write at most that", s.tp, model.heads);
  if (s.ep > 1 && model.experts == 0) throw UsageError("--mesh ep={}: the model has no experts: leave ep out", s.ep);
  if (s.ep > 1 && s.ep > model.experts)
    throw UsageError("--mesh ep={}: the model has {} experts: write at most that", s.ep, model.experts);
  if (s.cp > 1 && !model.cuts_context)
    throw UsageError("--mesh cp={}: a model that only runs forward is cut by tp, pp, ep and dp", s.cp);
}

}  // namespace weft
