// TensorExchange: puts tensors of which many ranks have parts together, each whole on one rank.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/function_ref.h"
#include "weft/comm/communicator.h"

namespace weft {

// Which of `ranks` ranks gets each tensor, in order, so that all get about as many bytes.
std::vector<int> spread(std::span<const uint64_t> bytes, int ranks);

// Every rank adds the same tensors in the same order. Parts travel together by all_to_all, so a rank sends no more
// than it has and receives no more than it will keep; in rounds, so that none keeps others waiting long for a network
// that is slow. Runs that are given and taken are signs of life, since they may come from a disk.
class TensorExchange {
 public:
  explicit TensorExchange(Communicator& world);

  // each_run calls its argument with every run of elements that is on this rank, as Optimizer::VisitState is called;
  // exactly one rank counts each element. whole: f32, on the receiving rank, where it must stay until finish().
  using EachRun = FunctionRef<void(FunctionRef<void(const Tensor& here, int64_t first, bool is_counted)>)>;
  void add(int receiver, const Tensor& whole, int64_t numel, EachRun each_run);
  // Afterwards all tensors are complete. Throws Error when elements came from nobody or from several ranks.
  void finish();

 private:
  struct Open {  // a tensor that this rank receives
    Tensor whole;
    int64_t elements = 0;  // that have come
  };
  void receive(int64_t tensor, int64_t first, std::span<const float> values);
  void receive_packet(std::span<const float> packet);
  void flush();
  std::vector<std::vector<float>> swap_packets();
  void show_life();

  Communicator& world_;
  std::vector<std::vector<float>> packets_;  // for each rank: a header, then values, run after run
  std::vector<Open> open_;                   // by number; empty where another rank receives
  int64_t bytes_ = 0;                        // of the tensors since the last flush
  Allocator memory_;
};

}  // namespace weft
