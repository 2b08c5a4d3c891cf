// Param: a named weight with its gradient; immovable, since ops and optimizers refer to it.
#pragma once
#include <optional>
#include <string>

#include "weft/autograd/context.h"
#include "weft/autograd/placement.h"

namespace weft {

// How a parameter starts: a pure function of (seed, name, index), so that every mesh starts from the same bits.
struct Init {
  enum class Kind : uint8_t { constant, normal, log_rate, time_step, weights_of_streams };
  Kind kind = Kind::constant;
  float number = 0;  // the constant, the standard deviation, or how many streams

  static Init zeros() { return {}; }
  static Init ones() { return constant(1); }
  static Init constant(float number) { return {Kind::constant, number}; }
  static Init normal(float std) { return {Kind::normal, std}; }
  // How fast a recurrence forgets: the logarithm of a number between 1 and 16, and what softplus makes a number
  // between 0.001 and 0.1 of, whose logarithm is even. Source: Dao and Gu, "Transformers are SSMs", 2024.
  static Init log_rate() { return {Kind::log_rate}; }
  static Init time_step() { return {Kind::time_step}; }
  // By which the sigmoid of each of the first so many numbers is one part of so many, and that of others a half.
  static Init weights_of_streams(int count) { return {Kind::weights_of_streams, float(count)}; }

  bool is_constant() const { return kind == Kind::constant; }
  // Of the element with this number in the whole parameter; name: name_hash of it.
  float value(uint64_t seed, uint64_t name, uint64_t index) const;
};

// Whether a parameter is vectors, one to each expert, and no matrix: biases [E, O].
inline bool is_stack_of_vectors(std::string_view name, const Shape& shape) {
  return shape.rank() == 2 && name.ends_with(".bias");
}

class Param {
 public:
  Param(std::string name_, const Placement& placement_, Init init_)
      : name(std::move(name_)), placement(placement_), shape(placement_.shape), init(init_) {}
  Param(const Param&) = delete;
  Param& operator=(const Param&) = delete;

  const std::string name;  // "layers.0.attention.query.weight"
  const Placement placement;
  const Shape shape;  // of what this rank holds
  const Init init;
  bool trainable = true;
  // The bulk of a layer: a weight of attention's projections, of its MLP or of experts, and not of a head, a router
  // or an adapter. Only products write its gradient.
  bool is_bulk = false;
  // Of the bulk: whether its three products are in fp8 (MatmulArgs::float8), and whether its gradient is of 16 bits.
  bool in_float8 = false, has_short_grad = false;
  // Weight decay is for matrices, not for biases and norms.
  bool decays() const { return shape.rank() >= 2 && !is_stack_of_vectors(name, shape); }

  Tensor value;  // in the compute dtype, or blocks of NF4 (u8); after writing it call value_changed()
  // f32 (f64 beside f64), or with has_short_grad the compute dtype; given by whoever trains; contents count only
  // while has_grad().
  Tensor grad;

  // A frozen matrix, or a stack of them [E, N, K], may be held as NF4: products decode it tile by tile.
  void hold_as_nf4();
  bool is_nf4() const { return nf4_.has_value(); }
  const nf4::Layout& nf4_layout() const { return *nf4_; }
  nf4::Matrix nf4() const { return nf4_ ? nf4::Matrix{value, nf4_scales, &*nf4_} : nf4::Matrix{}; }
  nf4::Stack nf4_stack() const { return nf4_ ? nf4::Stack{value, nf4_scales, &*nf4_, nf4_matrices_} : nf4::Stack{}; }
  Tensor nf4_scales;  // of the whole weight, on every rank; see nf4::Matrix

  // What reads the value: one that only products y = x wT and lookups of rows read may be held in blocks, which they
  // read as they lie, of experts [E, N, K] as E N rows.
  enum class Readers : uint8_t { any, products, rows, products_and_rows };
  Readers readers = Readers::any;
  bool is_multiplied() const { return readers == Readers::products || readers == Readers::products_and_rows; }
  bool has_rows_read() const { return readers == Readers::rows || readers == Readers::products_and_rows; }
  // Frozen from now on. The value goes, or with `keeps_rows` stays as that of which rows are looked up.
  void hold_in_blocks(BlockMatrix blocks, bool keeps_rows = false);
  const BlockMatrix& blocks() const { return blocks_; }
  bool is_only_blocks() const { return blocks_ && !keeps_rows_; }
  // Frozen from now on. Where only products y = x wT read it and the backend packs what they read, the value goes.
  void hold_packed(Context& context);
  // Of what products read.
  size_t product_bytes(Context& context);

  bool has_grad() const { return has_grad_; }
  void clear_grad() { has_grad_ = false; }
  // For a kernel about to write into grad: whether it must add to what is there. From now on there is a gradient.
  bool accumulate_next() { return std::exchange(has_grad_, true); }

  // The value in the layout that matrix products like as their right-hand side, made when first asked for after a
  // change; empty where the backend wants none, and of products in fp8, which round along other dims.
  const Tensor& packed(Context& context, bool transpose_b) {
    Packed& p = packed_[transpose_b];
    if (p.version != version_) {
      pack(context, p, transpose_b);
      p.version = version_;
    }
    return p.tensor;
  }
  void value_changed() { ++version_; }
  // The value and what products read, where they are: for whoever keeps their bytes elsewhere between two uses.
  template <class Visit>
  void each_memory(const Visit& visit) {
    for (Tensor* t : {&value, &blocks_.blocks, &packed_[0].tensor, &packed_[1].tensor})
      if (*t) visit(*t);
  }
  // Gives the value's memory back, with what was packed of it.
  void drop_value() {
    value = {};
    blocks_ = {};
    for (Packed& p : packed_) p = {};
    ++version_;
  }

 private:
  struct Packed {
    Tensor tensor;
    uint64_t version = 0;
  };
  void pack(Context& context, Packed& p, bool transpose_b);

  std::optional<nf4::Layout> nf4_;
  std::vector<nf4::Layout> nf4_matrices_;  // of a stack
  BlockMatrix blocks_;
  bool keeps_rows_ = false;  // beside blocks_
  bool has_grad_ = false;
  uint64_t version_ = 1;
  Packed packed_[2];
};

// The initial values of elements [first, first + out.numel()) of what this rank holds, counted row by row, into `out`
// (f32 or f64). A function of the seed, the name and the place in the whole: cuts agree with the uncut weight.
void initialize(Context& context, const Param& param, uint64_t seed, const Tensor& out, int64_t first = 0);

}  // namespace weft
