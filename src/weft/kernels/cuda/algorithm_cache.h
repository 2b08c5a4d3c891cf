// AlgorithmCache: what was found out about a product is kept for the next of its kind; the least recently used goes.
#pragma once
#include <functional>
#include <list>
#include <mutex>
#include <unordered_map>

#include "weft/kernels/cuda/gemm.h"

namespace weft::cuda {

// What the choice of an algorithm depends on.
struct AlgorithmKey {
  int64_t m, n, k, y_stride, a_stride, batch;
  DType type, y_type;
  bool transpose_a, transpose_b, rounds_f32, has_bias;
  CodeScales scales;
  GemmActivation activation;
  int64_t y_alignment, a_alignment, b_alignment;

  explicit AlgorithmKey(const Gemm& g)
      : m(g.m),
        n(g.n),
        k(g.k),
        y_stride(g.y_stride),
        a_stride(g.a_stride),
        batch(g.batch),
        type(g.type),
        y_type(g.y_type),
        transpose_a(g.transpose_a),
        transpose_b(g.transpose_b),
        rounds_f32(g.rounds_f32),
        has_bias(g.bias != nullptr),
        scales(g.scales),
        activation(g.activation),
        y_alignment(alignment_of(g.y)),
        a_alignment(alignment_of(g.a)),
        b_alignment(alignment_of(g.b)) {}
  bool operator==(const AlgorithmKey&) const = default;
};

struct AlgorithmKeyHash {
  size_t operator()(const AlgorithmKey& key) const {
    uint64_t hash = 0;
    const auto mix = [&](uint64_t x) { hash = (hash ^ x) * 0x9e3779b97f4a7c15u, hash ^= hash >> 32; };
    for (const int64_t x : {key.m, key.n, key.k, key.y_stride, key.a_stride, key.batch, key.y_alignment,
                            key.a_alignment, key.b_alignment})
      mix(uint64_t(x));
    mix(uint64_t(key.type) | uint64_t(key.y_type) << 8);
    mix(uint64_t(key.transpose_a) | uint64_t(key.transpose_b) << 1 | uint64_t(key.rounds_f32) << 2 |
        uint64_t(key.has_bias) << 3 | uint64_t(key.scales) << 4 | uint64_t(key.activation) << 8);
    return size_t(hash);
  }
};

// Thread-safe: threads whose ranks share a device share what they know.
template <class Value>
class AlgorithmCache {
 public:
  explicit AlgorithmCache(size_t most_entries) : most_entries_(most_entries) {}

  // The value of the key; `make`, which may throw, is asked when there is none.
  Value get(const AlgorithmKey& key, const std::function<Value()>& make) {
    const std::lock_guard lock(mutex_);
    if (const auto found = places_.find(key); found != places_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);
      return entries_.front().second;
    }
    entries_.emplace_front(key, make());
    places_[key] = entries_.begin();
    if (entries_.size() > most_entries_) {
      places_.erase(entries_.back().first);
      entries_.pop_back();
    }
    return entries_.front().second;
  }
  size_t size() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }

 private:
  using Entries = std::list<std::pair<AlgorithmKey, Value>>;

  size_t most_entries_;
  mutable std::mutex mutex_;
  Entries entries_;  // the most recently used first
  std::unordered_map<AlgorithmKey, typename Entries::iterator, AlgorithmKeyHash> places_;
};

}  // namespace weft::cuda
