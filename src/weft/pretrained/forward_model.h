// ForwardModel: this rank's part of a model that only runs forward, on any mesh of ranks.
#pragma once
#include <span>

#include "weft/base/function_ref.h"
#include "weft/nn/wanted_rows.h"
#include "weft/parallel/mesh.h"
#include "weft/parallel/stages.h"
#include "weft/pretrained/far_weights.h"
#include "weft/pretrained/held_blocks.h"
#include "weft/pretrained/model_source.h"

namespace weft {

// Stages along pp pass the residual stream on; ranks along tp and ep hold parts of layers. All ranks of a stage and
// of those it passes to give the same tokens; ranks along dp and cp need not, but make the same calls. Calls are
// collective.
class ForwardModel {
 public:
  struct WithoutMemory {};
  // Parameters have no memory, which whoever makes this gives them. Throws UsageError when the mesh cannot hold the
  // model. The context and the mesh outlive this.
  ForwardModel(Context& context, const Mesh& mesh, const ModelConfig& config, DType dtype, WithoutMemory);
  // Parameters have memory but no values.
  ForwardModel(Context& context, const Mesh& mesh, const ModelConfig& config, DType dtype);
  // Parameters have their values: in blocks where `choice` says so, else in `dtype`. The source outlives this.
  ForwardModel(Context& context, const Mesh& mesh, const ModelSource& source, DType dtype, const BlockChoice& choice,
               const FarLayers& far = {});
  // Memory as that of the one before, without values: for plans, over meta memory. No source: see hold_block_shapes.
  ForwardModel(Context& context, const Mesh& mesh, const ModelConfig& config, const ModelSource* source, DType dtype,
               const BlockChoice& choice, const FarLayers& far = {});
  // Reads this rank's part of the parameters, once: what only products read is held as they read it.
  void load(const ModelSource& source);

  const ModelConfig& config() const { return model_->config(); }
  Decoder& part() { return *model_; }
  const Mesh& mesh() const { return mesh_; }
  Context& context() { return context_; }
  FarStats far_stats() const { return far_ ? far_->stats() : FarStats{}; }
  bool has_failed() const { return far_ && far_->has_failed(); }  // every further call will
  DType dtype() const { return dtype_; }                          // of parameters, and of what passes between layers
  // Ranks of the last stage have what comes of a pass.
  bool has_result() const { return stages_.is_last(); }
  // Of these, one, and its rank in the world.
  int driver() const { return mesh_.shape().driver(); }
  bool is_driver() const { return mesh_.is_driver(); }

  // Logits [count, V], or scores [count, labels], fp32 (fp64 beside fp64), of rows [first, first + count) of the
  // pass: the same on all ranks of the last stage, empty on the others. Valid until the next call.
  Tensor logits(const Pass& pass, int64_t first, int64_t count);
  // The same of chosen rows, which all ranks choose alike; of no rows an empty tensor. Where a pass over a paged
  // cache chooses rows in rising order, the last layer computes little else. Over cp the pass has an even part of the
  // rows, in order, and `rows` are counted among those of all ranks.
  Tensor logits(const Pass& pass, std::span<const int32_t> rows);
  // Of a model with a part that predicts a token further on (models/mtp.h), which reads the residual stream of all
  // rows of the last logits() or predict() and ids of the tokens that come next. Row i of the pass goes on with what
  // row from[i] of that call was left at; the logits of chosen rows are those of the token after the next one.
  Tensor predict(const Pass& pass, std::span<const int32_t> from, std::span<const int32_t> rows);
  // What the head read for these rows, [rows, H], after the last norm; valid as long.
  const Tensor& chosen_hidden() const { return chosen_hidden_; }
  // What is left of all rows after the last norm, [T, H], on the last stage; empty elsewhere.
  Var hidden(const Pass& pass);
  // On the last stage, what `head` makes of what it would read; empty elsewhere.
  Var result(const Pass& pass, Decoder::Head head);
  // What the head would read, [T, H], and the head; empty but on the last stage.
  struct BeforeHead {
    Tensor hidden;
    HeadView head;
  };
  BeforeHead before_head(const Pass& pass);
  // Gives back the memory of results, which is kept for the next call.
  void drop_results() { chosen_ = logits_ = chosen_hidden_ = kept_ = left_ = {}; }
  // The sum of the cross-entropies of `targets` (-1 ignored) on the driver of this rank's dp index; else 0.
  double loss(const Pass& pass, const int32_t* targets);
  // What the last stage chose, on every rank.
  int32_t share(int32_t token) { return stages_.share(context_, token); }

 private:
  void make(const ModelConfig& config);
  using FillGroup = FunctionRef<void(std::span<Param* const> params)>;
  void fill(const FarLayers& far, FillGroup hold, FillGroup load);
  Brackets& brackets() { return far_ ? *far_ : no_brackets_; }
  // Takes a pass from the stage before this one to the next; the last stage has `finish` go on instead.
  void run(const Pass& pass, FunctionRef<void(const Var& x)> finish);
  Tensor logits_of_rows(const Tensor& hidden, std::span<const int32_t> rows);
  void keep(const Tensor& hidden);
  const WantedRows* narrow(const Pass& pass, std::span<const int32_t> rows);
  void choose(const Tensor& hidden, std::span<const int32_t> rows);
  Tensor logits_of(const Var& hidden);
  Tensor part_of(Tensor& kept, DType dtype, Shape shape);

  Context& context_;
  const Mesh& mesh_;
  Stages stages_;
  DType dtype_;
  std::unique_ptr<Decoder> model_;
  Brackets no_brackets_;
  std::unique_ptr<FarWeights> far_;  // null: all are near
  WantedRows wanted_;
  Tensor chosen_, logits_;  // kept, so that a step of serving takes no memory
  Tensor chosen_hidden_;    // of the last call
  Tensor kept_, left_;      // what its rows were left at, where a further part goes on with it
};

}  // namespace weft
