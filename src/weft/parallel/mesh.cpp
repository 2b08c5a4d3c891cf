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

Mesh::Mesh(Communicator& world, const MeshShape& s) : shape_(s), place_(place_of(s, world.rank())), world_(world) {
  if (world.size() != s.size())
    throw UsageError("the mesh pp {} x dp {} x cp {} x tp {} has {} ranks, but there are {}: change one of them",
                     s.pp, s.dp(), s.cp, s.tp, s.size(), world.size());
  if (s.shard * s.cp % s.ep != 0)
    throw UsageError("mesh.ep = {} does not divide the {} ranks of dp{} x cp {}: write a divisor", s.ep,
                     s.shard * s.cp, s.replicate > 1 ? " / hsdp" : "", s.cp);
  // Ranks of one group agree in what `outside` says of them.
  const auto group = [&](const char* label, auto&& outside) {
    return world.split_by([&](int rank) -> int { return outside(rank, place_of(s, rank)); }, label);
  };
  const int inner = s.shard * s.cp;                                                         // the ranks that ep cuts
  const auto at = [&](const MeshPlace& p) { return p.shard * s.cp + p.cp; };                // a place among them
  const auto outer = [&](const MeshPlace& p) { return p.pp * s.replicate + p.replicate; };  // which of such sets
  tp_ = group("tp", [&](int rank, const MeshPlace&) { return rank / s.tp; });
  cp_ = group("cp", [&](int, const MeshPlace& p) { return (outer(p) * s.shard + p.shard) * s.tp + p.tp; });
  pp_ = group("pp", [&](int rank, const MeshPlace&) { return rank % (s.size() / s.pp); });
  data_ = group("data", [&](int, const MeshPlace& p) { return p.pp * s.tp + p.tp; });
  shard_ = group("shard", [&](int, const MeshPlace& p) { return outer(p) * s.tp + p.tp; });
  replicate_ = group("replicate", [&](int, const MeshPlace& p) { return (p.pp * inner + at(p)) * s.tp + p.tp; });
  ep_ =
      group("ep", [&](int, const MeshPlace& p) { return (outer(p) * (inner / s.ep) + at(p) / s.ep) * s.tp + p.tp; });
  expert_shard_ =
      group("expert_shard", [&](int, const MeshPlace& p) { return (outer(p) * s.ep + at(p) % s.ep) * s.tp + p.tp; });
  expert_data_ =
      group("expert_data", [&](int, const MeshPlace& p) { return (p.pp * s.ep + at(p) % s.ep) * s.tp + p.tp; });
  ends_ = group("ends", [&](int rank, const MeshPlace& p) {
    const bool is_end = p.pp == 0 || p.pp == s.pp - 1;
    return is_end ? rank % (s.size() / s.pp) : s.size() + rank;
  });
  none_ = group("none", [](int rank, const MeshPlace&) { return rank; });
}

double Mesh::exposed_seconds() const {
  double sum = world_.stats().exposed_seconds;
  for (const Communicator* group : groups()) sum += group->stats().exposed_seconds;
  return sum;
}

std::vector<const Communicator*> Mesh::groups() const {
  return {pp_.get(),    tp_.get(),        cp_.get(),          ep_.get(),           data_.get(),
          shard_.get(), replicate_.get(), expert_data_.get(), expert_shard_.get(), ends_.get()};
}

}  // namespace weft
