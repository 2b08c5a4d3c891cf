// LoraSet: the factors of one adapter of a whole model, apart from the model, so that rows of one pass may have
// different ones.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <unordered_map>

#include "weft/autograd/param.h"
#include "weft/autograd/tape.h"

namespace weft {

class LoraSet {
 public:
  struct Factors {
    Param a, b;  // [r, I], [O, r]
    float scale;
  };
  // Beside `weight` [O, I], cut as the part of it that this rank holds. name: of the layer. The factors have no
  // memory yet.
  Factors& add(const Param& weight, const std::string& name, int64_t rank, float scale);
  // Null where the weight has none.
  Factors* find(const Param& weight) const;

 private:
  std::unordered_map<const Param*, std::unique_ptr<Factors>> factors_;
};

// Rows [begin, begin + count) of a pass have this adapter.
struct LoraRows {
  const LoraSet* set = nullptr;
  int64_t begin = 0, count = 0;
};

// Of y = x wᵀ, which nobody else has: adds scale * x aᵀ bᵀ to the rows of each adapter, without a tape. A row is a
// function of itself and its adapter, to the last bit.
Var add_lora_rows(std::span<const LoraRows> rows, const Param& weight, Var y, const Var& x);

}  // namespace weft
