// LoraSet: the factors of one adapter of a whole model, apart from the model, so that rows of one pass may have
// different ones.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <unordered_map>

#include "weft/autograd/param.h"
#include "weft/autograd/tape.h"
#include "weft/parallel/expert/route.h"

namespace weft {

class LoraSet {
 public:
  struct Factors {
    Param a, b;  // [r, I], [O, r], or those of each expert
    float scale;
  };
  // Beside `weight` [O, I] or [E, O, I], cut as the part of it that this rank holds. name: of the layer. The factors
  // have no memory yet.
  Factors& add(const Param& weight, const std::string& name, int64_t rank, float scale);
  // Null where the weight has none.
  Factors* find(const Param& weight) const;

 private:
  std::unordered_map<const Param*, std::unique_ptr<Factors>> factors_;
};

// Adapters of the rows of a pass.
struct RowAdapters {
  // Rows [begin, begin + count) have sets[set].
  struct Run {
    int32_t set = 0;
    int64_t begin = 0, count = 0;
  };
  std::span<const Run> runs;             // ascending
  std::span<const LoraSet* const> sets;  // the same on all ranks, or none where no row of any rank has one
};

// Of y = x wᵀ, which nobody else has: adds scale * x aᵀ bᵀ to the rows of each adapter, without a tape. A row is a
// function of itself and its adapter, to the last bit.
Var add_lora_rows(const RowAdapters& adapters, const Param& weight, Var y, const Var& x);
// The same of rows that are ordered by expert. set_of_rows: the set of each, or -1.
Var add_expert_lora_rows(const RowAdapters& adapters, std::span<const int32_t> set_of_rows, const Route& route,
                         const Param& weight, Var y, const Var& x);

}  // namespace weft
