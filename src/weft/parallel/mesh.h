// Mesh: the world as named axes, and the groups of ranks along them.
#pragma once
#include <memory>
#include <vector>

#include "weft/comm/communicator.h"

namespace weft {

// Outer to inner: pp, replicate, shard, cp, tp. Data parallelism is replicate x shard; ep re-cuts shard x cp.
struct MeshShape {
  int pp = 1, replicate = 1, shard = 1, cp = 1, tp = 1, ep = 1;

  int dp() const { return replicate * shard; }
  int size() const { return pp * dp() * cp * tp; }
  // The first rank of the last stage: the one that says what came of a pass.
  int driver() const { return size() - size() / pp; }
  bool operator==(const MeshShape&) const = default;
};

// Where one rank stands.
struct MeshPlace {
  int pp = 0, replicate = 0, shard = 0, cp = 0, tp = 0;
};
MeshPlace place_of(const MeshShape& shape, int rank);

// The groups that one rank belongs to; each is ordered as its axis is. Making it is a collective call.
class Mesh {
 public:
  // Throws UsageError when the world has another size or ep does not divide shard x cp.
  Mesh(Communicator& world, const MeshShape& shape);

  const MeshShape& shape() const { return shape_; }
  const MeshPlace& place() const { return place_; }
  // Which rows of the batch are this rank's: in [0, shape().dp()).
  int data_rank() const { return place_.replicate * shape_.shard + place_.shard; }

  bool is_driver() const { return world_.rank() == shape_.driver(); }

  Communicator& world() const { return world_; }
  Communicator& pp() const { return *pp_; }
  Communicator& tp() const { return *tp_; }
  Communicator& cp() const { return *cp_; }
  Communicator& ep() const { return *ep_; }
  // Ranks that saw other tokens and hold the same dense weights: replicate x shard x cp, and its two factors.
  Communicator& data() const { return *data_; }
  Communicator& shard() const { return *shard_; }
  Communicator& replicate() const { return *replicate_; }
  // Likewise for the weights of experts: what ep leaves of the three.
  Communicator& expert_data() const { return *expert_data_; }
  Communicator& expert_shard() const { return *expert_shard_; }
  // The first and the last stage, where they are different ranks and this is one of them; else of one rank.
  Communicator& ends() const { return *ends_; }
  // This rank alone.
  Communicator& none() const { return *none_; }
  // All but the world and none().
  std::vector<const Communicator*> groups() const;
  // In which this rank waited in collectives of any group, since the mesh was made.
  double exposed_seconds() const;

 private:
  MeshShape shape_;
  MeshPlace place_;
  Communicator& world_;
  std::unique_ptr<Communicator> pp_, tp_, cp_, ep_, data_, shard_, replicate_, expert_data_, expert_shard_, ends_,
      none_;
};

}  // namespace weft
