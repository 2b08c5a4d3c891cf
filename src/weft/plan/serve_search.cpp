// search_serving: every cut that divides the devices is planned in full; there are few.
#include "weft/plan/serve_search.h"

#include <fmt/format.h>

#include <algorithm>

#include "weft/base/error.h"

namespace weft::plan {
namespace {

constexpr int kMostStages = 16;  // they work in turn, so that more of them than memory asks for only cost

// Whether the keys and values of one text take much of a device. Shorter ones replicas serve as well as ranks along
// cp.
bool has_long_texts(const ServeRequest& q) {
  constexpr double kMuch = 0.1;
  const int64_t token = cache_bytes_of_token(q.model.config, {}, q.kv_format_of(q.model));
  return double(token) * double(q.input_len + q.output_len) > kMuch * q.cluster.hardware.memory_bytes;
}

// Sizes of cp and ep, of which one is 1.
std::vector<std::pair<int, int>> cuts_of_rows(const ServeSearchRequest& q) {
  std::vector<std::pair<int, int>> cuts{{1, 1}};
  for (int ep = 2; ep <= q.serve.model.config.experts; ep *= 2) cuts.emplace_back(1, ep);
  for (int cp = 2; has_long_texts(q.serve) && q.serve.block_tokens % cp == 0; cp *= 2) cuts.emplace_back(cp, 1);
  return cuts;
}

std::vector<MeshShape> meshes(const ServeSearchRequest& q, int num_devices) {
  const ModelConfig& m = q.serve.model.config;
  const int per_node = std::max(q.serve.cluster.hardware.devices_per_node, 1);
  std::vector<MeshShape> all;
  for (int tp = 1; tp <= std::min<int64_t>(m.heads, per_node); tp *= 2)
    for (int pp = 1; pp <= (m.stands_on_one_stage() ? 1 : std::min<int64_t>(m.layers, kMostStages)); ++pp)
      for (const auto& [cp, ep] : cuts_of_rows(q)) {
        const MeshShape shape{.pp = pp, .shard = ep, .cp = cp, .tp = tp, .ep = ep};
        if (shape.size() > num_devices || num_devices % shape.size() != 0) continue;
        if (q.is_one_replica && shape.size() != num_devices) continue;
        if (m.heads % tp != 0 || m.ffn % tp != 0 || (ep > 1 && m.experts % ep != 0)) continue;
        all.push_back(shape);
      }
  return all;
}

// The best batch that keeps the limits; -1: none does. Latency is that of one answer alone, unless limits are given:
// then as many answers as they allow.
int choose_batch(const ServeSearchRequest& q, const ServePlan& p) {
  if (q.ttft_limit_s > 0 && p.ttft_s > q.ttft_limit_s) return -1;
  int best = -1;
  for (size_t i = 0; i < p.batches.size(); ++i) {
    const ServeBatch& b = p.batches[i];
    if (q.tpot_limit_s > 0 && b.loaded.step_s > q.tpot_limit_s) continue;
    const bool is_better = best < 0 || (q.target == ServeTarget::throughput &&
                                        b.loaded_tokens_per_s > p.batches[size_t(best)].loaded_tokens_per_s);
    if (is_better) best = int(i);
  }
  return best;
}

// Less is better.
double score(const ServeSearchRequest& q, const ServeCandidate& c) {
  return q.target == ServeTarget::latency ? c.batch().step.step_s : 1 / c.batch().loaded_tokens_per_s;
}

// The part that grew most, or of what is better shrank: of a token's time, or of the devices' time that a token
// takes.
std::string loss_of(const ServeSearchRequest& q, const ServeCandidate& it, const ServeCandidate& best) {
  const bool is_latency = q.target == ServeTarget::latency;
  const auto time = [&](const ServeCandidate& c) { return is_latency ? c.batch().step : c.batch().loaded; };
  const auto per_token = [&](const ServeCandidate& c) {
    return is_latency ? 1.0 : c.plan.mesh.size() / c.batch().loaded_batch;
  };
  const auto mine = time(it).parts(), others = time(best).parts();
  const double more = score(q, it) / score(q, best) - 1, sign = more < 0 ? -1 : 1;
  size_t most = 0;
  const auto growth = [&](size_t i) { return mine[i].second * per_token(it) - others[i].second * per_token(best); };
  for (size_t i = 1; i < mine.size(); ++i)
    if (sign * growth(i) > sign * growth(most)) most = i;
  if (is_latency)
    return fmt::format("{:+.1f}% of time: {:+.3g} ms {}", 100 * more, 1e3 * growth(most), mine[most].first);
  return fmt::format("{:+.1f}% of tokens/s: {:+.3g} ms of a device a token {}", 100 * (1 / (1 + more) - 1),
                     1e3 * growth(most), mine[most].first);
}

struct Ranking {
  std::vector<ServeCandidate> ranked;
  std::optional<ServeCandidate> nearest, too_slow;
};

Ranking rank(const ServeSearchRequest& q, const std::string& quantize, const std::vector<MeshShape>& shapes,
             int num_devices) {
  Ranking r;
  ServeRequest request = q.serve;
  request.set_blocks(parse_block_choice(quantize));
  const auto nearness = [&](const ServePlan& p) {
    return std::max(q.ttft_limit_s > 0 ? p.ttft_s / q.ttft_limit_s : 0,
                    q.tpot_limit_s > 0 ? p.batches.front().loaded.step_s / q.tpot_limit_s : 0);
  };
  std::exception_ptr refused;
  for (const MeshShape& shape : shapes) {
    ServeCandidate c{.quantize = quantize};
    try {
      c.plan = plan_serving(request, shape, num_devices / shape.size());
    } catch (const UsageError&) {  // a cut that the model cannot have
      refused = std::current_exception();
      continue;
    }
    if (!c.plan.fits()) {
      if (!r.nearest || c.plan.missing_bytes < r.nearest->plan.missing_bytes) r.nearest = std::move(c);
      continue;
    }
    c.chosen = choose_batch(q, c.plan);
    if (c.chosen >= 0)
      r.ranked.push_back(std::move(c));
    else if (c.chosen = 0; !r.too_slow || nearness(c.plan) < nearness(r.too_slow->plan))
      r.too_slow = std::move(c);
  }
  if (refused && r.ranked.empty() && !r.nearest && !r.too_slow) std::rethrow_exception(refused);
  std::ranges::stable_sort(r.ranked, {}, [&](const ServeCandidate& c) { return score(q, c); });
  for (size_t i = 1; i < r.ranked.size(); ++i) r.ranked[i].loses = loss_of(q, r.ranked[i], r.ranked.front());
  return r;
}

// Whether the weights as they are fit on so many devices, however they are cut.
bool fits_on(const ServeSearchRequest& q, int num_devices) {
  std::vector<MeshShape> shapes = meshes(q, num_devices);
  std::erase_if(shapes, [&](const MeshShape& s) { return s.size() != num_devices; });
  return std::ranges::any_of(shapes, [&](const MeshShape& shape) {
    const Ranking r = rank(q, q.quantize.front(), {shape}, num_devices);
    return !r.nearest;
  });
}

}  // namespace

std::string describe_layout(const ServePlan& p) {
  std::string text;
  const auto add = [&](const char* name, int value) {
    if (value != 1) text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, value);
  };
  add("tp", p.mesh.tp), add("pp", p.mesh.pp), add("cp", p.mesh.cp), add("ep", p.mesh.ep);
  if (text.empty()) text = "one device";
  return p.replicas == 1 ? text : fmt::format("{} x {}", p.replicas, text);
}

ServeSearchResult search_serving(const ServeSearchRequest& q) {
  ServeSearchResult result;
  const int num_devices = q.serve.cluster.num_devices;
  const std::vector<MeshShape> shapes = meshes(q, num_devices);
  if (shapes.empty())
    throw UsageError("no layout of {} devices cuts a model of {} heads and {} layers: use another number of devices",
                     num_devices, q.serve.model.config.heads, q.serve.model.config.layers);
  for (const std::string& quantize : q.quantize) {
    Ranking r = rank(q, quantize, shapes, num_devices);
    result.num_layouts += int(shapes.size());
    const bool fits = !r.ranked.empty() || r.too_slow;
    if (fits && result.quantize_that_fits.empty()) result.quantize_that_fits = quantize;
    if (result.ranked.empty()) {
      result.ranked = std::move(r.ranked);
      if (!fits && quantize == q.quantize.front()) result.nearest = std::move(r.nearest);
      if (r.too_slow && !result.too_slow) result.too_slow = std::move(r.too_slow);
    } else if (!r.ranked.empty()) {
      result.more_rounded.push_back(std::move(r.ranked.front()));
    }
  }
  for (ServeCandidate& c : result.more_rounded) c.loses = loss_of(q, c, result.ranked.front());
  if (result.nearest)
    for (int times = 2; times <= 16 && result.devices_that_fit == 0; times *= 2)
      if (fits_on(q, num_devices * times)) result.devices_that_fit = num_devices * times;
  return result;
}

}  // namespace weft::plan
