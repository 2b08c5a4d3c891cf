// plan_serving: the largest step for memory, then a prompt's steps and a token of every batch for time.
#include "weft/plan/serve_plan.h"

#include <algorithm>
#include <cmath>

#include "weft/base/ceil_div.h"
#include "weft/base/error.h"

namespace weft::plan {
namespace {

using Stages = std::vector<std::unique_ptr<ServedRank>>;

struct Ranks {
  std::vector<Stages> along_context;  // with cp the first ranks and the last, which have most rows and most keys
  Stages draft;                       // one or none

  // Of the largest step.
  std::vector<ServedMemory> memory(const ServeRequest& q) const {
    const int64_t each = 1 + q.num_draft_tokens();
    const int64_t running = std::min(q.max_running, std::max<int64_t>(q.tokens_per_step / each, 1));
    const int64_t left = q.tokens_per_step - running * each;
    std::vector<AlikeRows> rows{{.sequences = running, .rows = each, .wanted = each}};
    const int64_t whole = q.model.config.context;
    if (left >= whole) rows.push_back({.sequences = left / whole, .rows = whole});
    if (left % whole > 0) rows.push_back({.rows = left % whole});
    std::vector<ServedMemory> all;
    for (const Stages& stages : along_context) {
      trace_step(stages, rows);
      if (q.model.config.mtp_layers > 0) trace_prediction(stages);
      all.resize(stages.size());
      for (size_t i = 0; i < stages.size(); ++i)
        all[i] =
            std::max(all[i], stages[i]->memory(), [](const auto& a, const auto& b) { return a.total() < b.total(); });
    }
    if (draft.empty()) return all;
    rows.front() = {.sequences = running};
    trace_step(draft, rows);
    all.back() = add(all.back(), draft.front()->memory());
    return all;
  }

  // Of the ranks that take longest.
  ServeTime time(std::span<const AlikeRows> rows, const CostModel& costs) const {
    ServeTime longest;
    for (const Stages& stages : along_context) {
      const ServeTime time = time_of(trace_step(stages, rows), costs);
      if (time.step_s > longest.step_s) longest = time;
    }
    return longest;
  }

  // Of all draft tokens of a step: those of a draft one after the other; or the model's own part over the rows of the
  // step before, and a row of each for every further draft token.
  double drafts_s(const ServeRequest& q, const AlikeRows& token, const CostModel& costs) const {
    const auto draft_tokens = double(q.num_draft_tokens());
    if (q.draft_model()) {
      const CostModel alone(q.cluster.hardware, {}, q.stack);
      return draft_tokens * time_of(trace_step(draft, {&token, 1}), alone).step_s;
    }
    const auto prediction_s = [&](int64_t each) {
      AlikeRows rows = token;
      rows.rows = rows.wanted = each;
      trace_step(along_context.front(), {&rows, 1});
      return time_of(trace_prediction(along_context.front()), costs).step_s;
    };
    return prediction_s(1 + q.num_draft_tokens()) + (draft_tokens - 1) * prediction_s(1);
  }
};

Ranks make_ranks(const ServeRequest& q, const MeshShape& mesh, const CacheShape& cache) {
  Ranks ranks;
  ranks.along_context.push_back(serve_stages(q.model, mesh, cache, q.packs_weights));
  if (mesh.cp > 1) ranks.along_context.push_back(serve_stages(q.model, mesh, cache, q.packs_weights, mesh.cp - 1));
  if (q.draft_model()) ranks.draft = serve_stages(*q.draft_model(), {}, cache, q.packs_weights);
  return ranks;
}

class Planner {
 public:
  Planner(const ServeRequest& request, const MeshShape& mesh, int replicas)
      : q_(request), costs_(request.cluster.hardware, mesh, request.stack) {
    plan_.mesh = mesh, plan_.replicas = replicas;
    // Enough blocks for one text: which blocks hold it makes no difference to a trace.
    trace_cache_ = {.num_blocks = blocks_of(longest()), .block_tokens = q_.block_tokens, .format = q_.kv_format};
    ranks_ = make_ranks(q_, mesh, trace_cache_);
  }

  ServePlan plan() {
    remember();
    if (!plan_.fits()) return std::move(plan_);
    read_prompt();
    const int64_t most = std::min({q_.max_running, plan_.sequences, q_.tokens_per_step});
    for (int64_t batch = 1; batch < most; batch *= 2) add_batch(batch);
    add_batch(most);
    return std::move(plan_);
  }

 private:
  int64_t longest() const { return q_.input_len + q_.output_len; }
  int64_t blocks_of(int64_t tokens) const { return ceil_div(tokens, q_.block_tokens); }
  int64_t half_way() const { return q_.input_len + q_.output_len / 2; }
  int64_t draft_tokens() const { return q_.num_draft_tokens(); }

  // As a server shares what is left beside the weights, on the stage that has least.
  StateShares share_room() const {
    StateShares least{.running = q_.max_running, .kept = INT64_MAX};
    for (const ServedMemory& m : plan_.stages) {
      const double room = plan_.capacity_bytes - double(m.total() - m.cache - m.states);
      const StateShares here =
          share_states(m.states, int64_t(std::max(room, 0.0)), q_.max_running, draft_tokens(), true);
      least.running = std::min(least.running, here.running), least.kept = std::min(least.kept, here.kept);
    }
    return least;
  }

  void remember() {
    const Hardware& h = q_.cluster.hardware;
    plan_.capacity_bytes = h.memory_bytes - h.reserved_bytes;
    plan_.stages = ranks_.memory(q_);
    plan_.cache_bytes_per_token = cache_bytes_of_token(q_.model.config, plan_.mesh, q_.kv_format_of(q_.model));
    if (const ServedModel* draft = q_.draft_model())
      plan_.cache_bytes_per_token += cache_bytes_of_token(draft->config, {}, q_.kv_format_of(*draft));
    const StateShares shares = share_room();
    double blocks = INFINITY;
    for (size_t i = 0; i < plan_.stages.size(); ++i) {
      ServedMemory& m = plan_.stages[i];
      m.states *= shares.all();  // of one so far
      const double block = double(m.cache) / double(trace_cache_.num_blocks);
      const double room = plan_.capacity_bytes - double(m.total() - m.cache);
      const double here = block > 0 ? std::floor(room / block) : room < 0 ? -1 : INFINITY;
      plan_.missing_bytes = std::max(plan_.missing_bytes, double(m.cache) - room);
      if (here < blocks) blocks = here, plan_.fullest = int(i);
    }
    if (!plan_.fits()) return;
    plan_.cache_tokens = int64_t(blocks) * q_.block_tokens;
    plan_.sequences = std::min(int64_t(blocks) / blocks_of(longest()), shares.running);
    for (ServedMemory& m : plan_.stages)
      m.cache = int64_t(double(m.cache) / double(trace_cache_.num_blocks) * blocks);
  }

  ServeTime time(std::initializer_list<AlikeRows> rows) const {
    const std::vector<AlikeRows> some(rows);
    return time(some);
  }
  ServeTime time(std::span<const AlikeRows> rows) const { return ranks_.time(rows, costs_); }

  // In pieces of tokens_per_step rows; only the last one's last row is wanted.
  void read_prompt() {
    const int64_t piece = std::min(q_.tokens_per_step, q_.input_len), whole = q_.input_len / piece,
                  left = q_.input_len % piece;
    const ServeTime first = time({{.rows = piece, .wanted = whole == 1 && left == 0}});
    plan_.prefill = first;
    if (whole > 1) {
      const ServeTime last = time({{.rows = piece, .first = (whole - 1) * piece, .wanted = left == 0}});
      const double half = double(whole) / 2;
      plan_.prefill = add(add({}, first, half), last, half);
    }
    if (left > 0) plan_.prefill = add(plan_.prefill, time({{.rows = left, .first = whole * piece}}));
    plan_.ttft_s = plan_.prefill.step_s;
  }

  void add_batch(int64_t batch) {
    ServeBatch b{.batch = batch};
    b.step = time({{.sequences = batch, .first = half_way()}});
    b.tokens_per_s = double(batch * plan_.replicas) / b.step.step_s;
    b.user_tokens_per_s = 1 / b.step.step_s;
    // Each answer that ends makes room for a prompt.
    const double in = double(q_.input_len), out = double(q_.output_len);
    const double most = double(q_.tokens_per_step) * out / (in + out);
    b.loaded_batch = std::min(double(batch), most);
    const auto answers = std::max<int64_t>(int64_t(b.loaded_batch), 1);
    const auto prompts = std::max<int64_t>(std::llround(b.loaded_batch * in / out), 1);
    std::vector<AlikeRows> rows{{.sequences = answers, .first = half_way()}};
    if (const int64_t whole = prompts / q_.input_len; whole > 0)
      rows.push_back({.sequences = whole, .rows = q_.input_len});
    if (const int64_t left = prompts % q_.input_len; left > 0)
      rows.push_back({.rows = left, .first = (q_.input_len - left) / 2});
    b.loaded = time(rows);
    b.loaded_tokens_per_s = b.loaded_batch * plan_.replicas / b.loaded.step_s;
    plan_.batches.push_back(b);
    if (q_.draft && batch * (1 + draft_tokens()) <= q_.tokens_per_step) add_speculation(b);
  }

  void add_speculation(const ServeBatch& b) {
    const DraftPlan& d = *q_.draft;
    Speculation s{.batch = b.batch};
    s.draft_s = ranks_.drafts_s(q_, {.sequences = b.batch, .first = half_way()}, costs_);
    s.verify_s =
        time({{.sequences = b.batch, .rows = 1 + d.draft_tokens, .first = half_way(), .wanted = 1 + d.draft_tokens}})
            .step_s;
    const double n = double(d.draft_tokens + 1), a = d.acceptance;
    s.tokens_per_step = a < 1 ? (1 - std::pow(a, n)) / (1 - a) : n;
    s.gain = s.tokens_per_step * b.step.step_s / (s.draft_s + s.verify_s);
    plan_.speculation.push_back(s);
  }

  const ServeRequest& q_;
  CostModel costs_;
  CacheShape trace_cache_;
  Ranks ranks_;
  ServePlan plan_;
};

}  // namespace

const ServeBatch& ServePlan::saturated() const {
  return *std::ranges::max_element(batches, {}, &ServeBatch::loaded_tokens_per_s);
}

std::vector<ServedMemory> serving_memory(const ServeRequest& request, const MeshShape& mesh, int64_t num_blocks,
                                         int64_t num_states) {
  std::vector<ServedMemory> ranks = make_ranks(request, mesh,
                                               {.num_blocks = 1,
                                                .block_tokens = request.block_tokens,
                                                .num_states = num_states,
                                                .format = request.kv_format})
                                        .memory(request);
  for (ServedMemory& m : ranks) m.cache *= num_blocks;
  return ranks;
}

ServePlan plan_serving(const ServeRequest& request, const MeshShape& mesh, int replicas) {
  if (request.input_len + request.output_len > request.model.config.context)
    throw UsageError("the model's context is {} tokens: --input-len {} and --output-len {} are more",
                     request.model.config.context, request.input_len, request.output_len);
  return Planner(request, mesh, replicas).plan();
}

}  // namespace weft::plan
