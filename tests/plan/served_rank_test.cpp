// What the planner says that ranks of a served model hold and do, beside what they hold and do.
#include "weft/plan/served_rank.h"

#include "base/temporary_folder.h"
#include "pretrained/sample_gguf.h"
#include "serve/company.h"

namespace weft::plan {
namespace {

ModelConfig config_of(const std::string& family) {
  ModelConfig m = family_defaults(family);
  m.layers = 4, m.hidden = 64, m.heads = 4, m.kv_heads = 2, m.ffn = 160, m.vocab = 258, m.context = 256;
  if (family == "gpt2") m.kv_heads = 4;
  if (m.kv_rank > 0) m.kv_rank = 32, m.query_rank = 0, m.rotary_dim = 8, m.head_dim = 24, m.value_dim = 16;
  if (m.has_states()) m.attention_every = 3;
  if (m.experts > 0) m.experts = 4, m.experts_per_token = 2, m.expert_ffn = 64;
  complete(m);
  return m;
}

double sum(const StepTrace& trace, Event::Kind kind, double Event::*part) {
  double total = 0;
  for (const Event& e : trace.events) total += e.kind == kind ? e.*part : 0;
  return total;
}

// Every family serves a prompt and a token on ranks that are not there.
class ServedFamilyTest : public testing::TestWithParam<std::string> {};
TEST_P(ServedFamilyTest, LeavesATrace) {
  ServedRank rank({.config = config_of(GetParam())}, {.tp = 2}, 0, {.num_blocks = 64});
  const AlikeRows prompt{.rows = 100}, token{.sequences = 8, .first = 100};
  EXPECT_GT(sum(rank.step({&prompt, 1}), Event::Kind::matmul, &Event::flops), 0);
  EXPECT_GT(sum(rank.step({&token, 1}), Event::Kind::attention, &Event::bytes), 0);
}
// Those that write texts.
std::vector<std::string> served_families() {
  std::vector<std::string> names = family_names();
  std::erase_if(names, [](const std::string& name) { return family_defaults(name).bidirectional; });
  return names;
}
INSTANTIATE_TEST_SUITE_P(Families, ServedFamilyTest, testing::ValuesIn(served_families()),
                         [](const auto& i) { return i.param; });

struct HeldCase {
  MeshShape mesh = {};
  const char* quantize = "none";
  DType dtype = DType::f32;
  const char* architecture = "llama";
  int64_t far = 0;  // layers of each stage
  bool has_experts = false;
};
class ServedMemoryTest : public testing::TestWithParam<HeldCase> {};

// Every request is there before the first step, so that the largest step is the same however fast clients are.
void serve_at_once(ForwardModel& model, const ContinuousOptions& options, std::vector<Request> requests) {
  std::vector<std::future<Heard>> open;
  const auto hear_all = [&](Engine&) {
    for (auto& heard : open) EXPECT_EQ(heard.get().finish.reason, FinishReason::length);
  };
  with_engine(model, options, hear_all, [&](Engine& engine) {
    for (Request& request : requests) open.push_back(ask(engine, std::move(request)));
  });
}

// What ranks say that they hold, and what a served company made them hold, on every rank.
TEST_P(ServedMemoryTest, IsWhatRanksOfTheEngineHold) {
  const HeldCase& c = GetParam();
  const TemporaryFolder folder;
  const std::string path = folder / "model.gguf";
  write_gguf({c.architecture, GgmlType::f32, c.has_experts, false, c.mesh, 128, 256, 96}, path);
  const auto source = open_model(path);
  const BlockChoice blocks = parse_block_choice(c.quantize);
  const ContinuousOptions options{.kv_blocks = 64, .block_tokens = 4, .max_running = 16, .tokens_per_step = 64};
  struct Held {
    int64_t weights = 0, loading = 0, all = 0;
  };
  std::vector<Held> held(size_t(c.mesh.size()));
  run_ranks(c.mesh.size(), [&](Communicator& world) {
    TestRank rank(cpu_kernels());
    const Mesh mesh(world, c.mesh);
    ForwardModel model(rank.context, mesh, *source, c.dtype, blocks, {.count = c.far, .folder = folder.path()});
    Held& mine = held[size_t(world.rank())];
    mine.weights = rank.allocator.stats().live_bytes;
    mine.loading = rank.allocator.stats().reserved_bytes - mine.weights;
    rank.allocator.reset_peak();
    serve_at_once(model, options, company(16));
    mine.all = rank.allocator.stats().peak_bytes;
  });
  for (int rank = 0; rank < c.mesh.size(); ++rank) {
    ServedRank planned(
        {.config = source->config(), .source = source.get(), .dtype = c.dtype, .blocks = blocks, .far_layers = c.far},
        c.mesh, rank, {.num_blocks = options.kv_blocks, .block_tokens = options.block_tokens}, true);
    const std::array rows{AlikeRows{.sequences = options.max_running},
                          AlikeRows{.sequences = 2, .rows = (options.tokens_per_step - options.max_running) / 2}};
    planned.step(rows);
    const ServedMemory m = planned.memory();
    const Held& real = held[size_t(rank)];
    EXPECT_EQ(m.weights, real.weights) << "rank " << rank;
    EXPECT_LE(m.loading, real.loading) << "rank " << rank;  // other dtypes are read through fp32
    // How many rows of a step come to a rank's experts, the tokens and who comes together decide, and the latter also
    // how many blocks a rank's rows look at.
    const double part = c.mesh.ep * c.mesh.cp > 1 ? 0.15 : 0.01;
    const auto planned_bytes = double(m.total() - m.loading), real_bytes = double(real.all);
    EXPECT_GE(planned_bytes, real_bytes * (1 - part)) << "rank " << rank;
    // A last stage of one layer computes little but what is asked for: as much as was planned no step asked.
    const bool is_last_layer = c.mesh.pp == source->config().layers && rank >= c.mesh.size() - c.mesh.tp;
    EXPECT_LE(planned_bytes, real_bytes * (1 + (is_last_layer ? 0.05 : part))) << "rank " << rank;
  }
}
INSTANTIATE_TEST_SUITE_P(Meshes, ServedMemoryTest,
                         testing::Values(HeldCase{}, HeldCase{{.tp = 2}}, HeldCase{{.pp = 2}}, HeldCase{{.cp = 2}},
                                         HeldCase{{}, "int8"}, HeldCase{{.tp = 2}, "int8"},
                                         HeldCase{{.pp = 2}, "int8"}, HeldCase{{}, "nf4"}, HeldCase{{.tp = 2}, "nf4"},
                                         HeldCase{{.pp = 2}, "nf4"},
                                         HeldCase{{.pp = 2, .tp = 2}, "q8_0", DType::bf16, "qwen3"},
                                         HeldCase{{}, "none", DType::f32, "llama", 2},
                                         HeldCase{{.tp = 2}, "int8", DType::bf16, "llama", 2},
                                         HeldCase{{.pp = 2}, "none", DType::bf16, "llama", 1},
                                         HeldCase{{}, "none", DType::bf16, "qwen3moe", 0, true},
                                         HeldCase{{}, "q8_0", DType::bf16, "qwen3moe", 0, true},
                                         HeldCase{{.tp = 2}, "nf4", DType::bf16, "qwen3moe", 0, true},
                                         HeldCase{{.shard = 2, .ep = 2}, "q4_0", DType::bf16, "llama", 0, true},
                                         HeldCase{{.tp = 2}, "int8", DType::f32, "qwen3moe", 2, true}),
                         [](const auto& test) {
                           const HeldCase& c = test.param;
                           return fmt::format("{}_{}_{}{}{}", name_of_mesh(c.mesh), c.quantize,
                                              weft::name_of(c.dtype), c.has_experts ? "_experts" : "",
                                              c.far > 0 ? "_far" : "");
                         });

// A block of the cache is as large as the engine counts it.
TEST(ServedRankTest, HoldsTheCacheThatTheEngineCounts) {
  const ModelConfig config = config_of("llama");
  for (const MeshShape& mesh :
       {MeshShape{}, MeshShape{.tp = 2}, MeshShape{.tp = 4}, MeshShape{.pp = 2}, MeshShape{.cp = 2}}) {
    int64_t bytes = 0;
    for (int r = 0; r < mesh.size(); ++r) {
      ServedRank rank({.config = config}, mesh, r, {.num_blocks = 1024, .block_tokens = 16});
      const AlikeRows token{.first = 3};
      rank.step({&token, 1});
      bytes += rank.memory().cache;
    }
    EXPECT_EQ(bytes, 1024 * 16 * cache_bytes_of_token(config, mesh, {DType::bf16})) << name_of_mesh(mesh);
  }
}

// Attention of a token reads the keys and values of its text; products read their weights, as few bytes as they have.
TEST(ServedRankTest, CountsWhatATokenReads) {
  const ModelConfig config = config_of("llama");
  const auto bytes_of = [&](Event::Kind kind, int64_t first, const char* quantize) {
    ServedRank rank({.config = config, .blocks = parse_block_choice(quantize)}, {}, 0, {.num_blocks = 64});
    const AlikeRows token{.first = first};
    return sum(rank.step({&token, 1}), kind, &Event::bytes);
  };
  const double few = bytes_of(Event::Kind::attention, 99, "none"),
               many = bytes_of(Event::Kind::attention, 199, "none");
  EXPECT_EQ(many - few, 100.0 * double(cache_bytes_of_token(config, {}, {DType::bf16})));
  EXPECT_LT(bytes_of(Event::Kind::matmul, 99, "nf4"), 0.5 * bytes_of(Event::Kind::matmul, 99, "none"));
}

}  // namespace
}  // namespace weft::plan
