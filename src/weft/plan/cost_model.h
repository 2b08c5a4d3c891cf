// CostModel: how long an event of a trace takes on described hardware.
#pragma once
#include "weft/parallel/mesh.h"
#include "weft/plan/hardware.h"
#include "weft/plan/step_trace.h"

namespace weft::plan {

// As which the operands of a product of tensors of `dtype` are multiplied.
MatmulType matmul_type_of(DType dtype);

// What the software on the devices does, apart from the program that is traced.
struct Stack {
  bool has_fp8 = false;               // matrix products of blocks run in fp8, their operands cast before
  bool has_fused_attention = true;    // false: scores are written to memory and read again
  bool recomputes_scores = false;     // and these are computed again before their gradients
  double attention = 1;               // times the shares of Hardware::attention_forward and _backward
  bool has_narrow_heads = true;       // heads narrower than 128 take more than their share
  double visible = 1;                 // share of the pairs of a row that packed documents leave
  double expert_load = 1;             // rows of the rank whose experts are the busiest, times an even share
  bool has_balanced_context = true;   // false: ring attention over parts of the row in order; the last sees all keys
  bool has_epilogues = true;          // false: activations are kernels of their own
  int whole_logits = 0;               // columns of logits on a rank, where those of a micro-batch are made at once
  double logits = 7;                  // times the bytes of their cross-entropy there
  bool has_tp_copies = false;         // of rows gathered or summed over tp, whose parts lie apart in a micro-batch
  bool has_tp_overlap = false;        // collectives of tp run beside parts of the products that they belong to
  bool has_16bit_gradients = false;   // those that ranks add up
  bool has_grouped_products = true;   // on cards products of experts of few rows share a launch
  bool has_sharded_dispatch = false;  // experts' tokens leave from parts of the rows, and are gathered over tp there
  double small_kernels = 1;           // times the bytes of kernels bound by memory: programs that fuse less than weft
  double step_overhead_s = 0;         // of a step, on the host
  // Of kernels while a collective inside a node runs, which takes cores, and while one between nodes does. Source:
  // Isaev et al., "Calculon", SC 2023, processor usage of its networks.
  double link_slowdown = 0.15, network_slowdown = 0.02;
};

// Where the ranks of a group stand.
struct GroupPlace {
  int size = 1;
  int per_node = 1;  // of its ranks, in one node
  int num_nodes() const { return size / per_node; }
};
GroupPlace group_place(const MeshShape& shape, Axis axis, int devices_per_node);

class CostModel {
 public:
  CostModel(const Hardware& hardware, const MeshShape& shape, const Stack& stack = {});

  // A kernel, alone on the device, without what follows its end.
  double kernel_s(const Event& event) const;
  // What of that its main memory traffic alone would take, that of casting operands included.
  double traffic_s(const Event& event) const;
  // A collective of the group, started by all at once. Bytes as in Collective::bytes.
  double collective_s(CommOp op, double bytes, Axis axis) const;
  // The same of an event, with what the stack sums in 16 bits.
  double collective_s(const Event& event) const;
  // What of one that blocks is waited for.
  double exposed_s(const Event& event) const;
  // From the start of a send to its arrival at the neighbour along the axis.
  double message_s(double bytes, Axis axis) const;
  // What a kernel takes longer while a collective of that group runs.
  double slowdown(Axis axis) const;
  const GroupPlace& place(Axis axis) const { return places_[size_t(axis)]; }
  // How many times as fast kernels run while ranks of `stages` stages of the pipeline do, beside while all do: ranks
  // of one machine leave their cores to the others when they wait.
  double relief(int stages) const { return reliefs_.empty() ? 1 : reliefs_[size_t(stages)]; }
  // From the end of a kernel to the beginning of the next.
  double launch_s() const { return hardware_.launch_s; }
  double launches_s(const Event& event) const { return launch_s() * (is_one_launch(event) ? 1 : event.count); }
  double step_overhead_s() const { return stack_.step_overhead_s; }
  const Hardware& hardware() const { return hardware_; }  // of one rank
  bool is_shared() const { return is_shared_; }

  // Of a product m x n x k alone, or of `count` in the same waves: tiles in waves over the cores, and bytes.
  double matmul_s(double m, double n, double k, MatmulType type, double bytes, int count = 1) const;

 private:
  // Whether what the event counts is launched at once.
  bool is_one_launch(const Event& event) const;
  bool is_fp8(const Event& event) const;
  double casts_s(const Event& event) const;
  double attention_s(const Event& event) const;
  double head_matmul_s(const Event& event) const;
  double memory_s(double bytes) const { return bytes / (hardware_.memory_bytes_per_s * hardware_.memory_reached); }

  Hardware hardware_;
  MeshShape shape_;
  Stack stack_;
  std::array<GroupPlace, kNumAxes> places_;
  bool is_shared_;
  std::vector<double> reliefs_;  // by stages; empty: a device is its rank's alone
};

}  // namespace weft::plan
