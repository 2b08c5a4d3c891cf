// FarMemories: the memory beyond a rank's own that a recipe gives it, and for what.
#pragma once
#include <memory>

#include "weft/autograd/far_inputs.h"
#include "weft/train/recipe.h"

namespace weft {

// While it lives, the context's recomputed functions leave their inputs here, if the recipe says so.
class FarMemories {
 public:
  // Over meta memory nothing is copied and no file is made.
  FarMemories(Context& context, const MeshConfig& mesh, int rank);
  ~FarMemories();
  FarMemories(const FarMemories&) = delete;
  FarMemories& operator=(const FarMemories&) = delete;

  // Null: near.
  FarMemory* optimizer() { return of(offload_.optimizer); }
  FarMemory* parameters() { return of(offload_.parameters); }
  FarStats stats() const;  // of all
  int64_t host_bytes() const { return host_ ? host_->stats().reserved_bytes : 0; }

 private:
  FarMemory* of(OffloadTo to) {
    return to == OffloadTo::host ? host_.get() : to == OffloadTo::disk ? disk_.get() : nullptr;
  }

  Context& context_;
  OffloadConfig offload_;
  std::unique_ptr<FarMemory> host_, disk_;
  std::unique_ptr<FarInputs> inputs_;
};

}  // namespace weft
