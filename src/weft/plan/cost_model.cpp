// CostModel: products by tiles and waves, the rest by bytes, collectives by rings over the slower of two links.
#include "weft/plan/cost_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace weft::plan {
namespace {

// Consecutive ranks of a group are `stride` ranks of the world apart.
struct Line {
  int size, stride;
};

Line line_of(const MeshShape& s, Axis axis) {
  const int inner = s.shard * s.cp;
  switch (axis) {
    case Axis::world: return {s.size(), 1};
    case Axis::tp: return {s.tp, 1};
    case Axis::cp: return {s.cp, s.tp};
    case Axis::shard: return {s.shard, s.tp * s.cp};
    case Axis::data: return {s.replicate * inner, s.tp};
    case Axis::replicate: return {s.replicate, s.tp * inner};
    case Axis::ep: return {s.ep, s.tp};
    case Axis::expert_shard: return {inner / s.ep, s.tp * s.ep};
    case Axis::expert_data: return {s.replicate * inner / s.ep, s.tp * s.ep};
    case Axis::pp: return {s.pp, s.size() / s.pp};
    case Axis::ends: return {s.pp > 1 ? 2 : 1, s.size() / s.pp * (s.pp - 1)};
    case Axis::none: return {1, 1};
  }
  return {1, 1};
}

// Elements that a product rounds to 8 bits first.
double rounded_elements(const Event& e) { return e.is_float8 ? (double(e.m) + e.n) * e.k * e.count : 0; }
// Of the product itself: its event also has reading and writing 16 bits of each of those.
double product_bytes(const Event& e) { return e.bytes - 4 * rounded_elements(e); }

}  // namespace

MatmulType matmul_type_of(DType dtype) {
  return dtype == DType::bf16 ? MatmulType::bf16 : dtype == DType::f16 ? MatmulType::fp16 : MatmulType::fp32;
}

GroupPlace group_place(const MeshShape& shape, Axis axis, int devices_per_node) {
  const Line line = line_of(shape, axis);
  int per_node = std::clamp(devices_per_node / std::max(line.stride, 1), 1, line.size);
  while (line.size % per_node != 0) --per_node;
  return {line.size, per_node};
}

CostModel::CostModel(const Hardware& hardware, const MeshShape& shape, const Stack& stack)
    : hardware_(hardware.of_ranks(std::min(shape.size(), hardware.devices_per_node))),
      shape_(shape),
      stack_(stack),
      is_shared_(hardware.is_shared()) {
  for (int axis = 0; axis < kNumAxes; ++axis)
    places_[size_t(axis)] = group_place(shape, Axis(axis), hardware.devices_per_node);
  if (is_shared_ && shape.pp > 1 && shape.size() <= hardware.devices_per_node)
    for (int stages = 0; stages <= shape.pp; ++stages)
      reliefs_.push_back(hardware.relief(shape.size(), stages * (shape.size() / shape.pp)));
}

// The result is cut into tiles, of which as many are computed at a time as there are cores; the last wave is not
// full. Smaller tiles, which run at less speed, are taken where they fill the cores better. Source of the effect:
// NVIDIA, "Matrix Multiplication Background", 2023; the figures are fitted to measured products (hardware/*.toml).
// Results of few rows have few tiles: there the terms are shared out too, and the parts are added up from memory
// ("split-K" of cuBLAS and CUTLASS).
double CostModel::matmul_s(double m, double n, double k, MatmulType type, double bytes, int count) const {
  MatmulType used = type;
  if (hardware_.peak(used) == 0) used = hardware_.peak(MatmulType::bf16) > 0 ? MatmulType::bf16 : MatmulType::fp16;
  if (hardware_.peak(used) == 0) used = MatmulType::fp32;
  const double speed =
      hardware_.peak(used) * hardware_.reached[size_t(used)] * hardware_.sustained / hardware_.cores;  // of one core
  constexpr double kSmallTile = 1.15;
  double best = INFINITY;
  const bool has_few_rows = m <= hardware_.tile_m;
  const double most_parts = has_few_rows ? 16 : 1;
  const auto try_tile = [&](double a, double b, double penalty) {
    const double tiles = count * std::ceil(m / a) * std::ceil(n / b);
    for (double parts = 1; parts <= most_parts; parts *= 2) {
      const double waves = std::ceil(tiles * parts / hardware_.cores);
      const double depth = k / parts + hardware_.half_depth;
      const double sums = parts > 1 ? memory_s(2 * parts * count * m * n * double(sizeof(float))) : 0;
      best = std::min(best, waves * penalty * 2 * a * b * depth / speed + sums);
    }
  };
  const double a = hardware_.tile_m, b = hardware_.tile_n;
  try_tile(a, b, 1), try_tile(b, a, 1);
  try_tile(a / 2, b, kSmallTile), try_tile(a, b / 2, kSmallTile), try_tile(a / 2, b / 2, kSmallTile * kSmallTile);
  if (has_few_rows)
    for (double rows = a / 4, penalty = std::pow(kSmallTile, 3); rows >= a / 8; rows /= 2, penalty *= kSmallTile)
      try_tile(rows, b / 2, penalty);
  return std::max(best, memory_s(bytes));
}

bool CostModel::is_one_launch(const Event& e) const {
  const double tiles = std::ceil(double(e.m) / hardware_.tile_m) * std::ceil(double(e.n) / hardware_.tile_n);
  return stack_.has_grouped_products && !is_shared_ && e.dtype != DType::f32 && tiles < hardware_.cores;
}

bool CostModel::is_fp8(const Event& e) const {
  return e.kind == Event::Kind::matmul && (e.is_float8 || stack_.has_fp8) && e.dtype != DType::f32 &&
         hardware_.peak(MatmulType::fp8) > 0;
}

// weft's own products in fp8 read operands of 16 bits and write codes first, or 16 bits where cards have no fp8.
// Elsewhere the kernel before also writes its result in 8 bits, as it is and transposed, which the gradients of
// weights take (NVIDIA Transformer Engine).
double CostModel::casts_s(const Event& e) const {
  if (e.is_float8) return memory_s((is_fp8(e) ? 3 : 4) * rounded_elements(e));
  return is_fp8(e) && !e.is_weight_gradient ? memory_s(2.0 * e.m * e.k * e.count) : 0;
}

double CostModel::traffic_s(const Event& e) const { return memory_s(product_bytes(e)) + casts_s(e); }

// A product with the logits of a few rows, as a share of that of all rows.
double CostModel::head_matmul_s(const Event& e) const {
  constexpr double kMany = 16;
  const double rows = e.is_weight_gradient ? 1 : kMany, depth = e.is_weight_gradient ? kMany : 1;
  return matmul_s(e.m * rows, e.n, e.k * depth, matmul_type_of(e.dtype), e.bytes) / kMany;
}

double CostModel::attention_s(const Event& e) const {
  const double share =
      (e.is_backward ? hardware_.attention_backward : hardware_.attention_forward) * stack_.attention;
  const MatmulType type = matmul_type_of(e.dtype);
  const double peak = hardware_.peak(hardware_.peak(type) > 0 ? type : MatmulType::fp32);
  // Heads narrower than 128 leave half of the matrix units' work undone (FlashAttention-2, figures 4 to 6).
  const double narrow = stack_.has_narrow_heads ? std::min(1.0, 0.55 + 0.45 * e.k / 128.0) : 1;
  if (stack_.has_fused_attention) {
    // Parts of a row in order: of n ranks the last has 2 - 1/n times the pairs of all on average (Brandon et al.,
    // "Striped Attention", 2023).
    const double most = stack_.has_balanced_context ? 1 : 2 - 1.0 / shape_.cp;
    return std::max(most * stack_.visible * e.flops / (peak * share * narrow), memory_s(e.bytes));
  }
  // Two products, backward four: those of masked pairs, too. Operands whose rows do not begin at multiples of 16
  // bytes are read in smaller pieces (NVIDIA, "Matrix Multiplication Background", 2023).
  const double pieces = 8.0 / std::gcd(std::max(e.k, 1), 8);
  // Forward's two are two fifths of what fused backward counts.
  const double again = stack_.recomputes_scores && e.is_backward ? 2.0 / 5 : 0;
  const double products = e.flops * (e.is_backward ? 4.0 / 5 + again : 1) * 2 * pieces / (peak * 0.5);
  // Scores: written by the product, read and written by mask, softmax and dropout, read by the next product.
  const double scores = e.flops / (e.is_backward ? 10.0 : 4.0) / std::max(e.k, 1) * 2;
  return products + memory_s(scores * size_of(e.dtype) * (!e.is_backward ? 8 : again > 0 ? 18 : 10));
}

double CostModel::kernel_s(const Event& e) const {
  switch (e.kind) {
    case Event::Kind::matmul: {
      if (const int head = stack_.whole_logits; head > 0 && (e.m == head || e.n == head || e.k == head))
        return head_matmul_s(e);
      const MatmulType type = is_fp8(e) ? MatmulType::fp8 : matmul_type_of(e.dtype);
      const int at_once = is_one_launch(e) ? e.count : 1;
      const double launches = double(e.count) / at_once;
      const double products = matmul_s(e.m, e.n, e.k, type, product_bytes(e) / launches, at_once);
      const double seconds = launches * products + casts_s(e);
      if (stack_.has_epilogues || e.fused_bytes == 0) return seconds;
      return seconds + memory_s(e.fused_bytes) * stack_.small_kernels + launches_s(e);
    }
    case Event::Kind::attention: return attention_s(e);
    case Event::Kind::memory: {
      const auto named = hardware_.kernel_bytes_per_s.find(e.name);
      if (named != hardware_.kernel_bytes_per_s.end()) return e.bytes / named->second;
      // Token by token, on the units that are no matrix units: at most their speed, and not yet measured on a card.
      if (e.name.starts_with("recurrence") && hardware_.peak(MatmulType::fp32) > 0)
        return std::max(memory_s(e.bytes), e.flops / hardware_.peak(MatmulType::fp32));
      if (stack_.whole_logits > 0 && e.name.starts_with("cross_entropy")) return memory_s(e.bytes * stack_.logits);
      return memory_s(e.bytes) * stack_.small_kernels;
    }
    default: return 0;
  }
}

// Rings that pass every device once and every node's border by as many ports as the group has ranks there. An
// all-reduce is two passes. Sources: NCCL's "busbw" (nccl-tests, PERFORMANCE.md); Thakur et al., 2005.
double CostModel::collective_s(CommOp op, double bytes, Axis axis) const {
  const GroupPlace& place = places_[size_t(axis)];
  const double n = place.size, nodes = place.num_nodes();
  if (place.size <= 1) return 0;
  const Link& near = hardware_.node;
  const Link& far = hardware_.network;
  double sent = 0, passes = 1;  // what passes one device
  switch (op) {
    case CommOp::all_reduce: sent = 2 * (n - 1) / n * bytes, passes = 2; break;
    case CommOp::all_gather:
    case CommOp::reduce_scatter: sent = (n - 1) * bytes; break;
    case CommOp::broadcast: sent = bytes; break;
    case CommOp::all_to_all: sent = (n - 1) / n * bytes; break;
    case CommOp::barrier:
    case CommOp::split:
    case CommOp::allocate_shared: break;
    case CommOp::send:
    case CommOp::recv: return message_s(bytes, axis);
  }
  const double whole = op == CommOp::all_gather || op == CommOp::reduce_scatter ? n * bytes : bytes;
  const double ramp = whole / (whole + near.half_bytes);
  double rate = near.bytes_per_s * near.reached * ramp;
  double latency = near.latency_s * passes * std::max(1, place.per_node - 1);
  if (nodes > 1) {
    const double far_ramp = whole / (whole + far.half_bytes * std::sqrt(nodes));
    const double far_rate = far.bytes_per_s * far.reached * far_ramp;
    if (op == CommOp::all_to_all) {
      // Each rank sends to those of other nodes through its own port.
      const double far_share = (nodes - 1) / nodes * bytes;
      return latency + far.latency_s * std::log2(n) + std::max(sent / rate, far_share / far_rate);
    }
    rate = std::min(rate, far_rate * place.per_node);
    // Many nodes are a tree for an all-reduce; the others stay rings (NCCL up to 2.22).
    const bool is_ring = op != CommOp::all_reduce;
    if (is_ring) latency = near.latency_s * (n - nodes);
    latency += far.latency_s * passes * (is_ring || nodes < 16 ? nodes - 1 : 15 + std::log2(nodes / 16));
  }
  return latency + (sent > 0 ? sent / rate : 0);
}

// Products are cut into as many parts as the group has ranks; the collective of one runs beside the product of the
// next, and slows it down. Source: Wang et al., "Overlap Communication with Dependent Computation via Decomposition",
// ASPLOS 2023; NVIDIA Transformer Engine's Userbuffers and PyTorch's async TP.
double CostModel::exposed_s(const Event& e) const {
  // Each rank of tp sends its part of the rows; those of a group gather what they got (Megatron-Core's dispatcher).
  if (stack_.has_sharded_dispatch && e.axis == Axis::ep && e.op == CommOp::all_to_all && shape_.tp > 1)
    return collective_s(e.op, e.bytes / shape_.tp, e.axis) +
           collective_s(CommOp::all_gather, e.bytes / shape_.tp, Axis::tp);
  const double seconds = collective_s(e);
  if (e.axis != Axis::tp) return seconds;
  if (stack_.has_tp_overlap) return seconds * std::min(1.0, 1.0 / shape_.tp + slowdown(e.axis));
  // all_gather_tensor and reduce_scatter_tensor of PyTorch along another dimension than the first: chunks are copied.
  const bool is_apart = e.op == CommOp::all_gather || e.op == CommOp::reduce_scatter;
  return seconds + (stack_.has_tp_copies && is_apart ? memory_s(2 * shape_.tp * e.bytes) : 0);
}

double CostModel::collective_s(const Event& e) const {
  const bool is_sum = e.op == CommOp::all_reduce || e.op == CommOp::reduce_scatter;
  const bool is_data = e.axis == Axis::shard || e.axis == Axis::replicate || e.axis == Axis::data;
  const bool is_narrow = stack_.has_16bit_gradients && is_sum && is_data && e.dtype == DType::f32;
  return collective_s(e.op, e.bytes * (is_narrow ? 0.5 : 1), e.axis);
}

double CostModel::message_s(double bytes, Axis axis) const {
  const Link& link = place(axis).num_nodes() > 1 ? hardware_.network : hardware_.node;
  return link.latency_s * 2 + bytes / (link.bytes_per_s * link.reached);
}

double CostModel::slowdown(Axis axis) const {
  if (is_shared_) return 1;  // what moves the bytes is the core that computes
  return place(axis).num_nodes() > 1 ? stack_.network_slowdown : stack_.link_slowdown;
}

}  // namespace weft::plan
