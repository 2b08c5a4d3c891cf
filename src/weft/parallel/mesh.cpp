// Mesh: from ranks to coordinates to groups.
#include "weft/parallel/mesh.h"

namespace weft {

MeshPlace place_of(const MeshShape& s, int rank) {
  MeshPlace p;
  p.tp = rank % s.tp, rank /= s.tp;
  p.cp = rank % s.cp, rank /= s.cp;
  p.shard = rank % s.shard, rank /= s.shard;
  p.replicate = rank % s.replicate, rank /= s.replicate;
  p.pp = rank;
  return p;
}

Mesh::Mesh(Communicator& world, const MeshShape& s)
    : shape_(s), place_(place_of(s, world.rank())), world_(world) {
  if (world.size() != s.size())
    throw UsageError("the mesh pp {} x dp {} x cp {} x tp {} has {} ranks, but there are {}: change one of them", s.pp,
                     s.dp(), s.cp, s.tp, s.size(), world.size());
  if (s.shard * s.cp % s.ep != 0)
    throw UsageError("mesh.ep = {} does not divide the {} ranks of dp{} x cp {}: write a divisor", s.ep,
                     s.shard * s.cp, s.replicate > 1 ? " / hsdp" : "", s.cp);
  const MeshPlace& p = place_;
  // A color is the place along all the other axes; keys are world ranks, which grow along every axis.
  const auto group = [&](int color, const char* label) { return world.split(color, world.rank(), label); };
  const int inner = s.shard * s.cp, at = p.shard * s.cp + p.cp;  // the ranks that ep cuts, and this one's place there
  const int outside = p.pp * s.replicate + p.replicate;
  tp_ = group(world.rank() / s.tp, "tp");
  cp_ = group((outside * s.shard + p.shard) * s.tp + p.tp, "cp");
  pp_ = group(world.rank() % (s.dp() * s.cp * s.tp), "pp");
  data_ = group(p.pp * s.tp + p.tp, "data");
  shard_ = group(outside * s.tp + p.tp, "shard");
  replicate_ = group((p.pp * inner + at) * s.tp + p.tp, "replicate");
  ep_ = group((outside * (inner / s.ep) + at / s.ep) * s.tp + p.tp, "ep");
  expert_shard_ = group((outside * s.ep + at % s.ep) * s.tp + p.tp, "expert_shard");
  expert_data_ = group((p.pp * s.ep + at % s.ep) * s.tp + p.tp, "expert_data");
  const int last = s.pp - 1, column = world.rank() % (s.size() / s.pp);
  const bool is_end = p.pp == 0 || p.pp == last;
  ends_ = group(is_end ? column : s.size() + world.rank(), "ends");
  none_ = group(world.rank(), "none");
}

}  // namespace weft
