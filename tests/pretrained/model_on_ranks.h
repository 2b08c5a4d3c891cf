// What a model says on the ranks of a mesh: logits of every position, and the tokens it goes on with.
#pragma once
#include <mutex>

#include "support/rank.h"
#include "weft/comm/threads/run_ranks.h"
#include "weft/pretrained/bidirectional_model.h"
#include "weft/serve/generator.h"

namespace weft {

using Logits = std::vector<std::vector<double>>;  // [T][V]

// Of models with at least 36 tokens.
inline const std::vector<int32_t> kSomeIds{3, 1, 4, 1, 5, 9, 2, 6, 5, 35, 8, 9, 7};

// A causal pass over one sequence from its beginning; `ids` outlives it.
struct WholePass {
  explicit WholePass(const std::vector<int32_t>& ids) : positions(ids.size()) {
    for (size_t i = 0; i < ids.size(); ++i) positions[i] = int32_t(i);
    span = {.q_end = int32_t(ids.size()), .k_end = int32_t(ids.size())};
    run = {.end = int32_t(ids.size())};
    pass = {.ids = ids.data(),
            .num_tokens = int64_t(ids.size()),
            .attention = {.positions = positions.data(), .spans = &span, .num_spans = 1},
            .runs = {&run, 1}};
  }
  WholePass(const WholePass&) = delete;
  std::vector<int32_t> positions;
  AttentionSpan span;
  TokenRun run;
  Pass pass;
};

// fill: gives the parameters their values.
using Fill = std::function<void(ForwardModel&)>;

inline Fill initial_values(uint64_t seed) {
  return [seed](ForwardModel& m) { m.part().initialize(m.context(), seed); };
}

inline void on_ranks(const ModelConfig& config, const MeshShape& shape, const Kernels& kernels, DType dtype,
                     const Fill& fill, const std::function<void(ForwardModel&)>& body) {
  run_ranks(shape.size(), [&](Communicator& world) {
    TestRank rank(kernels);
    const Mesh mesh(world, shape);
    ForwardModel model(rank.context, mesh, config, dtype);
    fill(model);
    body(model);
  });
}

inline Tensor logits_of_whole(ForwardModel& model, const WholePass& whole) {
  if (!model.config().bidirectional) return model.logits(whole.pass, 0, whole.pass.num_tokens);
  BidirectionalModel reader(model);
  TextRows rows = reader.no_texts();
  rows.add({whole.pass.ids, size_t(whole.pass.num_tokens)});
  return reader.logits(rows);
}

// Adds to `all` on the driver.
inline void add_logits(ForwardModel& model, const WholePass& whole, Logits& all) {
  const Tensor logits = logits_of_whole(model, whole);
  if (!model.is_driver()) return;
  for (int64_t t = 0; t < logits.dim(0); ++t) {
    all.emplace_back();
    for (int64_t v = 0; v < logits.dim(1); ++v) all.back().push_back(TestRank::get(logits, t * logits.dim(1) + v));
  }
}
inline void add_logits(ForwardModel& model, const std::vector<int32_t>& ids, Logits& all) {
  add_logits(model, WholePass(ids), all);
}

inline Logits logits_on(const ModelConfig& config, const MeshShape& shape, const Fill& fill,
                        const std::vector<int32_t>& ids, const Kernels& kernels = cpu_kernels(),
                        DType dtype = DType::f32) {
  Logits all;
  on_ranks(config, shape, kernels, dtype, fill, [&](ForwardModel& model) { add_logits(model, ids, all); });
  return all;
}

// Of a model that is opened.
inline Logits logits_of(const ModelSource& source, const std::vector<int32_t>& ids, const BlockChoice& choice,
                        const MeshShape& shape, const std::function<void(TestRank&, ForwardModel&)>& look = {}) {
  Logits all;
  run_ranks(shape.size(), [&](Communicator& world) {
    TestRank rank(cpu_kernels());
    const Mesh mesh(world, shape);
    ForwardModel model(rank.context, mesh, source, DType::f32, choice);
    add_logits(model, ids, all);
    if (look) look(rank, model);
  });
  return all;
}

inline std::vector<int32_t> greedy_on(const ModelConfig& config, const MeshShape& shape, const Fill& fill,
                                      const std::vector<int32_t>& prompt, int64_t count) {
  std::vector<int32_t> made;
  on_ranks(config, shape, cpu_kernels(), DType::f32, fill, [&](ForwardModel& model) {
    Generator generator(model);
    generator.generate(prompt, {.max_tokens = count, .sampling = {.temperature = 0}, .stop_tokens = {}},
                       [&](int32_t token) {
                         if (model.is_driver()) made.push_back(token);
                       });
  });
  return made;
}

inline double worst_difference(const Logits& a, const Logits& b) {
  if (a.size() != b.size()) return 1e30;
  double worst = 0;
  for (size_t t = 0; t < a.size(); ++t) {
    if (a[t].size() != b[t].size()) return 1e30;
    for (size_t v = 0; v < a[t].size(); ++v) {
      const double difference = std::abs(a[t][v] - b[t][v]);
      worst = difference <= worst ? worst : difference;  // a NaN stays
    }
  }
  return worst;
}

inline double largest(const Logits& logits) {
  return worst_difference(logits, Logits(logits.size(), std::vector(logits[0].size(), 0.0)));
}

inline std::string name_of_mesh(const MeshShape& s) {
  std::string name;
  const auto add = [&](const char* axis, int size) {
    if (size > 1) name += fmt::format("{}{}", axis, size);
  };
  add("pp", s.pp), add("dp", s.dp()), add("cp", s.cp), add("tp", s.tp), add("ep", s.ep);
  return name.empty() ? "one" : name;
}

}  // namespace weft
