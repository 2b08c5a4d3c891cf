// serve_check: the ranks of the server, run over meta memory.
#include "serve_check.h"

#include "rank_resources.h"
#include "weft/base/ceil_div.h"
#include "weft/base/file.h"
#include "weft/base/machine.h"
#include "weft/comm/mpi/mpi.h"
#include "weft/plan/machine_ranks.h"
#include "weft/plan/serve_search.h"

namespace weft::app {
namespace {

using namespace plan;

// A server's options as the planner has them.
struct AskedServer {
  std::unique_ptr<ModelSource> draft_source;
  ServeRequest request;
};

AskedServer asked_of(const EngineOptions& o, const ModelSource& source) {
  AskedServer a;
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
               .drafts_without_model = o.engine.max_draft_tokens};
  if (!o.has_draft_model()) return a;
  a.draft_source = open_model(o.draft, Checkpoint::Check::sizes);
  a.request.draft = {
      .model =
          ServedModel{
              .config = a.draft_source->config(), .source = a.draft_source.get(), .dtype = dtype, .blocks = blocks},
      .draft_tokens = o.engine.max_draft_tokens};
  return a;
}

// Of all ranks of a replica. Where a launcher has spread them over machines, as if all were like the one that needs
// the most.
ServedMemory memory_of_replica(const ServeRequest& request, const MeshShape& mesh, int64_t num_blocks,
                               int64_t num_states = 1) {
  const bool is_spread = launched_by_mpi() && mpi_ranks_here() < mesh.size();
  const int64_t ranks = mesh.size() / mesh.pp;
  ServedMemory sum, largest;
  for (const ServedMemory& m : serving_memory(request, mesh, num_blocks, num_states)) {
    sum = add(sum, m, ranks);
    if (m.total() > largest.total()) largest = m;
  }
  return is_spread ? add({}, largest, mesh.size()) : sum;
}

// Of a token, with its draft's.
int64_t bytes_of_token(const ServeRequest& q, const MeshShape& mesh) {
  int64_t token = cache_bytes_of_token(q.model.config, mesh, q.kv_format_of(q.model));
  if (const ServedModel* draft = q.draft_model())
    token += cache_bytes_of_token(draft->config, {}, q.kv_format_of(*draft));
  return token;
}

// Of one state, with its draft's.
int64_t state_bytes(const ServeRequest& q, const MeshShape& mesh) {
  const ServedModel* const draft = q.draft_model();
  return state_bytes_of_sequence(q.model.config, mesh, q.model.dtype) +
         (draft ? state_bytes_of_sequence(draft->config, {}, draft->dtype) : 0);
}

// kv_bytes: of states, too.
ServedMemory memory_with(const ServeRequest& q, const MeshShape& mesh, int64_t kv_bytes) {
  const int64_t state = state_bytes(q, mesh),
                states = share_states(state, kv_bytes, q.max_running, q.num_draft_tokens(), true).all();
  const int64_t blocks = (kv_bytes - states * state) / (bytes_of_token(q, mesh) * q.block_tokens);
  return memory_of_replica(q, mesh, std::max<int64_t>(blocks, 1), state > 0 ? states : 1);
}

// Where the memory is limited or layers may be far: whole contexts for all that run, or as much as is left, but room
// for one whole context.
int64_t choose_cache(const EngineOptions& o, const ServeRequest& q, const MeshShape& mesh, int64_t available) {
  const int64_t one = ceil_div(q.model.config.context, q.block_tokens) * q.block_tokens * bytes_of_token(q, mesh) +
                      most_states_of_each(q.num_draft_tokens(), true) * state_bytes(q, mesh);
  const int64_t least = o.device_map == "auto" ? one : 0;
  return std::clamp(available - memory_with(q, mesh, 0).total(), least, std::max(one * o.engine.max_running, least));
}

// The fewest layers of each stage with which the rest fits; none when even all are too few.
std::optional<int64_t> choose_far_layers(ServeRequest q, const MeshShape& mesh, int64_t kv_bytes, int64_t available) {
  const auto fits = [&](int64_t layers) {
    q.model.far_layers = layers;
    return memory_with(q, mesh, kv_bytes).total() <= available;
  };
  int64_t low = 0, high = q.model.config.layers / mesh.pp;
  if (fits(low)) return low;
  if (!fits(high)) return {};
  while (high - low > 1) {  // more than the two that are near at a time take less memory with each layer
    const int64_t middle = (low + high) / 2;
    (fits(middle) ? high : low) = middle;
  }
  return high;
}

// The mildest change with which it fits.
std::string remedy(const EngineOptions& o, ServeRequest q, const MeshShape& mesh, int64_t available) {
  const auto fits = [&](const ServeRequest& request) {
    return memory_with(request, mesh, o.engine.kv_bytes).total() <= available;
  };
  if (const ServedMemory least = memory_of_replica(q, mesh, 1); o.engine.kv_bytes > 0 && least.total() <= available)
    return fmt::format("lower --kv-cache to {}MiB", (available - least.total() + least.cache) >> 20);
  const DType before = q.model.dtype;
  if (before == DType::f32) {
    q.model.dtype = DType::bf16;
    if (q.draft_model()) q.draft->model->dtype = DType::bf16;
    if (fits(q)) return "--dtype bf16 would fit";
  }
  const std::string dtype = before == DType::f32 ? " --dtype bf16" : "";
  for (const char* quantize : {"q8_0", "int8", "q6_k", "q4_k"}) {
    q.set_blocks(parse_block_choice(quantize));
    if (fits(q)) return fmt::format("--quantize {}{} would fit", quantize, dtype);
  }
  return "use a machine with more memory, more machines (mpirun, --mesh tp=2) or a smaller model";
}

}  // namespace

int64_t available_to_replica(const EngineOptions& o, int ranks, int first_rank, int64_t limit) {
  if (!launched_by_mpi()) return available_bytes(device_of(o.forward), ranks, limit, first_rank);
  const int here = mpi_ranks_here();  // of all replicas; they take their memory at the same time
  return available_bytes(device_of(o.forward), here, limit) / here * ranks;
}

MeshShape choose_mesh(const EngineOptions& o, const ModelSource& source) {
  AskedServer asked = asked_of(o, source);
  const Machine machine = describe_machine();
  const int cores = o.forward.threads > 0 ? o.forward.threads : usable_cores();
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

MemoryChoice choose_memory(const EngineOptions& o, const ModelSource& source, const MeshShape& mesh) {
  AskedServer asked = asked_of(o, source);
  ServeRequest& q = asked.request;
  const int64_t available =
      available_to_replica(o, mesh.size(), o.forward.replica * mesh.size(), o.memory_limit / o.num_models);
  const bool may_be_far = o.device_map == "auto";
  MemoryChoice choice{.kv_bytes = o.engine.kv_bytes};
  if (choice.kv_bytes == 0 && (o.memory_limit > 0 || may_be_far))
    choice.kv_bytes = choose_cache(o, q, mesh, available);
  const ServedMemory need = memory_with(q, mesh, choice.kv_bytes);
  if (need.total() <= available) return choice;
  if (const auto far = may_be_far ? choose_far_layers(q, mesh, choice.kv_bytes, available) : std::nullopt) {
    choice.far_layers = *far;
    q.model.far_layers = *far;
    const int64_t moved = need.weights - memory_with(q, mesh, choice.kv_bytes).weights;
    const bool is_device = device_of(o.forward) != Device::cpu;
    o.output.text(fmt::format(
        "weft: --device-map auto: {} of {} layers do not fit in the {} there are: {} of their weights are "
        "read anew for each step from {}",
        *far * mesh.pp, q.model.config.layers, human_bytes(uint64_t(available)), human_bytes(uint64_t(moved)),
        is_device ? "the host's memory" : "a file in " + o.far_folder));
    o.output.json({{"event", "device_map"}, {"far_layers", *far * mesh.pp}, {"far_bytes", moved}});
    return choice;
  }
  throw Error(
      "{} does not fit: weights {}, the cache {}, the largest step {} and what loading leaves {} are {} more than "
      "the {} that are {}; {}{}",
      source.path(), human_bytes(uint64_t(need.weights)), human_bytes(uint64_t(need.cache + need.states)),
      human_bytes(uint64_t(need.step)), human_bytes(uint64_t(need.loading)),
      human_bytes(uint64_t(need.total() - available)), human_bytes(uint64_t(available)),
      o.memory_limit > 0 ? "allowed" : "free", remedy(o, q, mesh, available),
      may_be_far ? "" : "; --device-map auto would read layers that do not fit anew for each step");
}

}  // namespace weft::app
