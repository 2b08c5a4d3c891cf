// Moe: router, dispatch, experts, combine; around the last three the way to latent rows and back.
#include "weft/nn/moe.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "weft/autograd/ops/activation.h"
#include "weft/autograd/ops/add.h"
#include "weft/autograd/ops/scale.h"
#include "weft/parallel/expert/dispatch.h"
#include "weft/parallel/expert/experts.h"

namespace weft {
namespace {

Communicator* unless_alone(Communicator* group) { return group && group->size() > 1 ? group : nullptr; }

// [experts, rows, cols], of which this rank holds some experts and, of each, a part along `ffn_dim`.
Placement expert_weight(const Shape& whole, int ffn_dim, const Partition& partition) {
  Placement p(whole);
  const Communicator* const group = unless_alone(partition.experts);
  if (group) p.cut(0, even_cut(whole[0], group->rank(), group->size()));
  p.cut(ffn_dim, partition.tensor.cut(whole[ffn_dim]));
  p.is_expert = group != nullptr;
  return p;
}

// Every rank of the tensor group has all of it, sees all tokens, and sees a part of their gradients.
LinearConfig chooser(const MoeConfig& c, const TensorParallel& tensor, int64_t out, LoraTarget target) {
  return {.in = c.hidden,
          .out = out,
          .init_std = c.init_std,
          .is_shared = tensor.size() > 1,
          .is_first_holder = tensor.rank() == 0,
          .is_wide = true,
          .adapter = adapter_of(c.lora, target)};
}

// To what experts read of a token, and from what they write. Every rank of the tensor group holds all of both: the
// rows that a rank's parts of experts give are parts of a sum, and so is what a projection makes of them. Nothing is
// then sent but the sum at the end of the region, which shared experts need too; cut projections would send every
// token's latent row twice more. Copies of tokens travel to experts as latent rows.
LinearConfig latent_projection(const MoeConfig& c, const TensorParallel& tensor, bool is_down) {
  return {.in = is_down ? c.hidden : c.latent_dim,
          .out = is_down ? c.latent_dim : c.hidden,
          .has_bias = c.has_latent_biases,
          .init_std = is_down ? c.init_std : c.output_init_std,
          .is_first = is_down || tensor.rank() == 0,
          .is_shared = tensor.size() > 1,
          .is_first_holder = tensor.rank() == 0,
          .adapter = adapter_of(c.lora, is_down ? LoraTarget::latent_down : LoraTarget::latent_up),
          .base = c.lora.base};
}

}  // namespace

Moe::Moe(const std::string& name, const MoeConfig& c, const Partition& partition)
    : config_(c),
      tensor_(partition.tensor),
      experts_(unless_alone(partition.experts)),
      rows_(unless_alone(partition.context)),
      name_hash_(name_hash(name)),
      router_(name + ".router", chooser(c, tensor_, c.gate.experts, LoraTarget::router)),
      up_(name + ".experts.up", expert_weight({c.gate.experts, c.ffn, c.expert_dim()}, 1, partition), c.has_biases,
          c.init_std, c.lora.base, adapter_of(c.lora, LoraTarget::expert_up), false, true),
      down_(name + ".experts.down", expert_weight({c.gate.experts, c.expert_dim(), c.ffn}, 2, partition),
            c.has_biases, c.latent_dim > 0 ? c.init_std : c.output_init_std, c.lora.base,
            adapter_of(c.lora, LoraTarget::expert_down), tensor_.size() > 1, tensor_.rank() == 0),
      use_(c.gate.experts) {
  if (c.is_gated)
    gate_.emplace(name + ".experts.gate", up_.weight().placement, c.has_biases, c.init_std, c.lora.base,
                  adapter_of(c.lora, LoraTarget::expert_gate), false, true);
  is_adapted_ = up_.has_adapter() || down_.has_adapter() || (gate_ && gate_->has_adapter());
  if (c.latent_dim > 0) {
    latent_down_.emplace(name + ".latent_down", latent_projection(c, tensor_, true));
    latent_up_.emplace(name + ".latent_up", latent_projection(c, tensor_, false));
  }
  if (c.shared.ffn > 0) shared_.emplace(name + ".shared", c.shared, partition);
  if (c.has_shared_gate) shared_gate_.emplace(name + ".shared_gate", chooser(c, tensor_, 1, LoraTarget::shared_gate));
  if (c.has_biases)
    logit_bias_.emplace(name + ".router.logit_bias", tensor_.replicated_inside({c.gate.experts}), Init::zeros());
  if (c.pre_norms) {
    router_norm_.emplace(name + ".router_norm", tensor_.replicated_inside({c.hidden}), *c.pre_norms);
    norm_.emplace(name + ".norm", tensor_.replicated_inside({c.hidden}), *c.pre_norms);
    expert_factors_.emplace(name + ".router.factors", tensor_.replicated_inside({c.gate.experts}), Init::ones());
  }
  if (c.post_norm) post_norm_.emplace(name + ".post_norm", tensor_.replicated({c.hidden}), *c.post_norm);
  if (c.has_router_bias) bias_.emplace(name + ".router.bias", tensor_.replicated({c.gate.experts}));
}

Var Moe::scores(const Var& x, const Pass& pass) {
  LinearWeights weights = router_.weights();
  if (logit_bias_) weights.bias = &*logit_bias_;
  return router_.adapt(apply(*x.context, WideLinearOp{weights}, x), x, pass);
}

Var Moe::feed_forward(const Var& rows, const RouteRef& route, const Pass& pass) {
  Context& context = *rows.context;
  if (!is_adapted_ && !pass.lora)
    return apply(
        context,
        ExpertsOp{{gate_ ? gate_->weights() : LinearWeights{}, up_.weights(), down_.weights(), config_.activation},
                  route},
        rows);
  ExpertRows on_the_way{route};
  if (pass.lora && !pass.lora->sets.empty()) {
    std::vector<int32_t> set_of_tokens(size_t(pass.num_tokens), -1);
    for (const RowAdapters::Run& run : pass.lora->runs)
      std::fill_n(set_of_tokens.begin() + run.begin, run.count, run.set);
    route->carry(context, experts_, set_of_tokens, on_the_way.sets);
  }
  const Var inner =
      gate_ ? gated_activation((*gate_)(rows, on_the_way, pass), up_(rows, on_the_way, pass), config_.activation)
            : activation(up_(rows, on_the_way, pass), config_.activation);
  return down_(inner, on_the_way, pass);
}

Var Moe::shared_experts(const Var& x, const Pass& pass, bool stays_on_device) {
  Context& context = *x.context;
  const Var y = shared_->inside(x, pass);
  if (!shared_gate_) return y;
  const RouteRef route = RouteRef::take(routes_);
  route->begin(x.value.rows(), 1, 1, pass.tokens, pass.seq_len);
  const Var weights = apply(
      context,
      GateOp{.config = {.rule = {.gate = RouterGate::sigmoid, .normalises = false}, .experts = 1, .per_token = 1},
             .route = route,
             .experts = nullptr,
             .rows = nullptr,
             .bias = nullptr,
             .use = nullptr,
             .factors = nullptr,
             .loss_scale = 0,
             .stays_on_device = stays_on_device},
      (*shared_gate_)(x, pass));
  return apply(context, CombineOp{nullptr, route}, y, weights);
}

// A host that orders rows by expert waits for a device in every layer.
bool Moe::stays_on_device(const Var& x, const Pass& pass) {
  const int64_t copies = x.value.rows() * config_.gate.per_token, experts = config_.gate.experts;
  const auto multiplies = [&](const Param& w) {
    const bool is_in_blocks = bool(w.blocks());
    const bool is_known = is_in_blocks || (w.value && !w.is_nf4() && size_of(w.value.dtype()) == 2);
    return is_known && x.context->kernels.multiplies_runs(copies, experts, w.shape[1], w.shape[2], is_in_blocks);
  };
  const bool drops = pass.is_training && config_.gate.capacity_factor > 0;
  return !drops && !experts_ && !pass.routing && !is_adapted_ && !pass.lora && copies > 0 &&
         experts <= kMostOrderedGroups && (!gate_ || multiplies(gate_->weight())) && multiplies(up_.weight()) &&
         multiplies(down_.weight());
}

Var Moe::operator()(const Var& residual, const Pass& pass) {
  const Var entered = tensor_.enter(residual), x = norm_ ? (*norm_)(entered) : entered;
  const Var seen = router_norm_ ? scaled((*router_norm_)(entered), 1 / std::sqrt(float(config_.hidden))) : x;
  Context& context = *x.context;
  GateConfig gate = config_.gate;
  if (!pass.is_training) gate.capacity_factor = 0;
  const RouteRef route = RouteRef::take(routes_);
  route->begin(x.value.rows(), gate.per_token, gate.experts, pass.tokens, pass.seq_len);
  const bool is_on_device = stays_on_device(x, pass);
  // Every rank of the tensor group chooses the same experts; the first adds the losses.
  const Var weights =
      apply(context,
            GateOp{.config = gate,
                   .route = route,
                   .experts = experts_,
                   .rows = rows_,
                   .bias = router_bias(),
                   .use = pass.is_training ? &use_ : nullptr,
                   .factors = expert_factors_ ? &*expert_factors_ : nullptr,
                   .loss_scale = tensor_.rank() == 0 ? pass.loss_scale : 0,
                   .stays_on_device = is_on_device,
                   .replay = pass.routing,
                   .replayed = {pass.is_training ? name_hash_ : ~name_hash_, pass.step, pass.tokens, gate.per_token}},
            scores(seen, pass));
  const bool weighs_inputs = config_.weighs_inputs;
  const Var rows = apply(context, DispatchOp{experts_, route}, latent_down_ ? (*latent_down_)(x, pass) : x,
                         weighs_inputs ? weights : Var());
  Var y =
      apply(context, CombineOp{experts_, route}, feed_forward(rows, route, pass), weighs_inputs ? Var() : weights);
  if (latent_up_) y = (*latent_up_)(y, pass);
  if (shared_) y = y + shared_experts(x, pass, is_on_device);
  Var out = tensor_.leave(y);
  if (post_norm_) out = (*post_norm_)(out);
  return pass.dropout(out, config_.dropout, name_hash_, tensor_.tokens(pass.num_tokens).begin);
}

}  // namespace weft
