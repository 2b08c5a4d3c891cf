// FarWeights: layers of a model that only runs forward whose weights lie beyond the rank's memory, and come while the
// layer before them computes.
#pragma once
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "weft/autograd/param.h"
#include "weft/parallel/brackets.h"
#include "weft/tensor/far_memory.h"

namespace weft {

// How many layers of each stage of a pipeline are far: spread among the near ones, so that each has their time to
// come. On a CPU they lie in a file, on a device in the host's memory.
struct FarLayers {
  int64_t count = 0;
  std::string folder = {};  // for the file, which has no name once it is there
  bool has(int64_t layer, int64_t layers) const { return (layer + 1) * count / layers > layer * count / layers; }
};

// Two layers' bytes are near: those that compute and those that come. A step reads each far layer once, in order, and
// the first ones of the next step come behind the end of this one.
class FarWeights : public Brackets {
 public:
  FarWeights(Context& context, const FarLayers& layers, int rank);
  ~FarWeights() override;  // after transfers under way

  // A group, after those that are used before it. Its parameters have their values, and what products read; from now
  // on they have them between enter and leave.
  void add(size_t group, const std::vector<Param*>& params);
  // All are there: the first ones come.
  void start();

  Var enter(size_t group, const Var& x) override;
  Var leave(size_t group, const Var& x) override;

  FarStats stats() const { return memory_->stats(); }
  bool has_failed() const { return memory_->has_failed(); }  // no layer comes any more

 private:
  struct Piece {
    Tensor* tensor;
    DType dtype;
    Shape shape;
    size_t offset;  // in the group's bytes
  };
  struct Group {
    size_t number;
    std::vector<Piece> pieces;
    FarMemory::Slot slot;
  };
  struct Near {
    Tensor bytes;  // of the largest group
    FarMemory::Ticket ticket = 0;
    size_t group = 0;  // which is there or comes, in groups_
  };
  void reserve(size_t bytes);
  void bring(size_t group, Near& into);
  static void bind(const Group& group, const Tensor& bytes);
  static constexpr size_t kNear = SIZE_MAX;
  size_t find(size_t group) const;  // in groups_, or kNear

  Context& context_;
  std::unique_ptr<FarMemory> memory_;
  std::vector<Group> groups_;  // in the order of use
  std::array<Near, 2> near_;
  size_t next_ = 0;  // which of near_ is entered next
};

}  // namespace weft
