// RankProgress: what one rank last said of where it is, for the messages of ranks that wait for it in vain.
#pragma once
#include <sched.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "weft/comm/collective.h"

namespace weft {

// A value that threads or processes read while it is written: a reader who meets a writer looks again, a writer who
// meets another one lets its value go. Zeroed memory is a note that says T{}, all zero.
template <class T>
class Note {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 8 == 0);

 public:
  void write(const T& value) noexcept {
    uint32_t version = version_.load(std::memory_order_relaxed);
    if (version % 2 != 0 || !version_.compare_exchange_strong(version, version + 1)) return;
    std::array<uint64_t, sizeof(T) / 8> words;
    std::memcpy(words.data(), &value, sizeof value);
    for (size_t i = 0; i < words.size(); ++i) words_[i].store(words[i], std::memory_order_release);
    version_.store(version + 2, std::memory_order_release);
  }

  T read() const noexcept {
    std::array<uint64_t, sizeof(T) / 8> words;
    for (int i = 0; i < kTries; ++i) {
      const uint32_t before = version_.load(std::memory_order_acquire);
      for (size_t w = 0; w < words.size(); ++w) words[w] = words_[w].load(std::memory_order_acquire);
      if (before % 2 == 0 && version_.load(std::memory_order_relaxed) == before) {
        T value;
        std::memcpy(&value, words.data(), sizeof value);
        return value;
      }
      sched_yield();
    }
    return {};  // the writer was stopped in the midst
  }

 private:
  static constexpr int kTries = 1000;
  std::atomic<uint32_t> version_;
  std::atomic<uint64_t> words_[sizeof(T) / 8];
};

// Lies in memory that the ranks share; zeroed memory is one that says nothing. Writing takes some 20 ns.
class alignas(64) RankProgress {
 public:
  void set_rank(int world_rank) noexcept { world_rank_.store(world_rank + 1); }
  int world_rank() const { return world_rank_.load() - 1; }  // -1: not said

  void set_place(std::string_view what, int64_t step) noexcept;
  int64_t step() const { return place_.read().step_plus_one - 1; }  // -1: not said

  // Before and after a call. `is_started`: on a communication thread.
  void enter(const Collective& call, std::string_view label, bool is_started) noexcept;
  void leave(bool is_started) noexcept { (is_started ? started_ : own_).is_done.store(true); }
  bool is_inside(const Collective& call, std::string_view label) const;

  // Counts what the rank does: its calls, its places, and whatever else beats it, such as ops. Who waits looks at it.
  std::atomic<uint64_t>& pulse() noexcept { return pulse_; }
  const std::atomic<uint64_t>& pulse() const noexcept { return pulse_; }

  // A patient rank waits for others without a limit.
  void set_patient(bool is_patient) noexcept { is_patient_.store(is_patient); }
  bool is_patient() const { return is_patient_.load(); }

  void set_left() noexcept { has_left_.store(true); }
  bool has_left() const { return has_left_.load(); }

  // `was last seen in "backward stage 0 micro-batch 2" of step 12, inside recv ... (group pp, call 3)`; empty when
  // nothing is known.
  std::string describe() const;

 private:
  struct Place {
    int64_t step_plus_one;
    char text[88];
  };
  struct Call {
    int64_t sequence;  // 0: none yet
    uint64_t bytes, row_bytes;
    int32_t peer, tag;
    CommOp op;
    DType dtype;
    Reduction reduction;
    char label[29];
  };
  // Of one thread, or of the communication threads of all groups, the last that wrote.
  struct Calls {
    Note<Call> last;
    std::atomic<bool> is_done;
  };
  static std::string describe(const Call& call);

  std::atomic<int32_t> world_rank_;
  std::atomic<bool> has_left_, is_patient_;
  std::atomic<uint64_t> pulse_;
  Note<Place> place_;
  Calls own_, started_;
};

// "all_reduce of 4096 bytes f32 (group dp, call 17, step 12)"; `own` may be null.
std::string describe(const Collective& call, std::string_view label, const RankProgress* own);

// "rank 1", or "rank 1 (rank 5 of world)" when the group counts otherwise; `progress` may be null.
std::string describe_rank(int rank, const RankProgress* progress);

}  // namespace weft
