// ServedRank: the serving program on recorded kernels and a traced world.
#include "weft/plan/served_rank.h"

#include <numeric>

#include "weft/comm/trace/trace.h"

namespace weft::plan {
namespace {

Kernels kernels_of(bool packs_weights) {
  Kernels kernels = recorded_kernels();
  if (packs_weights) kernels.packed_matmul_b_bytes = cpu_kernels().packed_matmul_b_bytes;
  return kernels;
}

std::unique_ptr<Communicator> observed_world(int rank, int size, RecordedStream& stream) {
  auto world = make_trace_communicator(rank, size);
  world->set_observer([&stream](const CommEvent& event) { record(stream, event); });
  return world;
}

ServedMemory loaded_in(const Allocator& allocator) {
  const AllocatorStats stats = allocator.stats();
  return {.weights = stats.live_bytes, .loading = stats.reserved_bytes - stats.live_bytes};
}

}  // namespace

ServedRank::ServedRank(const ServedModel& model, const MeshShape& mesh, int rank, const CacheShape& cache,
                       bool packs_weights)
    : kernels_(kernels_of(packs_weights)),
      world_(observed_world(rank, mesh.size(), stream_)),
      mesh_(*world_, mesh),
      model_(context_, mesh_, model.config, model.source, model.dtype, model.blocks, {.count = model.far_layers}),
      loaded_(loaded_in(allocator_)),
      runner_(model_, cache.num_blocks, cache.block_tokens, cache.format.value_or(RowFormat{model.dtype}),
              cache.num_states) {
  // Layers take their part of the cache with the first row that they see, and the largest step is a later one.
  const int32_t token = 0, block = 0;
  runner_.clear();
  const TokenRun run{.begin = 0, .end = 1, .from = -1, .to = 0};
  runner_.add({&token, 1}, {}, 0, {&block, 1}, 1, 0, {&run, 1});
  runner_.run();
  if (model.config.mtp_layers > 0) run_predictor();
  allocator_.reset_peak();
}

void ServedRank::run_predictor() {
  std::vector<int32_t> from(static_cast<size_t>(num_rows_));
  std::iota(from.begin(), from.end(), 0);
  runner_.predict(from);
}

StepTrace ServedRank::traced(FunctionRef<void()> pass) {
  events_.clear();
  stream_.set_recording(true);
  stream_.add({.kind = Event::Kind::action, .action = ActionKind::forward, .peer = mesh_.place().pp});
  pass();
  stream_.add({.kind = Event::Kind::end_action});
  stream_.set_recording(false);
  return {.events = events_};
}

StepTrace ServedRank::step(std::span<const AlikeRows> rows) {
  std::vector<int32_t> tokens, blocks;
  std::vector<TokenRun> runs;
  const int64_t states = runner_.cache().num_states();
  runner_.clear();
  int64_t next = 0, sequence = 0;
  num_rows_ = 0;
  for (const AlikeRows& r : rows) {
    num_rows_ += r.sequences * r.rows;
    tokens.resize(size_t(r.rows), 0), blocks.resize(size_t(r.num_blocks(runner_.block_tokens())));
    for (int64_t i = 0; i < r.sequences; ++i) {
      for (int32_t& block : blocks) block = int32_t(next++ % runner_.cache().num_blocks());
      const auto state = int32_t(sequence++ % states);
      runs.clear();
      for (int64_t at = 0; at < r.rows;) {  // of draft tokens, whose logits are wanted, each leaves a state
        const int64_t end = r.wanted == r.rows ? at + 1 : r.rows;
        runs.push_back({int32_t(at), int32_t(end), r.first + at > 0 ? state : -1, state});
        at = end;
      }
      runner_.add(tokens, {}, r.first, blocks, r.wanted, 0, runs);
    }
  }
  return traced([&] { runner_.run(); });
}

StepTrace ServedRank::predict() {
  return traced([&] { run_predictor(); });
}

int64_t ServedRank::value_bytes() {
  int64_t sum = 0;
  for (const Param* p : model_.part().params())
    if (p->value) sum += int64_t(p->value.bytes());
  return sum;
}

ServedMemory ServedRank::memory() const {
  ServedMemory m = loaded_;
  m.cache = runner_.cache().bytes(), m.states = runner_.cache().state_bytes();
  m.step = allocator_.stats().peak_bytes - m.weights - m.cache - m.states;
  return m;
}

ServedMemory add(const ServedMemory& a, const ServedMemory& b, int64_t times) {
  return {.weights = a.weights + b.weights * times,
          .cache = a.cache + b.cache * times,
          .states = a.states + b.states * times,
          .step = a.step + b.step * times,
          .loading = a.loading + b.loading * times};
}

std::vector<std::unique_ptr<ServedRank>> serve_stages(const ServedModel& model, const MeshShape& mesh,
                                                      const CacheShape& cache, bool packs_weights, int context) {
  std::vector<std::unique_ptr<ServedRank>> stages;
  for (int pp = 0; pp < mesh.pp; ++pp)
    stages.push_back(std::make_unique<ServedRank>(model, mesh, mesh.size() / mesh.pp * pp + context * mesh.tp, cache,
                                                  packs_weights));
  return stages;
}

std::vector<StepTrace> trace_step(std::span<const std::unique_ptr<ServedRank>> stages,
                                  std::span<const AlikeRows> rows) {
  std::vector<StepTrace> traces;
  for (const auto& stage : stages) traces.push_back(stage->step(rows));
  return traces;
}

std::vector<StepTrace> trace_prediction(std::span<const std::unique_ptr<ServedRank>> stages) {
  std::vector<StepTrace> traces;
  for (const auto& stage : stages) traces.push_back(stage->predict());
  return traces;
}

}  // namespace weft::plan
