// ModelParts: the parts of one model that this rank holds, cut as the mesh says, and what pipeline stages need of
// them.
#pragma once
#include <memory>
#include <vector>

#include "weft/models/decoder.h"
#include "weft/parallel/mesh.h"
#include "weft/parallel/pipeline/schedule.h"
#include "weft/train/recipe.h"

namespace weft {

// Says of every parameter whether the recipe trains it: with adapters those alone.
void choose_trained(const Recipe& recipe, Decoder& model);

struct ParamCount {
  int64_t all = 0, trained = 0;
};
ParamCount count_params(const Recipe& recipe);

class ModelParts {
 public:
  // Parts are in the order of their stages. The mesh outlives this.
  ModelParts(const Recipe& recipe, const Mesh& mesh, const Schedule& schedule);

  std::vector<std::unique_ptr<Decoder>>& parts() { return parts_; }
  // Of all parts, one after the other.
  std::vector<std::vector<Param*>> param_groups();
  // The group that more than one use of keeps open for a step: an embedding that is also read behind the layers here;
  // else -1.
  int shared_group() const { return shared_group_; }
  const Partition& partition() const { return partition_; }

 private:
  Partition partition_;
  std::vector<std::unique_ptr<Decoder>> parts_;
  int shared_group_ = -1;
};

}  // namespace weft
