// Gate: from a router's logits to the experts of every token and their weights, and what keeps experts evenly used.
#pragma once
#include "weft/autograd/ops/linear.h"
#include "weft/parallel/expert/route.h"
#include "weft/parallel/expert/routing_replay.h"

namespace weft {

// A bias for the choice of experts that is no weight: after each step it grows for experts that had less than their
// share of the step's tokens, and falls for the others. Source: Wang et al., "Auxiliary-Loss-Free Load Balancing
// Strategy for Mixture-of-Experts", 2024.
struct RouterBias {
  RouterBias(const std::string& name, const Placement& placement) : bias(name, placement, Init::zeros()) {
    bias.trainable = false;
  }
  void allocate(Context& context, DType dtype);  // zeros, for tokens in `dtype`

  Param bias;  // [E] f32, the same on every rank; in no group of parameters

  // all_chosen: ExpertUse's, summed over the ranks that saw other tokens.
  void update(Stream& stream, std::span<const int64_t> all_chosen, double rate);
};

// How training has used a layer's experts since this was cleared.
struct ExpertUse {
  explicit ExpertUse(int64_t experts) : chosen(size_t(experts)) {}
  void clear();

  std::vector<int64_t> chosen;  // [E]: how often, by the tokens of this rank
  // What this rank's experts took at most in a pass, times their even share of what the group's ranks sent.
  double most_load = 0;
};

// What is added to the loss of every token, before it is divided by the number of targets:
//   balance_loss * sum over E of f p, with p the token's share of scores of an expert and f = E / k times the part of
//   the row's choices that fell on the expert. This is the loss of a row as a whole that DeepSeek-V3 defines
//   (2024), times its tokens: any cut of the batch gives the same.
//   z_loss * logsumexp(logits)^2 (Zoph et al., "ST-MoE", 2022)
struct GateConfig {
  RouteRule rule;
  int64_t experts = 0, per_token = 0;
  float capacity_factor = 0, balance_loss = 0, z_loss = 0;
};

struct GateOp {
  static constexpr std::string_view kName = "gate";
  static constexpr bool kAlwaysBackward = true;
  GateConfig config;  // with a capacity factor of 0 where nothing is dropped
  RouteRef route;
  Communicator* experts;            // null: alone
  Communicator* rows;               // who holds other tokens of the same rows of the batch; null: nobody
  RouterBias* bias;                 // null: none
  ExpertUse* use;                   // null: nobody counts
  Param* factors;                   // [E]: of the weights of experts; null: none
  float loss_scale;                 // of the added losses; 0 where another rank adds them
  bool stays_on_device = false;     // the choice, which the host then does not know before a backward pass
  RoutingReplay* replay = nullptr;  // which hears of the choice, or makes it; not of one that stays on a device
  RoutingReplay::Pass replayed = {};
  Tensor logits = {}, scores = {}, wide_factors = {};

  // logits [T, E] -> weights [T, k]
  Tensor forward(Context& context, const Tensor& x);
  Tensor backward(Context& context, const Tensor& dweights);

 private:
  void choose(Context& context, RouteArgs args);
  Tensor balance_gradient(Context& context) const;
};

}  // namespace weft
