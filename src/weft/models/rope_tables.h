// RopeTables: the angles of rotary positions, stretched as a model's configuration says.
#pragma once
#include "weft/autograd/ops/rope.h"
#include "weft/models/model_config.h"
#include "weft/nn/pass.h"

namespace weft {

class RopeTables {
 public:
  explicit RopeTables(const ModelConfig& config) : config_(config) {}
  RopeTables(const RopeTables&) = delete;

  // Of a layer that turns; stays where it is.
  const RopeTable& of(int64_t layer) const { return has_local() && config_.is_local(layer) ? local_ : global_; }
  // Of the others; null where these do nothing by position.
  const RopeTable* unrotated() const { return scales_unrotated() ? &unrotated_ : nullptr; }

  // Gives the tables memory and computes them, of kFirstPositions at most. wide: f32, or f64 beside f64.
  void prepare(Context& context, DType wide);
  // Before a pass: some models stretch by the length at hand, and the tables of those that read texts of millions of
  // tokens grow to twice their size where a pass reads further.
  void prepare(Context& context, const Pass& pass);
  // So that they do not grow for texts of so many tokens.
  void reserve(Context& context, int64_t positions);
  static constexpr int64_t kFirstPositions = 131072;  // of a head of 128 they take 64 MiB

 private:
  void make(Context& context, DType wide, int64_t positions);
  // [positions], by a function of the position
  Tensor query_factors(Context& context, DType wide, auto&& factor) const;
  bool scales_unrotated() const { return config_.position == PositionKind::rope && config_.unrotated_query_beta > 0; }
  bool has_local() const { return config_.local_rope_theta > 0; }

  const ModelConfig& config_;
  RopeTable global_, local_;
  RopeTable unrotated_;    // of one pair that stands still
  int64_t positions_ = 0;  // that the tables have
  int64_t length_ = -1;    // that frequencies_ are for
  std::vector<double> frequencies_;
};

// Radians a position for each of the R pairs, in a text of `length` tokens.
std::vector<double> rope_frequencies(const ModelConfig& config, int64_t length);

}  // namespace weft
