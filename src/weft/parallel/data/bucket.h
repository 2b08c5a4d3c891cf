// Bucket: the parameters of one group in flat memory: who of the data-parallel ranks keeps which part of it, and
// when.
#pragma once
#include <span>
#include <vector>

#include "weft/autograd/param.h"
#include "weft/comm/communicator.h"
#include "weft/tensor/far_parts.h"

namespace weft {

// What data-parallel ranks do not hold more than once. Source: Rajbhandari et al., "ZeRO", 2020.
enum class Zero : uint8_t { none, optimizer, gradients, parameters };

// The groups over which a bucket's parameters are the same. Without sharding, `shard` is a group of one.
struct BucketGroups {
  Communicator& shard;      // each rank keeps one part of the optimizer's state, and by stage of the rest
  Communicator& replicate;  // each rank keeps the same as the others
  Communicator& tensor;     // sums gradients that are partial (Placement::is_partial)
  Communicator& tied;       // sums the gradients of a weight that two stages hold
};

// Part of a parameter as it lies in flat tensors. Of one that is held as NF4, bytes of its blocks take the place of
// elements, and a piece has whole blocks.
struct Piece {
  Param* param;
  int64_t first;   // element of what this rank holds of the parameter, row by row
  int64_t offset;  // of that element in the flat tensors
  int64_t count;
};

// What of a bucket lives in far memory, and which part of that is this bucket's; null: nothing.
struct FarHome {
  FarParts* states = nullptr;  // the optimizer's, and the masters that are apart from values
  FarParts* values = nullptr;  // what this rank keeps of the values, where those are gathered for use
  size_t part = 0;             // of both
};

// What an optimizer updates on this rank, or what is frozen: part `shard->rank()` of the flat memory of a bucket, of
// which every rank of the shard group has as much. Masters, values and states are there while it is Near (near.h).
struct Owned {
  std::vector<Piece> pieces;
  // [n] f32 (f64 beside f64); beside bf16 values u16, the 16 bits below them (kernels/master_halves.h); empty where
  // frozen values are narrower.
  Tensor master;
  // [n] f32 (f64 beside f64), or of the compute dtype (Param::has_short_grad); complete after the step's last
  // reduction; empty where frozen.
  Tensor grads;
  Tensor values;                     // [n] in the compute dtype; empty where the master is the value
  bool is_counted;                   // no other replica counts it in norms
  std::span<Param* const> params;    // of the whole bucket: as many on every rank of the two groups
  std::span<const int64_t> offsets;  // where each begins in the bucket
  Communicator* shard;
  Communicator* tensor;
  FarHome far;

  bool is_split() const { return master && master.dtype() == DType::u16; }
  // Of masters when they are whole, and of what optimizers keep.
  DType wide_dtype() const { return Context::wide(values ? values.dtype() : master.dtype()); }

  // For what an optimizer keeps: zeros, but for codes (u8), which are anything.
  Tensor new_state(Context& context, DType dtype, Shape shape) const;

  // The elements of params[i] that lie on a rank of the shard group; all ranks together have them all, in order.
  Cut cut_of(size_t i, int rank) const {
    const int64_t part = master.numel(), begin = part * rank, size = params[i]->shape.numel();
    const int64_t from = std::clamp<int64_t>(begin - offsets[i], 0, size);
    return {from, std::clamp<int64_t>(begin + part - offsets[i], 0, size) - from, size};
  }
};

class Bucket {
 public:
  // Gives the parameters memory and initial values for `seed`; they are kept whole or in parts as `stage` says. All
  // of them are trained, with gradients of one dtype, or none is: those that are frozen have values only, in the
  // compute dtype; or all are NF4, and `dtype` is u8.
  Bucket(Context& context, const BucketGroups& groups, Zero stage, DType dtype, std::vector<Param*> params,
         uint64_t seed, const FarHome& far = {});

  // ---- values: whole between open and close, which may nest; without Zero::parameters always ----
  void fetch();     // from far memory
  void prefetch();  // from the other ranks
  void open();
  void close();

  // ---- gradients: writable between these, which may nest ----
  void open_gradients();
  // `is_last`: no micro-batch of this step will add to them any more.
  void close_gradients(bool is_last);
  // Of what close_gradients sent, waits for all and gives the memory back, where only a part stays here.
  void settle_gradients();
  // After the step's last micro-batch: sends what is left, then waits. `start` on all buckets, then `finish` on all.
  void start_finish();
  void finish();

  // After the owned values were written: every rank gets them.
  void start_publish();
  void publish();

  Owned owned();
  void watch_for_not_finite() { is_watching_ = true; }
  const Param* not_finite() const { return not_finite_; }
  const std::vector<Param*>& params() const { return params_; }
  bool is_frozen() const { return !params_.empty() && !params_.front()->trainable; }

 private:
  DType gradient_dtype() const { return params_.front()->has_short_grad ? dtype_ : Context::wide(dtype_); }
  bool is_nf4() const { return !params_.empty() && params_.front()->is_nf4(); }
  static int64_t size_of(const Param& p) { return p.is_nf4() ? p.nf4_layout().bytes() : p.shape.numel(); }
  int64_t part() const { return size_ / groups_.shard.size(); }
  Tensor part_of(const Tensor& whole) const;
  Tensor owned_gradients() const;
  void allocate();
  void set_initial_values(uint64_t seed);
  void assign_values();
  void assign_gradients();
  void complete_gradients();
  void sum_partial();
  void reduce();
  void wait_reduced();

  Context& context_;
  BucketGroups groups_;
  Zero stage_;
  DType dtype_;
  FarHome far_;
  std::vector<Param*> params_;
  std::vector<int64_t> offsets_;
  int64_t size_ = 0;                 // elements, with padding
  Tensor values_;                    // whole, in the compute dtype
  Tensor value_part_;                // this rank's, where it is not a slice of the whole
  FarTensor* far_values_ = nullptr;  // what this rank gives when values are gathered, if it lives there
  Tensor master_;                    // this rank's; see Owned
  Tensor grads_;                     // whole
  Tensor grad_part_;                 // this rank's sum over micro-batches, where it is not a slice of the whole
  Tensor arriving_;                  // of one micro-batch
  Pending gather_, reduction_;
  int value_users_ = 0, gradient_users_ = 0;
  bool has_sum_ = false, is_reduced_ = false, is_watching_ = false;
  const Param* not_finite_ = nullptr;
};

}  // namespace weft
