// StepTrace: what one rank does in a step of training, as a list of events, and the memory that it takes.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/autograd/context.h"
#include "weft/comm/collective.h"
#include "weft/parallel/pipeline/schedule.h"
#include "weft/tensor/dtype.h"

namespace weft::plan {

// The groups of a mesh, by the labels that Mesh gives them.
enum class Axis : uint8_t { world, tp, cp, pp, data, shard, replicate, ep, expert_shard, expert_data, ends, none };
inline constexpr int kNumAxes = 12;
std::string_view name_of(Axis axis);
Axis axis_of(std::string_view label);  // none for a label that no mesh gives

struct Event {
  enum class Kind : uint8_t {
    matmul,      // m x n x k
    attention,   // forward or backward; flops of visible pairs
    memory,      // a kernel that is bound by its bytes
    collective,  // blocks until it is done
    start,       // runs beside what follows, until `wait` of the same axis and sequence
    wait,
    send,  // buffered: blocks nothing
    recv,
    action,  // begins an action of the pipeline: stage, micro_batch
    end_action,
  };
  Kind kind = Kind::memory;
  Axis axis = Axis::none;
  CommOp op = CommOp::barrier;
  ActionKind action = ActionKind::forward;
  DType dtype = DType::f32;  // of the operands
  bool is_backward = false;
  bool is_weight_gradient = false;                       // a product over the tokens
  OpObserver::Phase phase = OpObserver::Phase::forward;  // of the op that a kernel belongs to
  int32_t m = 0, n = 0, k = 0;
  int32_t count = 1;           // so many such products, of a layer's experts; flops and bytes are of all
  int32_t peer = 0, tag = 0;   // along the axis; action: the stage and the micro-batch
  bool is_float8 = false;      // MatmulArgs::float8
  int64_t sequence = 0;        // of a collective in its group
  double flops = 0;            // of a kernel
  double bytes = 0;            // main memory traffic of a kernel; of a collective as in Collective::bytes
  double fused_bytes = 0;      // of a product: what its epilogue would move as a kernel of its own
  double seconds = 0;          // measured; 0 where it was not run
  std::string_view name = "";  // of the kernel; lives as long as the program
};

// What live memory is for.
enum class MemoryUse : uint8_t { weights, gradients, optimizer, activations, communication };
inline constexpr int kNumMemoryUses = 5;
std::string_view name_of(MemoryUse use);

// Bytes, by use.
struct MemorySplit {
  std::array<int64_t, kNumMemoryUses> bytes{};
  int64_t& operator[](MemoryUse use) { return bytes[size_t(use)]; }
  int64_t operator[](MemoryUse use) const { return bytes[size_t(use)]; }
  int64_t total() const {
    int64_t sum = 0;
    for (const int64_t b : bytes) sum += b;
    return sum;
  }
};

// The moment at which a rank holds most.
struct MemoryPeak {
  MemorySplit split;
  std::string where;  // "backward of linear in backward stage 0 micro-batch 3"
  int64_t event = 0;  // how many events came before
  std::string kind;   // where, without the micro-batch: "backward of linear in backward"
};

// What a rank held at most between an event and the next.
struct MemorySample {
  int64_t event = 0;  // how many events came before
  MemorySplit split;
};

struct StepTrace {
  std::vector<Event> events;
  MemoryPeak peak;
  std::vector<MemoryPeak> peaks;     // of each kind, to be continued: what is highest in longer steps may be another
  std::vector<MemorySample> memory;  // when asked for
  int64_t state_bytes = 0;           // held between steps
  int64_t host_bytes = 0;            // beside these, on the host, where the recipe offloads to it
};

}  // namespace weft::plan
