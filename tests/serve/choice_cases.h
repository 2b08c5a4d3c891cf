// Rows of logits and what is asked of them, chosen from by whoever has the rows: the tokens, their log-probabilities
// and errors are those of the whole rows.
#pragma once
#include "kernels/workbench.h"
#include "weft/base/error.h"
#include "weft/serve/logit_rows.h"

namespace weft {

struct ChoiceCase {
  const char* name;
  SamplingOptions options;
  int64_t vocab = 5003;
  float spread = 3;            // of the logits: the larger, the fewer tokens are likely
  bool has_mask = false;       // of every third token
  bool has_bad_words = false;  // and tokens that are banned
  bool wants_log_prob = false;
  bool comes_whole = false;  // of a row on a device
};

inline const ChoiceCase kChoiceCases[] = {
    {"greedy", {.temperature = 0}},
    {"greedy_of_few", {.temperature = 0}, 7},
    {"greedy_with_log_prob", {.temperature = 0}, 5003, 3, false, false, true},
    {"plain", {.temperature = 1, .seed = 3}},
    {"plain_of_few", {.temperature = 1, .seed = 3}, 5},
    {"plain_of_whole_blocks", {.temperature = 1.5, .seed = 3}, 2048},
    {"warm_with_log_prob", {.temperature = 2, .seed = 4}, 5003, 3, false, false, true},
    {"cold", {.temperature = 0.01, .seed = 4}},
    {"hardly_above_zero", {.temperature = 1e-40, .seed = 4}},
    {"top_k", {.temperature = 1, .top_k = 20, .seed = 5}},
    {"top_k_of_flat_logits", {.temperature = 1, .top_k = 300, .seed = 5}, 5003, 0.5f},
    {"top_k_of_few", {.temperature = 1, .top_k = 4, .seed = 5}, 9},
    {"top_k_of_one", {.temperature = 1, .top_k = 1, .seed = 5}},
    {"top_k_and_top_p", {.temperature = 0.8, .top_k = 40, .top_p = 0.9, .seed = 6}},
    {"top_p", {.temperature = 0.7, .top_p = 0.95, .seed = 7}},
    {"top_p_with_log_prob", {.temperature = 0.7, .top_p = 0.9, .seed = 7}, 5003, 4, false, false, true},
    {"nearly_all_of_top_p", {.temperature = 1, .top_p = 0.9999, .seed = 7}, 400},
    {"hardly_any_top_p", {.temperature = 1, .top_p = 1e-6, .seed = 7}},
    {"min_p", {.temperature = 1.5, .min_p = 0.05, .seed = 8}},
    {"all_filters", {.temperature = 1.2, .top_k = 50, .top_p = 0.9, .min_p = 0.02, .seed = 9}},
    {"penalties",
     {.temperature = 0.9, .seed = 10, .presence_penalty = 1.5, .frequency_penalty = -0.7, .repetition_penalty = 1.3}},
    {"penalties_and_top_p",
     {.temperature = 0.9, .top_p = 0.8, .seed = 10, .frequency_penalty = 0.3, .repetition_penalty = 0.8}},
    {"biases",
     {.temperature = 0, .logit_bias = {{3, 30.0f}, {900, 29.0f}, {3, -2.0f}, {77, -100.0f}, {1 << 20, 5.0f}}}},
    {"mask", {.temperature = 1, .top_p = 0.9, .seed = 11}, 5003, 3, true},
    {"mask_and_allowed", {.temperature = 1, .seed = 11, .allowed_tokens = {3, 4, 6, 9, 300, 1 << 20}}, 5003, 3, true},
    {"overflows", {.temperature = 1, .seed = 16, .repetition_penalty = 1e-40}},
    {"overflows_of_top_k", {.temperature = 1, .top_k = 20, .seed = 16, .repetition_penalty = 1e-40}},
    {"overflows_of_top_p", {.temperature = 1, .top_p = 0.9, .seed = 16, .repetition_penalty = 1e-40}},
    {"overflows_of_min_p", {.temperature = 1, .min_p = 0.1, .seed = 16, .repetition_penalty = 1e-40}},
    {"bad_words", {.temperature = 0}, 40, 3, false, true},
    {"none_may_come", {.temperature = 1, .seed = 12, .allowed_tokens = {1, 2}}, 5003, 3, true},
    {"typical", {.temperature = 1, .typical_p = 0.9, .seed = 13}, 5003, 3, false, false, false, true},
    {"many_top_k", {.temperature = 1, .top_k = 2000, .seed = 13}, 5003, 3, false, false, false, true},
    {"too_many_of_top_p", {.temperature = 1, .top_p = 0.999, .seed = 14}, 5003, 0.1f, false, false, false, true},
    {"too_many_after_a_mask", {.temperature = 1, .min_p = 0.001, .seed = 14}, 5003, 0.1f, true, false, false, true},
    {"penalties_with_log_prob",
     {.temperature = 1, .seed = 15, .presence_penalty = 1},
     5003,
     3,
     false,
     false,
     true,
     true}};

// What is chosen of each of some rows, as text: with its log-probability where that is asked for.
class Choices {
 public:
  Choices(const ChoiceCase& c, int64_t num_rows) : case_(c), num_rows_(num_rows) {
    for (int32_t i = 0; i < 60; ++i) (i < 40 ? prompt_ : answer_).push_back(int32_t(i * i * 7 % 90 % c.vocab));
    mask_.assign(size_t(c.vocab + 31) / 32, 0);
    for (int64_t i = 0; i < c.vocab; i += 3) mask_[size_t(i / 32)] |= uint32_t(1) << (i % 32);
    // Ends of the answer, and a word that is not there.
    const std::vector<int32_t> end(answer_.end() - 3, answer_.end());
    bad_words_ = {{end[1], end[2], 8}, {5}, {end[0], end[2], 9}};
  }

  // [rows, columns]: behind the tokens some that are none.
  Tensor logits(Workbench& bench) const {
    const Tensor rows = bench.random(DType::f32, {num_rows_, case_.vocab + 3}, case_.name);
    for (int64_t i = 0; i < rows.numel(); ++i)
      rows.data<float>()[i] *= i % rows.dim(1) < case_.vocab ? case_.spread : 1e3f;
    // Equals, of which the first counts, and what is no number.
    auto* const first = rows.data<float>();
    first[case_.vocab / 2] = first[case_.vocab - 1] = 4 * case_.spread;
    if (case_.vocab > 100) first[50] = std::nanf(""), first[51] = -INFINITY;
    return rows;
  }

  std::vector<std::string> of(const LogitRows& rows) {
    return each(rows, [&](int64_t) { return past(); });
  }
  // By wishes; every row by a sampler of its own.
  std::vector<std::string> by_wishes(LogitRows& rows, Context& context) {
    for (int64_t i = 0; i < num_rows_; ++i)
      rows.wish_choice(i, samplers_.emplace_back(case_.options), position(i), past(), case_.wants_log_prob);
    rows.find(context);
    rows.read(context);
    return each(rows, [&](int64_t i) { return rows.needs_past(i) ? past() : SamplingPast{}; });
  }

 private:
  static uint64_t position(int64_t row) { return uint64_t(row * 13 + 1); }
  SamplingPast past() const {
    SamplingPast p{.prompt = prompt_, .answer = answer_};
    if (case_.has_mask) p.allowed = mask_;
    if (case_.has_bad_words) p.bad_words = bad_words_, p.banned = {answer_.data(), 2};
    return p;
  }
  template <class Past>
  std::vector<std::string> each(const LogitRows& rows, Past&& past_of) {
    std::vector<std::string> all;
    LogProbs memory;
    samplers_.resize(size_t(num_rows_), Sampler(case_.options));
    for (int64_t i = 0; i < num_rows_; ++i) try {
        const int32_t token = rows.choose(i, samplers_[size_t(i)], position(i), past_of(i));
        all.push_back(fmt::format("{}", token));
        if (!case_.wants_log_prob) continue;
        const double sum = rows.log_sum(i);
        const TokenLogProbs told = rows.log_probs(i, token, 0, sum, memory);
        all.back() += fmt::format(" of {} at rank {}, sum {}", told.token.log_prob, told.rank, sum);
      } catch (const Error& e) {
        all.push_back(e.what());
      }
    return all;
  }

  const ChoiceCase& case_;
  const int64_t num_rows_;
  std::vector<int32_t> prompt_, answer_;
  std::vector<uint32_t> mask_;
  std::vector<std::vector<int32_t>> bad_words_;
  std::vector<Sampler> samplers_;
};

}  // namespace weft
