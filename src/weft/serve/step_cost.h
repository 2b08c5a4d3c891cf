// StepCost: how long steps take here: what every step takes, whatever is in it, and what each row adds.
#pragma once
#include <cstdint>

namespace weft {

// Learnt from the steps that ran, of which a newer one counts for more. What every step takes is mostly reading the
// weights, so that few rows leave a processor idle; many make those who answer wait for prompts. In between lie the
// fewest rows that use it well.
// Source: Agrawal et al., "Taming Throughput-Latency Tradeoff in LLM Inference with Sarathi-Serve", 2024, where the
// number is profiled before.
class StepCost {
 public:
  void learn(int64_t rows, double seconds);
  // The fewest rows of which nine tenths of a step's time are the rows' own, 1 to 2^20; 0 while steps were too much
  // alike to tell.
  int64_t good_rows() const { return good_rows_; }

 private:
  // Weighted means over the steps, for a line of least squares.
  double weight_ = 0, rows_ = 0, seconds_ = 0, rows_rows_ = 0, rows_seconds_ = 0;
  int64_t good_rows_ = 0;
};

}  // namespace weft
