// Decoder: a decoder-only transformer, forward only; which one is a matter of its ModelConfig.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "weft/autograd/ops/head_loss.h"
#include "weft/base/function_ref.h"
#include "weft/models/mtp.h"
#include "weft/nn/layer_inputs.h"
#include "weft/parallel/brackets.h"
#include "weft/parallel/partition.h"

namespace weft {

// Which layers a rank has, of one model; default-made, all.
struct DecoderPart {
  int64_t first_layer = 0, num_layers = -1;  // -1: all from the first on
  bool has_embedding = true, has_head = true;
  bool is_tied_elsewhere = false;  // the embedding and what reads it behind the layers are on different ranks
  bool operator==(const DecoderPart&) const = default;
};

inline constexpr std::string_view kScoreName = "score.weight";  // of the head that scores texts

class Decoder {
 public:
  // head_dim, kv_heads and so on must be complete (models/model_config.h). `embedding`: where a tied head finds the
  // embedding that another part on this rank has; without it the part with the head alone has a copy of its own.
  explicit Decoder(const ModelConfig& config, const Partition& partition = {}, const DecoderPart& part = {},
                   Param* embedding = nullptr);
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  const ModelConfig& config() const { return config_; }
  const DecoderPart& part() const { return part_; }
  // Of the bulk of layers, from now on, gradients of what is trained by then; see Param.
  void multiply_in_float8();
  void sum_gradients_in_16_bits();
  void set_recompute(RecomputePolicy policy) { recompute_ = policy; }

  // Gives every parameter memory for its value in `dtype` (not for its gradient) unless it is held in blocks alone,
  // and what prepare() gives.
  void allocate(Context& context, DType dtype);
  // Computes the rotary tables, and zeroes the biases of routers. Enough where parameters get their memory elsewhere.
  void prepare(Context& context, DType dtype);
  // Texts of so many tokens then make it allocate nothing for their positions.
  void reserve_positions(Context& context, int64_t positions) { rope_.reserve(context, positions); }
  // Sets the initial values, which are a function of the seed.
  void initialize(Context& context, uint64_t seed);

  // The residual stream [rows, H], from what the part before gave, or from the ids: after the last norm on the part
  // with the head, of the rows that are wanted.
  Var forward(Context& context, const Pass& pass, const Var& x, Brackets& brackets);
  Var hidden(Context& context, const Pass& pass, Brackets& brackets) { return forward(context, pass, {}, brackets); }
  // What the tokens of a pass are to predict, [T] each, of which -1 is ignored: what comes next, and, of a model with
  // a part for that and where it is asked for, one token further on from the tokens that come next.
  struct Targets {
    const int32_t* next;
    const int32_t* next_ids = nullptr;
    const int32_t* further = nullptr;
  };
  // Sums of cross-entropies. The gradient of `next` is that of next + ModelConfig::mtp_loss x further.
  struct Losses {
    Var next;
    Tensor further;  // [1], or empty
  };
  // See HeadLossOp for grad_scale.
  Losses losses(Context& context, const Pass& pass, const Var& x, const Targets& targets, float grad_scale,
                Brackets& brackets);
  Var loss(Context& context, const Pass& pass, const Var& x, const int32_t* targets, float grad_scale,
           Brackets& brackets) {
    return losses(context, pass, x, {targets}, grad_scale, brackets).next;
  }
  // A loss of what `make` makes of the residual stream after the last norm.
  using Head = FunctionRef<Var(const Partition& partition, const HeadView& head, const Var& hidden)>;
  Var result(Context& context, const Pass& pass, const Var& x, Brackets& brackets, Head make);
  // What reads it.
  HeadView head() {
    return {&head_weight(), head_bias_ ? &*head_bias_ : nullptr, config_.logit_softcap, config_.scores_texts()};
  }
  // Logits [rows, V] of chosen rows of hidden(); or scores [rows, labels], f32 (f64 beside f64), without gradients.
  // Throws UsageError without a head.
  Var logits(const Var& hidden);
  // Of a model with such a part: what its logits of a token further on are made of, from what forward() gave of these
  // rows and the tokens that come next, host memory [rows].
  Var predict(Context& context, const Pass& pass, const int32_t* next_ids, const Var& hidden);

  // Every parameter in the order of first use; a tied head is its embedding.
  std::vector<Param*> params();
  // The same, grouped as they are used: embedding, each block, then the final norm and the head.
  std::vector<std::vector<Param*>> param_groups();
  // What is kept beside the parameters, and saved with them: the biases of routers, by layer.
  std::vector<RouterBias*> router_biases();
  // How training uses experts, by layer with such.
  std::vector<ExpertUse*> expert_uses();
  Param* embedding() { return embedding_ ? &*embedding_ : nullptr; }

 private:
  // norm: of its rows; null: none
  Var embed(Context& context, const Pass& pass, const int32_t* ids, Param& table, Norm* norm, uint64_t dropout_site);
  Var leave_head(const Var& result, Brackets& brackets);
  // Of blocks, and of the part behind them.
  void each_layer(auto&& visit) {
    for (const auto& block : blocks_) visit(*block);
    if (mtp_) visit(*mtp_);
  }
  Param& head_weight() { return head_ ? *head_ : *tied_; }

  ModelConfig config_;
  Partition partition_;
  DecoderPart part_;
  RecomputePolicy recompute_;
  DType dtype_ = DType::f32;
  uint64_t embedding_dropout_site_, mtp_dropout_site_;
  RopeTables rope_;
  std::optional<Param> embedding_;  // [V, H]
  Param* tied_ = nullptr;           // the embedding, where it is the head
  std::optional<Param> position_;   // [context, H]
  std::optional<Norm> embedding_norm_;
  std::optional<LayerInputs> layer_inputs_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::optional<HyperConnection> final_streams_;
  std::optional<Norm> final_norm_;
  // [V, H] or [labels, H]; absent when tied to an embedding on this rank, or where there is none
  std::optional<Param> head_;
  std::optional<Param> head_bias_;  // [V]
  std::optional<Mtp> mtp_;
  std::optional<Param> mtp_embedding_;  // where the embedding is on another rank, and no head is tied to it
};

}  // namespace weft
