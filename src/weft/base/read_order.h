// ReadOrder: what workers will probably read next, learnt from what they read after the same round before.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "weft/base/function_ref.h"

namespace weft {

// Steps of a model read its weights in one order. A round is known by where its first worker begins to read. Nothing
// is allocated after the beginning, also where weights are gathered into other memory in every step: of more rounds
// than there is room for, new ones take the places of others.
class ReadOrder {
 public:
  explicit ReadOrder(int workers)
      : workers_(size_t(workers)),
        rounds_(kMostRounds),
        starts_(std::make_unique_for_overwrite<const std::byte*[]>(kMostRounds * workers_)) {}

  // A round begins in which worker i reads from start(i) on. Gives where each worker began in the round that came
  // after this one the last time, or null where none did; valid until the next call.
  const std::byte* const* begin(FunctionRef<const void*(int worker)> start) {
    const void* const at = start(0);
    if (last_) last_->next = at;
    const size_t place = place_of(at);
    if (rounds_[place].at != at) rounds_[place] = {at};
    last_ = &rounds_[place];
    for (size_t i = 0; i < workers_; ++i)
      starts_[place * workers_ + i] = static_cast<const std::byte*>(start(int(i)));
    if (!last_->next) return nullptr;
    const size_t next = place_of(last_->next);
    return rounds_[next].at == last_->next ? &starts_[next * workers_] : nullptr;
  }

 private:
  struct Round {
    const void* at = nullptr;    // where it begins; null: a free place
    const void* next = nullptr;  // where the round that came after it did
  };
  static constexpr int kBits = 14;
  static constexpr size_t kMostRounds = size_t(1) << kBits;

  // Its own, a free one, or that of another round.
  size_t place_of(const void* at) const {
    constexpr size_t kTries = 8;
    const auto home = size_t(reinterpret_cast<uintptr_t>(at) * 0x9E3779B97F4A7C15 >> (64 - kBits));
    for (size_t i = 0; i < kTries; ++i) {
      const size_t place = (home + i) % kMostRounds;
      if (!rounds_[place].at || rounds_[place].at == at) return place;
    }
    return home;
  }

  const size_t workers_;
  std::vector<Round> rounds_;
  std::unique_ptr<const std::byte*[]> starts_;  // [rounds, workers]
  Round* last_ = nullptr;
};

}  // namespace weft
