// Adafactor: second moments of rows and columns instead of elements. Source: Shazeer and Stern, 2018.
#pragma once
#include <vector>

#include "weft/optim/matrices.h"
#include "weft/optim/optimizer.h"

namespace weft {

// Of every matrix, such as an expert's of a stack: R and C, moving averages of the means of g^2 + eps over rows and
// columns; V = R C / mean(R); u = g / sqrt(V); weight -= lr * (u / max(1, rms(u) / clip_threshold) + weight_decay *
// weight). The averages decay with 1 - t^-decay_exponent. There is no first moment, and the learning rate is the
// schedule's: no relative step.
struct AdafactorOptions {
  double decay_exponent = 0.8, clip_threshold = 1, eps = 1e-30;
  double weight_decay = 0;
};

// A vector is a matrix of one row, whose factored moment is exact. Every rank of a parameter's groups keeps the
// moments of the whole: sums of squares go over the groups, gradients do not.
class Adafactor final : public Optimizer {
 public:
  Adafactor(Context& context, std::vector<Owned> owned, const AdafactorOptions& options);
  std::vector<State> states_of(std::string_view param, const Shape& whole) const override;
  void visit_state(std::string_view param, std::string_view state, bool is_written, VisitState visit) override;

 private:
  struct Item {  // a parameter of a bucket
    Matrices matrices;
    const Piece* piece;  // null: this rank owns nothing of it
    int64_t offset;      // in the bucket's moments: for each matrix its rows, then its columns
    int64_t first_square;
    int64_t size() const { return matrices.count * (matrices.rows.total + matrices.cols.total); }
  };
  struct BucketState {
    std::vector<Item> items;
    Tensor moments;
    Tensor work;                                // like moments: sums, then factors; empty between updates
    int64_t first_square = 0, num_squares = 0;  // of its matrices, among all
  };
  void update(double lr, double grad_scale) override;
  void update_moments(size_t bucket, float grad_scale);
  void add_squares(size_t bucket, float grad_scale);
  void update_weights(size_t bucket, float lr, float grad_scale);
  template <class Visit>
  void each_piece(size_t bucket, float grad_scale, Visit&& visit);

  AdafactorOptions options_;
  std::vector<BucketState> buckets_;
  Tensor squares_;  // f64: of every matrix's u
};

}  // namespace weft
