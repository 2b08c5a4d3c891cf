// serve_check: the ranks of the server, run over meta memory.
#include "serve_check.h"

#include "rank_resources.h"
#include "weft/base/machine.h"
#include "weft/base/units.h"
#include "weft/comm/mpi/mpi.h"
#include "weft/plan/machine_ranks.h"
#include "weft/plan/serve_search.h"

namespace weft::app {
namespace {

using namespace plan;

// A server's options as the planner has them.
struct Asked {
  std::unique_ptr<ModelSource> draft_source;
  ServeRequest request;
};

Asked asked_of(const EngineOptions& o, const ModelSource& source) {
  Asked a;
  const BlockChoice blocks = parse_block_choice(o.forward.quantize);
  const DType dtype = dtype_of(o.forward, source);
  const int64_t context = source.config().context;
  a.request = {.model = {.config = source.config(), .source = &source, .dtype = dtype, .blocks = blocks},
               .cluster = {},
               .input_len = std::max<int64_t>(std::min<int64_t>(1024, context / 2), 1),
               .output_len = std::max<int64_t>(std::min<int64_t>(256, context / 4), 1),
               .block_tokens = o.engine.block_tokens,
               .kv_format = o.engine.kv_format,
               .tokens_per_step = o.engine.tokens_per_step,
               .max_running = o.engine.max_running,
               .packs_weights = true,
               .guesses_without_draft = o.engine.most_guesses};
  if (o.draft.empty()) return a;
  a.draft_source = open_model(o.draft, Checkpoint::Check::sizes);
  a.request.draft = {
      .model = {.config = a.draft_source->config(), .source = a.draft_source.get(), .dtype = dtype, .blocks = blocks},
      .guesses = o.engine.most_guesses};
  return a;
}

// Of all ranks in this process.
ServedMemory memory_here(const ServeRequest& request, const MeshShape& mesh, int64_t num_blocks) {
  const bool is_alone = launched_by_mpi();
  ServedMemory sum;
  for (const ServedMemory& m : serving_memory(request, mesh, num_blocks)) {
    const int64_t ranks = is_alone ? 1 : mesh.size() / mesh.pp;
    if (is_alone && m.total() <= sum.total()) continue;
    if (is_alone) sum = {};
    sum = add(sum, m, ranks);
  }
  return sum;
}

int64_t blocks_asked(const EngineOptions& o, const ServeRequest& q, const MeshShape& mesh) {
  int64_t token = cache_bytes_of_token(q.model.config, mesh, q.kv_format_of(q.model));
  if (q.draft) token += cache_bytes_of_token(q.draft->model.config, {}, q.kv_format_of(q.draft->model));
  return std::max<int64_t>(o.engine.kv_bytes / (token * q.block_tokens), 1);
}

// The mildest change with which it fits.
std::string remedy(const EngineOptions& o, ServeRequest q, const MeshShape& mesh, int64_t available) {
  const auto fits = [&](const ServeRequest& request) {
    return memory_here(request, mesh, blocks_asked(o, request, mesh)).total() <= available;
  };
  if (const ServedMemory least = memory_here(q, mesh, 1); o.engine.kv_bytes > 0 && least.total() <= available)
    return fmt::format("lower --kv-cache to {}MiB", (available - least.total() + least.cache) >> 20);
  const DType before = q.model.dtype;
  if (before == DType::f32) {
    q.model.dtype = DType::bf16;
    if (q.draft) q.draft->model.dtype = DType::bf16;
    if (fits(q)) return "--dtype bf16 would fit";
  }
  const std::string dtype = before == DType::f32 ? " --dtype bf16" : "";
  for (const char* quantize : {"q8_0", "int8", "q6_k", "q4_k"}) {
    q.model.blocks = parse_block_choice(quantize);
    if (q.draft) q.draft->model.blocks = q.model.blocks;
    if (fits(q)) return fmt::format("--quantize {}{} would fit", quantize, dtype);
  }
  return "use a machine with more memory, more machines (mpirun, --mesh tp=2) or a smaller model";
}

}  // namespace

MeshShape choose_mesh(const EngineOptions& o, const ModelSource& source) {
  Asked asked = asked_of(o, source);
  const Machine machine = describe_machine();
  const int cores = o.forward.threads > 0 ? o.forward.threads : num_cores();
  const auto token_s = [](const ServeCandidate& c) { return c.plan.batches.front().step.step_s; };
  const auto [best, fewest] = choose_ranks(
      cores, double(machine.available_bytes),
      [&](const Cluster& ranks) {
        asked.request.cluster = ranks;
        return search_serving({.serve = asked.request, .quantize = {o.forward.quantize}, .is_one_replica = true})
            .ranked;
      },
      token_s);
  const auto text = [&](const ServeCandidate& c) {
    return fmt::format("{}: {:.3g} ms a token ({})", describe_layout(c.plan), 1e3 * token_s(c),
                       c.plan.batches.front().step.bound());
  };
  const bool is_one = !best || best->plan.mesh.size() == 1;
  const std::string ranks = is_one ? fmt::format("one rank with all {} cores", cores) : text(*best);
  o.output.text(fmt::format("weft: --mesh auto: {}{}", ranks,
                            is_one ? "; more ranks would share the same cores and memory, and wait for each other"
                                   : ", beside " + text(*fewest)));
  return best ? best->plan.mesh : MeshShape{};
}

void check_memory(const EngineOptions& o, const ModelSource& source, const MeshShape& mesh) {
  const Asked asked = asked_of(o, source);
  const int64_t available = available_bytes(device_of(o.forward), mesh.size());
  const ServedMemory need = memory_here(asked.request, mesh, blocks_asked(o, asked.request, mesh));
  if (need.total() <= available) return;
  throw Error(
      "{} does not fit: weights {:.2f} GiB, the cache {:.2f}, the largest step {:.2f} and what loading leaves {:.2f} "
      "are {:.2f} GiB more than the {:.2f} that are free; {}",
      source.path(), gib(need.weights), gib(need.cache), gib(need.step), gib(need.loading),
      gib(need.total() - available), gib(available), remedy(o, asked.request, mesh, available));
}

}  // namespace weft::app
