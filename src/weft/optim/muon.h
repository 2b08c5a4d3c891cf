// Muon: orthogonalised momentum for the matrices of the blocks, AdamW for all else. Source: Jordan et al., 2024.
#pragma once
#include "weft/optim/adamw.h"
#include "weft/optim/matrices.h"

namespace weft {

// m = momentum * m + g; u = m, or g + momentum * m with nesterov; the weights of a matrix [R, C] change by
// lr * (0.2 * sqrt(max(R, C)) * orthogonalize(u) + weight_decay * weight). The factor gives an update the root mean
// square that AdamW's has, so that its learning rates and decays serve here too. Source: Liu et al., "Muon is
// Scalable for LLM Training", 2025.
struct MuonOptions {
  double momentum = 0.95;
  bool nesterov = true;
  double weight_decay = 0.1;
  int steps = 5;
  // Embeddings, the head, biases and norms: AdamW at lr * adamw_lr_ratio.
  AdamWOptions adamw;
  double adamw_lr_ratio = 1;
};

// Every matrix of a bucket is put together on one rank of the shard group, in turn, and orthogonalised by one rank of
// the tensor group; both get back their parts.
class Muon final : public Optimizer {
 public:
  Muon(Context& context, std::vector<Owned> owned, const MuonOptions& options);
  std::vector<State> states_of(std::string_view param, const Shape& whole) const override;
  void visit_state(std::string_view param, std::string_view state, bool is_written, VisitState visit) override;

 private:
  struct Item {    // a parameter that is put together on this rank
    size_t index;  // among the bucket's
    Matrices matrices;
    Tensor whole;  // [count, rows, cols]; empty between updates
  };
  // The exchange of a bucket's momenta. Flat, `sent` holds the pieces of this rank by receiver, `received` those of
  // its items by sender.
  struct Plan {
    std::vector<size_t> pieces;  // of owned.pieces, in the order of `sent`
    std::vector<Item> items;
    std::vector<int64_t> send_counts, receive_counts;  // by rank of the shard group
    int64_t num_sent = 0, num_received = 0;
    bool has_matrices = false;  // on any rank
  };
  Plan make_plan(const Owned& owned, size_t& turn) const;
  void update(double lr, double grad_scale) override;
  void update_bucket(size_t i, double lr, double grad_scale);
  void write_momenta(size_t i, const Tensor& sent, double grad_scale);
  template <class Copy>
  static void each_run(const Owned& owned, const Plan& plan, size_t n, const Tensor& received, Copy&& copy);
  void orthogonalize_items(const Owned& owned, Plan& plan, const Tensor& received);
  void update_weights(size_t i, const Tensor& sent, double lr);

  MuonOptions options_;
  AdamW rest_;
  ElementState m_;
  std::vector<Plan> plans_;
};

// Whether a parameter is a matrix inside a block.
bool is_hidden_matrix(std::string_view param, const Shape& whole);

}  // namespace weft
