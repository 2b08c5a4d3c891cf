// ColumnTasks: products of one a, cut by columns into tasks for the threads of a team.
#pragma once
#include <algorithm>
#include <span>

#include "weft/base/ceil_div.h"
#include "weft/kernels/kernels.h"

namespace weft::cpu {

// How many of the first products can be made together: those whose epilogues read no other's y. Making columns of a
// gate and of what it gates in one task was tried: threads that read two streams by turns took 7% longer.
inline size_t count_together(std::span<const MatmulArgs> products) {
  size_t count = 1;
  while (count < products.size() && products[count].epilogue.kind != Epilogue::Kind::gated) ++count;
  return count;
}

// A task makes some neighbouring columns of one product; tasks are in the order of products and columns.
class ColumnTasks {
 public:
  ColumnTasks(std::span<const MatmulArgs> products, int64_t cols_of_task)
      : products_(products), cols_of_task_(cols_of_task) {
    for (const MatmulArgs& p : products) count_ += tasks_of(p);
  }

  struct Columns {
    size_t product = 0;
    int64_t first = 0;
    int count = 0;
  };

  int64_t count() const { return count_; }
  Columns operator[](int64_t task) const {
    size_t i = 0;
    while (task >= tasks_of(products_[i])) task -= tasks_of(products_[i++]);
    const int64_t first = task * cols_of_task_;
    return {i, first, int(std::min(cols_of_task_, products_[i].y.dim(1) - first))};
  }

 private:
  int64_t tasks_of(const MatmulArgs& p) const { return ceil_div(p.y.dim(1), cols_of_task_); }

  std::span<const MatmulArgs> products_;
  int64_t cols_of_task_, count_ = 0;
};

}  // namespace weft::cpu
