// ReadOrder: what workers will probably read next, learnt from what they read after the same round before.
#pragma once
#include <cstddef>
#include <unordered_map>
#include <vector>

#include "weft/base/function_ref.h"

namespace weft {

// Steps of a model read its weights in one order. A round is known by where its first worker begins to read.
class ReadOrder {
 public:
  explicit ReadOrder(int workers) : workers_(size_t(workers)) {}

  // A round begins in which worker i reads from start(i) on. Gives where each worker began in the round that came
  // after this one the last time, or null where none did; valid until the next call.
  const std::byte* const* begin(FunctionRef<const void*(int worker)> start) {
    std::vector<const std::byte*>* const before = last_;
    if (before) {
      before->resize(workers_);
      for (size_t i = 0; i < workers_; ++i) (*before)[i] = static_cast<const std::byte*>(start(int(i)));
    }
    if (after_.size() >= kMostRounds) after_.clear();  // models came and went
    last_ = &after_[start(0)];
    return last_->empty() ? nullptr : last_->data();
  }

 private:
  static constexpr size_t kMostRounds = 1 << 14;

  size_t workers_;
  std::unordered_map<const void*, std::vector<const std::byte*>> after_;  // of each round, by where it begins
  std::vector<const std::byte*>* last_ = nullptr;                         // what came after the last round
};

}  // namespace weft
