// search: enumerate, estimate roughly, trace the best in full.
#include "weft/plan/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iterator>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/units.h"
#include "weft/plan/on_all_cores.h"
#include "weft/plan/rough.h"

namespace weft::plan {
namespace {

using What = RecomputePolicy::What;

// 1, 2, 4, ... and other divisors of n up to `most`.
std::vector<int> divisors(int n, int64_t most) {
  std::vector<int> all;
  for (int d = 1; d <= n && d <= most; ++d)
    if (n % d == 0) all.push_back(d);
  return all;
}

bool is_power_of_two(int64_t n) { return (n & (n - 1)) == 0; }

class Layouts {
 public:
  Layouts(const SearchRequest& request, int num_devices) : q_(request), num_devices_(num_devices) { meshes(); }
  std::vector<Recipe> take() { return std::move(all_); }

 private:
  static bool is_asked(int only, int value) { return only == 0 || only == value; }

  void meshes() {
    const ModelConfig& m = q_.model;
    const int per_node = q_.cluster.hardware.devices_per_node;
    for (const int tp : divisors(num_devices_, std::min<int64_t>(m.heads, std::max(per_node, 1)))) {
      if (!is_asked(q_.tp, tp) || m.heads % tp != 0 || m.ffn % tp != 0 || m.hidden % tp != 0) continue;
      if (tp > 1 && !is_power_of_two(tp) && q_.tp == 0) continue;
      for (const int cp : divisors(num_devices_ / tp, 64)) {
        constexpr int64_t kFewTokens = 4096;  // on a rank: below it, context parallelism only adds messages
        if (!is_asked(q_.cp, cp) || !ContextLayout::divides(q_.seq_len, cp)) continue;
        if (cp > 1 && m.selects_keys() && q_.seq_len > m.index_topk) continue;
        if (q_.cp == 0 && cp > 1 && (q_.seq_len / cp < kFewTokens || !is_power_of_two(cp))) continue;
        for (const int pp : divisors(num_devices_ / tp / cp, m.stands_on_one_stage() ? 1 : m.layers + 2)) {
          if (!is_asked(q_.pp, pp)) continue;
          const int dp = num_devices_ / tp / cp / pp;
          if (q_.global_batch % dp != 0) continue;
          MeshShape shape{.pp = pp, .shard = dp, .cp = cp, .tp = tp};
          if (m.experts == 0) {
            states(shape);
            continue;
          }
          for (const int ep : divisors(dp * cp, m.experts))
            if (is_asked(q_.ep, ep) && m.experts % ep == 0) shape.ep = ep, states(shape);
        }
      }
    }
  }

  // Who keeps which states: ZeRO-1 beside a pipeline, which runs many micro-batches; else any stage, hybrid too.
  void states(const MeshShape& shape) {
    const int dp = shape.shard;
    if (dp == 1) return batches(shape, Zero::none);
    batches(shape, Zero::optimizer);
    if (shape.pp > 1) return;
    batches(shape, Zero::gradients);
    batches(shape, Zero::parameters);
    const int inner = shape.tp * shape.cp, per_node = q_.cluster.hardware.devices_per_node;
    const int node_shard = per_node / inner;
    if (shape.ep == 1 && node_shard > 1 && node_shard < dp && dp % node_shard == 0) {
      MeshShape hybrid = shape;
      hybrid.replicate = dp / node_shard, hybrid.shard = node_shard;
      batches(hybrid, Zero::parameters);
    }
  }

  void batches(const MeshShape& shape, Zero zero) {
    const int64_t rows = q_.global_batch / shape.dp();
    for (int64_t micro = 1; micro <= rows && micro <= 64; micro *= 2) {
      if (rows % micro != 0) continue;
      if (shape.pp > 1 && rows / micro < shape.pp) continue;  // mostly bubble
      constexpr int64_t kMostTokens = 1 << 17;
      if (micro > 1 && micro * q_.seq_len / shape.cp > kMostTokens) continue;
      for (const What what : {What::nothing, What::attention, What::mlp, What::block})
        schedules(shape, zero, micro, what);
    }
  }

  void schedules(const MeshShape& shape, Zero zero, int64_t micro, What what) {
    Recipe r;
    r.model = q_.model;
    r.train = {.steps = 1000,
               .seq_len = q_.seq_len,
               .global_batch = q_.global_batch,
               .micro_batch = micro,
               .accumulation = q_.global_batch / shape.dp() / micro,
               .precision = q_.precision,
               .gradients = q_.gradients,
               .recompute = {what}};
    r.optimizer = q_.optimizer, r.preference = q_.preference, r.distill = q_.distill, r.policy = q_.policy;
    r.mesh.shape = shape;
    r.mesh.zero = zero;
    r.mesh.sequence_parallel = shape.tp > 1;
    const auto divides = [&](int64_t heads) { return heads % (shape.cp * shape.tp) == 0; };
    const bool has_wide_values = q_.model.values_dim() == q_.model.head_dim_of(0);  // which ulysses asks for
    const bool is_ulysses =
        shape.cp > 1 && divides(q_.model.kv_heads) && divides(q_.model.global_kv_heads) && has_wide_values;
    r.mesh.cp_mode = is_ulysses ? ContextMode::ulysses : ContextMode::ring;
    all_.push_back(r);
    if (shape.pp == 1) return;
    r.mesh.schedule = ScheduleKind::zb_h1;
    all_.push_back(r);
    for (int v = 2; v <= 8; v *= 2) {
      if (r.model.layers < int64_t(shape.pp) * v) break;
      r.mesh.schedule = ScheduleKind::interleaved, r.mesh.virtual_stages = v;
      all_.push_back(r);
    }
  }

  const SearchRequest& q_;
  int num_devices_;
  std::vector<Recipe> all_;
};

// What a ranking compares.
double value_of(const Candidate& c, RankBy by) {
  switch (by) {
    case RankBy::time: return c.plan.step_with_answers_s();
    case RankBy::cost: return c.device_hours_per_token();
    case RankBy::memory: return double(c.plan.peak_bytes());
  }
  return 0;
}
// The same of what is known before its step is traced; the batch is the same for all.
double rough_value_of(const Candidate& c, RankBy by) {
  if (by == RankBy::memory) return c.rough_peak_bytes;
  return c.rough_step_s * (by == RankBy::cost ? c.recipe.mesh.size() : 1);
}

// Whether a is as good as b in all that people choose by, and better in something.
bool dominates(const Candidate& a, const Candidate& b) {
  const std::array of_a = {a.plan.step_with_answers_s(), double(a.plan.peak_bytes()), double(a.recipe.mesh.size())};
  const std::array of_b = {b.plan.step_with_answers_s(), double(b.plan.peak_bytes()), double(b.recipe.mesh.size())};
  return of_a != of_b && std::ranges::equal(of_a, of_b, std::less_equal<>{});
}

// The part of the step that grew most, in words.
std::string lost_time(const StepPlan& it, const StepPlan& best) {
  std::vector<std::pair<double, std::string>> parts = {
      {it.time.compute() - best.time.compute(), "computing: smaller or repeated kernels"},
      {it.time.bubble_s + it.time.idle_s - best.time.bubble_s - best.time.idle_s, "the pipeline's bubble"},
      {it.time.update_s - best.time.update_s, "the optimizer's update"},
      {it.round_share_s - best.round_share_s, "answers"}};
  for (size_t axis = 0; axis < kNumAxes; ++axis)
    parts.emplace_back(it.time.exposed_s[axis] - best.time.exposed_s[axis],
                       fmt::format("waiting for collectives of {}", name_of(Axis(axis))));
  const auto& most = *std::ranges::max_element(parts);
  return fmt::format("{:+.1f}% of time: {:+.3g} s {}",
                     100 * (it.step_with_answers_s() / best.step_with_answers_s() - 1), most.first, most.second);
}

std::string loss_of(const Candidate& it, const Candidate& best, RankBy by) {
  switch (by) {
    case RankBy::time: return lost_time(it.plan, best.plan);
    case RankBy::cost:
      return fmt::format("{:+.1f}% of device-hours, {} devices",
                         100 * (it.device_hours_per_token() / best.device_hours_per_token() - 1),
                         it.recipe.mesh.size());
    case RankBy::memory:
      return fmt::format("{:+.2f} GiB on the fullest device, {:+.1f}% of time",
                         gib(it.plan.peak_bytes() - best.plan.peak_bytes()),
                         100 * (it.plan.step_with_answers_s() / best.plan.step_with_answers_s() - 1));
  }
  return {};
}

struct RoughRanking {
  std::vector<Candidate> fitting;  // the best first
  std::optional<Candidate> least;  // of all, that which needs least memory
  int num_layouts = 0;
  std::string why_not;  // of the first layout that is impossible
};

void sort_roughly(std::vector<Candidate>& candidates, RankBy by) {
  std::ranges::stable_sort(candidates, {}, [by](const Candidate& c) { return rough_value_of(c, by); });
}

RoughRanking rank_roughly(const SearchRequest& request, int num_devices) {
  RoughRanking ranking;
  const Hardware& machine = request.cluster.hardware;
  const Hardware device = machine.of_ranks(std::min(num_devices, machine.devices_per_node));
  const double capacity = device.memory_bytes - device.reserved_bytes;
  std::vector<Recipe> recipes = Layouts(request, num_devices).take();
  if (request.progress)
    request.progress(fmt::format("looking at {} layouts of {} devices", recipes.size(), num_devices));
  const auto estimates = RoughPlanner(request.cluster, request.stack, request.teacher).estimate(recipes);
  for (size_t i = 0; i < recipes.size(); ++i) {
    if (const auto* impossible = std::get_if<Impossible>(&estimates[i])) {
      if (ranking.why_not.empty()) ranking.why_not = fmt::format(" ({})", impossible->why);
      continue;
    }
    const Rough& rough = std::get<Rough>(estimates[i]);
    Candidate c{.recipe = std::move(recipes[i])};
    c.rough_step_s = rough.step_s, c.rough_peak_bytes = rough.peak_bytes;
    ++ranking.num_layouts;
    if (!ranking.least || c.rough_peak_bytes < ranking.least->rough_peak_bytes) ranking.least = c;
    if (c.rough_peak_bytes <= capacity) ranking.fitting.push_back(std::move(c));
  }
  sort_roughly(ranking.fitting, request.rank_by);
  return ranking;
}

// Of a cluster, and where fewer devices may cost less, of halves of it.
RoughRanking rank_roughly(const SearchRequest& request) {
  const int all = request.cluster.num_devices;
  RoughRanking ranking = rank_roughly(request, all);
  if (request.rank_by != RankBy::cost) return ranking;
  for (int devices = all / 2; devices > 0 && all % devices == 0; devices /= 2) {
    RoughRanking fewer = rank_roughly(request, devices);
    ranking.num_layouts += fewer.num_layouts;
    std::ranges::move(fewer.fitting, std::back_inserter(ranking.fitting));
  }
  sort_roughly(ranking.fitting, request.rank_by);
  return ranking;
}

}  // namespace

std::string describe_layout(const Recipe& r) {
  const MeshShape& s = r.mesh.shape;
  std::string text;
  const auto add = [&](const char* name, int64_t value) {
    if (value != 1) text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, value);
  };
  add("dp", s.dp()), add("tp", s.tp), add("pp", s.pp), add("cp", s.cp), add("ep", s.ep);
  if (s.dp() > 1) text += fmt::format(",zero={}", int(r.mesh.zero));
  add("hsdp", s.replicate);
  if (text.empty()) text = "one device";
  if (s.pp > 1) text += fmt::format(",schedule={}", name_of(r.mesh.schedule));
  add("virtual_stages", r.mesh.virtual_stages);
  constexpr const char* kRecomputed[] = {"", ", recompute attention", ", recompute mlp", ", recompute block"};
  return fmt::format("{}, micro-batch {}{}", text, r.train.micro_batch, kRecomputed[int(r.train.recompute.what)]);
}

std::string explain_layout(const Recipe& recipe) {
  const MeshShape& s = recipe.mesh.shape;
  std::string text = "In words: ";
  if (s.dp() > 1)
    text +=
        fmt::format("{} groups of devices each read their own part of the batch (data parallelism){}; ", s.dp(),
                    recipe.mesh.zero == Zero::none         ? ""
                    : recipe.mesh.zero == Zero::parameters ? " and keep only a part of the model each (ZeRO-3, FSDP)"
                                                           : " and share the optimizer's memory (ZeRO)");
  if (s.tp > 1) text += fmt::format("every layer is cut over {} devices of a node (tensor parallelism); ", s.tp);
  if (s.pp > 1) text += fmt::format("the layers are dealt out over {} stages (pipeline parallelism); ", s.pp);
  if (s.cp > 1) text += fmt::format("every text is cut over {} devices (context parallelism); ", s.cp);
  if (s.ep > 1) text += fmt::format("experts live on {} devices each (expert parallelism); ", s.ep);
  if (recipe.train.recompute.what != RecomputePolicy::What::nothing)
    text += "some of the forward pass is computed twice to save memory (recomputation); ";
  return text + "each term is explained in docs/parallelism.md.";
}

SearchRequest search_request(const Recipe& recipe) {
  SearchRequest q{.model = recipe.model, .seq_len = recipe.train.seq_len, .global_batch = recipe.train.global_batch};
  q.precision = recipe.train.precision, q.gradients = recipe.train.gradients, q.optimizer = recipe.optimizer;
  q.preference = recipe.preference, q.distill = recipe.distill, q.policy = recipe.policy;
  return q;
}

SearchResult search(const SearchRequest& request) {
  RoughRanking rough = rank_roughly(request);
  if (!rough.least)
    throw UsageError(
        "no layout of {} devices divides a batch of {} rows and a model of {} heads: change --global-batch or the "
        "number of devices{}",
        request.cluster.num_devices, request.global_batch, request.model.heads, rough.why_not);
  SearchResult result{.ranked = {}, .num_layouts = rough.num_layouts, .num_fitting = int(rough.fitting.size())};
  const PlanOptions options{.stack = request.stack, .teacher = request.teacher ? &*request.teacher : nullptr};
  std::map<std::string, int> of_mesh;  // so that the runners-up are other ideas
  std::vector<Candidate*> promising;
  std::map<int, int> of_size;
  for (Candidate& c : rough.fitting) {
    const MeshShape& s = c.recipe.mesh.shape;
    // Of fewer devices than asked for, the best alone.
    if (of_size[s.size()] == (s.size() == request.cluster.num_devices ? request.num_full : 2)) continue;
    if (++of_mesh[fmt::format("{} {} {} {} {}", s.size(), s.tp, s.pp, s.cp, s.ep)] > 2) continue;
    promising.push_back(&c), ++of_size[s.size()];
  }
  if (request.progress) request.progress(fmt::format("simulating the {} most promising", promising.size()));
  on_all_cores(promising.size(), [&](size_t i) {
    Candidate& c = *promising[i];
    c.plan = plan_step(c.recipe, {request.cluster.hardware, c.recipe.mesh.size()}, options);
  });
  std::erase_if(promising, [](const Candidate* c) { return !c->plan.fits(); });
  std::ranges::stable_sort(promising, {}, [&](const Candidate* c) { return value_of(*c, request.rank_by); });
  for (Candidate* c : promising) {
    if (c != promising.front()) c->loses = loss_of(*c, *promising.front(), request.rank_by);
    const bool is_beaten =
        std::ranges::any_of(promising, [&](const Candidate* other) { return dominates(*other, *c); });
    (is_beaten && c != promising.front() ? result.dominated : result.ranked).push_back(*c);
  }
  if (!result.ranked.empty()) return result;
  result.nearest = std::move(rough.least);
  result.nearest->plan = plan_step(result.nearest->recipe, request.cluster, options);
  if (result.nearest->plan.fits()) {  // the rough figures were too high
    result.ranked.push_back(std::move(*std::exchange(result.nearest, std::nullopt)));
    return result;
  }
  result.nearest_missing_bytes = result.nearest->plan.missing_bytes();
  for (int times = 2; times <= request.max_times && result.devices_that_fit == 0; times *= 2)
    if (!rank_roughly(request, request.cluster.num_devices * times).fitting.empty())
      result.devices_that_fit = request.cluster.num_devices * times;
  return result;
}

}  // namespace weft::plan
