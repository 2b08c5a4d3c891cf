// A model over a paged cache: the logits of a sequence are the same to the last bit however it is cut into steps,
// whatever sequences go with it and however its blocks lie; and near those over a cache of its own, and those
// without.
#include "pretrained/model_on_ranks.h"
#include "weft/autograd/ops/paged_cache.h"
#include "weft/nn/wanted_rows.h"

namespace weft {
namespace {

constexpr int64_t kContext = 96;

struct PagedModel {
  const char* name;
  const char* family;
  void (*change)(ModelConfig&);
  RowFormat format = {};    // of keys and values
  double tolerance = 1e-4;  // of logits, as a part of the largest, against keys and values in f32
};

ModelConfig paged_config(const PagedModel& model) {
  ModelConfig c = family_defaults(model.family);
  c.layers = 2, c.hidden = 48, c.heads = 4, c.head_dim = 12, c.ffn = 80, c.vocab = 53, c.context = kContext;
  c.init_std = 0.2f;
  model.change(c);
  complete(c);
  return c;
}

constexpr RowFormat kInt8 = RowFormat::of(RowCodes::int8), kFp8 = RowFormat::of(RowCodes::fp8);
constexpr auto sparse = [](ModelConfig& c) {
  c.kv_rank = 20, c.query_rank = 28, c.rotary_dim = 8, c.value_dim = 16;
  c.index_heads = 6, c.index_head_dim = 10, c.index_topk = 9;
};
constexpr PagedModel kModels[] = {
    {"llama", "llama", [](ModelConfig& c) { c.kv_heads = 2; }},
    {"llama_bf16", "llama", [](ModelConfig& c) { c.kv_heads = 2; }, {DType::bf16}, 0.015},
    {"llama_int8", "llama", [](ModelConfig& c) { c.kv_heads = 2; }, kInt8, 0.04},
    {"llama_fp8", "llama", [](ModelConfig& c) { c.kv_heads = 2; }, kFp8, 0.2},
    {"gpt2_int8", "gpt2", [](ModelConfig&) {}, kInt8, 0.04},
    {"gpt2", "gpt2", [](ModelConfig&) {}},
    {"moe", "llama", [](ModelConfig& c) { c.kv_heads = 2, c.experts = 5, c.expert_ffn = 24, c.shared_experts = 1; }},
    {"latent_experts", "nemotron_h",
     [](ModelConfig& c) {
       c.layers = 4, c.state_key_dim = 10, c.state_value_dim = 12;
       c.experts = 5, c.expert_ffn = 24, c.expert_latent_dim = 20, c.shared_experts = 1;
     }},
    {"latent", "llama",
     [](ModelConfig& c) { c.kv_rank = 20, c.query_rank = 28, c.rotary_dim = 8, c.value_dim = 16; }},
    {"latent_int8", "llama",
     [](ModelConfig& c) { c.kv_rank = 20, c.query_rank = 28, c.rotary_dim = 8, c.value_dim = 16; }, kInt8, 0.06},
    {"sparse", "deepseek_v32", sparse},
    {"sparse_bf16", "deepseek_v32", sparse, {DType::bf16}, 0.5},
    {"sparse_shared", "glm_moe_dsa", [](ModelConfig& c) { sparse(c), c.layers = 3, c.index_layers = {0}; }},
    {"streams", "hy_v4",
     [](ModelConfig& c) {
       sparse(c), c.layers = 3, c.index_layers = {0, 2}, c.residual_streams = 3;
     }},
    {"latent_of_few_heads", "llama", [](ModelConfig& c) { c.kv_rank = 24, c.heads = 2, c.rotary_dim = 4; }},
    {"window_and_cap", "llama",
     [](ModelConfig& c) {
       c.kv_heads = 1, c.window = 10, c.global_every = 2, c.attention_softcap = 4, c.qk_norm = true;
     }},
    {"layers_by_number", "granite_swa",
     [](ModelConfig& c) {
       c.layers = 4, c.window = 10, c.global_layers = {0, 3}, c.unrotated_layers = {3};
     }},
    {"post", "llama", [](ModelConfig& c) { c.block = BlockKind::post; }},
    {"both", "llama", [](ModelConfig& c) { c.block = BlockKind::both; }},
    {"parallel", "llama", [](ModelConfig& c) { c.block = BlockKind::parallel; }},
    {"parallel_shared", "llama", [](ModelConfig& c) { c.block = BlockKind::parallel_shared; }},
    {"of_sums", "llama", [](ModelConfig& c) { c.block = BlockKind::of_sums, c.qk_norm_across = true; }},
    {"delta", "qwen3_5",
     [](ModelConfig& c) {
       c.kv_heads = 2, c.attention_every = 2;
       c.state_key_heads = 2, c.state_key_dim = 10, c.state_value_dim = 12;
     }},
    {"kimi", "kimi_linear",
     [](ModelConfig& c) {
       c.attention_every = 2, c.kv_rank = 20, c.rotary_dim = 8, c.value_dim = 16;
       c.state_key_dim = 10, c.state_value_dim = 12;
     }},
    {"selective", "granitemoehybrid",
     [](ModelConfig& c) { c.attention_every = 2, c.state_key_dim = 10, c.state_value_dim = 12; }},
    {"narrow_values", "mimo_v2_flash",
     [](ModelConfig& c) {
       c.kv_heads = 2, c.window = 10, c.first_local_layer = 1, c.global_kv_heads = 1, c.value_dim = 8;
     }},
    {"beside", "falcon_h1", [](ModelConfig& c) { c.kv_heads = 2, c.state_key_dim = 10, c.state_value_dim = 12; }},
    {"pre_norm", "olmo_hybrid",
     [](ModelConfig& c) { c.attention_every = 2, c.state_key_dim = 10, c.state_value_dim = 12; }},
    {"conv", "lfm2", [](ModelConfig& c) { c.kv_heads = 2, c.attention_every = 2; }},
    {"head_gates", "lfm3", [](ModelConfig& c) { c.layers = 4, c.kv_heads = 2, c.window = 10; }},
    {"learned_activation", "apertus", [](ModelConfig& c) { c.kv_heads = 2; }},
    {"normalised_embedding", "nanochat", [](ModelConfig& c) { c.kv_heads = 2; }},
    {"biased_head", "phi", [](ModelConfig& c) { c.rotary_dim = 8; }},
    {"latent_scaled", "minicpm3",
     [](ModelConfig& c) {
       c.kv_rank = 20, c.query_rank = 28, c.rotary_dim = 8, c.value_dim = 16;
       c.embedding_scale = 3, c.residual_scale = 0.6f, c.logit_scale = 0.5f;
     }},
    {"ranked_by_logits", "kolibri1",
     [](ModelConfig& c) {
       c.kv_heads = 2, c.window = 10, c.global_every = c.unrotated_every = 2;
       c.experts = 5, c.expert_ffn = 24, c.shared_experts = 1, c.expert_post_norm = true;
     }},
    {"conv_alone", "lfm2_moe",
     [](ModelConfig& c) { c.kv_heads = 2, c.attention_every = 3, c.state_conv_bias = true; }},
    {"single", "nemotron_h", [](ModelConfig& c) { c.layers = 4, c.state_key_dim = 10, c.state_value_dim = 12; }},
    {"heads_that_differ", "gemma4",
     [](ModelConfig& c) {
       c.kv_heads = 2, c.window = 10, c.global_every = 2;
       c.global_head_dim = 24, c.global_kv_heads = 1, c.global_values_are_keys = true;
     }},
    {"experts_beside_dense", "gemma4",
     [](ModelConfig& c) { c.kv_heads = 2, c.experts = 5, c.expert_ffn = 24, c.experts_beside_dense = true; }},
    {"shared_keys", "gemma4",
     [](ModelConfig& c) {
       c.layers = 6, c.kv_heads = 2, c.window = 10, c.global_every = 2, c.global_head_dim = 24;
       c.shared_kv_layers = 3, c.shared_kv_ffn = 80, c.layer_inputs = 10;
     }},
    {"delta_alone", "qwen3_5",
     [](ModelConfig& c) {
       c.attention_every = 3, c.state_key_heads = 2, c.state_key_dim = 10, c.state_value_dim = 12;
     }},
    {"latent_fp8", "llama",
     [](ModelConfig& c) { c.kv_rank = 20, c.query_rank = 28, c.rotary_dim = 8, c.value_dim = 16; }, kFp8, 0.2},
};

std::vector<int32_t> tokens_of(int sequence, int64_t count) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(int32_t((i * i + 7 * i * (sequence + 1) + sequence) % 53));
  return ids;
}

// Rows [begin, end) of a sequence.
struct Rows {
  int sequence;
  int32_t begin, end;
};

// Three sequences that share a cache.
class Served {
 public:
  Served(ForwardModel& model, int64_t block_tokens, const RowFormat& format)
      : model_(model),
        cache_(model.context(), int(model.config().layers), 3 * kContext, block_tokens, format, 3),
        block_tokens_(int32_t(block_tokens)) {}

  // The logits of rows, behind those of the sequences before: of all of them, or in the order of the pass of those
  // that `is_wanted` names by their place in it.
  void step(const std::vector<Rows>& pieces, const std::function<bool(int32_t row)>& is_wanted = {}) {
    std::vector<int32_t> ids, positions, places, chosen;
    std::vector<PagedSequence> sequences;
    std::vector<TokenRun> runs;
    std::vector<std::pair<int, size_t>> owners;
    for (const Rows& p : pieces) {
      const auto first = int32_t(ids.size());
      const std::vector<int32_t> all = tokens_of(p.sequence, p.end);
      for (int32_t i = p.begin; i < p.end; ++i) {
        ids.push_back(all[size_t(i)]), positions.push_back(i);
        places.push_back(block(p.sequence, i / block_tokens_) * block_tokens_ + i % block_tokens_);
        const auto row = int32_t(ids.size()) - 1;
        if (is_wanted && !is_wanted(row)) continue;
        // All of them are chosen from the last to the first.
        chosen.insert(is_wanted ? chosen.end() : chosen.begin(), row);
        owners.insert(is_wanted ? owners.end() : owners.begin(), {p.sequence, size_t(i)});
      }
      sequences.push_back({first, int32_t(ids.size()), p.end, blocks_[p.sequence].data()});
      runs.push_back({first, int32_t(ids.size()), p.begin > 0 ? p.sequence : -1, p.sequence});
    }
    const PagedPlan plan{&cache_, sequences.data(), int(sequences.size()), places.data()};
    const Pass pass{.ids = ids.data(),
                    .num_tokens = int64_t(ids.size()),
                    .attention = {.positions = positions.data(), .paged = &plan},
                    .runs = {runs.data(), int(runs.size())}};
    const Tensor logits = model_.logits(pass, chosen);
    if (!logits) return;
    for (size_t i = 0; i < owners.size(); ++i) {
      std::vector<std::vector<float>>& rows = logits_[owners[i].first];
      rows.resize(std::max(rows.size(), owners[i].second + 1));
      const float* row = logits.data<float>() + int64_t(i) * logits.dim(1);
      rows[owners[i].second].assign(row, row + logits.dim(1));
    }
  }
  const std::vector<std::vector<float>>& logits(int sequence) const { return logits_[sequence]; }

 private:
  // Sequences take blocks in turn, from the far end.
  int32_t block(int sequence, int32_t index) {
    while (int32_t(blocks_[sequence].size()) <= index) blocks_[sequence].push_back(int32_t(3 * kContext) - ++taken_);
    return blocks_[sequence][size_t(index)];
  }

  ForwardModel& model_;
  PagedCache cache_;
  int32_t block_tokens_, taken_ = 0;
  std::vector<int32_t> blocks_[3];
  std::vector<std::vector<float>> logits_[3];
};

struct PagedCase {
  PagedModel model;
  MeshShape mesh;
};

class PagedModelTest : public testing::TestWithParam<PagedCase> {};

TEST_P(PagedModelTest, ASequenceIsTheSameInAnyCompany) {
  constexpr int32_t kTokens = 70;
  const RowFormat& format = GetParam().model.format;
  on_ranks(paged_config(GetParam().model), GetParam().mesh, cpu_kernels(), DType::f32, initial_values(5),
           [&](ForwardModel& model) {
             Served whole(model, 16, format);
             whole.step({{0, 0, kTokens}});
             const auto expect_same = [&](const char* how, const Served& other) {
               ASSERT_EQ(other.logits(0).size(), whole.logits(0).size()) << how;
               for (size_t t = 0; t < whole.logits(0).size(); ++t)
                 ASSERT_EQ(other.logits(0)[t], whole.logits(0)[t]) << how << ", token " << t;
             };
             for (const int64_t block_tokens : {1, 8, 64}) {
               Served chunks(model, block_tokens, format), company(model, block_tokens, format);
               for (int32_t at = 0; at < kTokens; at += 3) chunks.step({{0, at, std::min(at + 3, kTokens)}});
               expect_same("in chunks of 3", chunks);
               company.step({{1, 0, 20}});
               for (int32_t at = 0; at < kTokens; ++at)
                 company.step({{2, at, at + 1}, {0, at, at + 1}, {1, 20 + at, 21 + at}});
               expect_same("token by token in company", company);
             }

             const std::vector<int32_t> ids = tokens_of(0, kTokens);
             KvCache cache(model.context(), int(model.config().layers), kContext);
             std::vector<int32_t> positions(ids.size());
             for (size_t i = 0; i < ids.size(); ++i) positions[i] = int32_t(i);
             const Pass pass{.ids = ids.data(),
                             .num_tokens = kTokens,
                             .attention = {.positions = positions.data(), .cache = &cache}};
             const Tensor logits = model.logits(pass, 0, kTokens);
             const AttentionSpan span{.q_end = kTokens, .k_end = kTokens};
             const TokenRun run{.end = kTokens};
             const Pass at_once{.ids = ids.data(),
                                .num_tokens = kTokens,
                                .attention = {.positions = positions.data(), .spans = &span, .num_spans = 1},
                                .runs = {&run, 1}};
             const Tensor uncached = model.logits(at_once, 0, kTokens);
             if (!model.has_result()) return;
             ASSERT_EQ(whole.logits(0).size(), ids.size());
             double largest = 0, worst = 0, worst_uncached = 0;
             for (int64_t i = 0; i < logits.numel(); ++i) {
               const double here = double(whole.logits(0)[size_t(i / logits.dim(1))][size_t(i % logits.dim(1))]);
               largest = std::max(largest, std::abs(here));
               const auto cached = double(logits.data<float>()[i]);
               worst = std::max(worst, std::abs(here - cached));
               worst_uncached = std::max(worst_uncached, std::abs(double(uncached.data<float>()[i]) - cached));
             }
             RecordProperty("largest_difference", fmt::format("{:.6f} of {:.3f}", worst, largest));
             EXPECT_LE(worst, GetParam().model.tolerance * largest);
             EXPECT_LE(worst_uncached, 1e-4 * largest);
             if (format != RowFormat()) EXPECT_GT(worst, 1e-4 * largest) << "no key was rounded";
             EXPECT_GT(largest, 0.1) << "logits that are all alike test nothing";
           });
}

std::vector<PagedCase> paged_cases() {
  std::vector<PagedCase> all;
  for (const PagedModel& model : kModels)
    for (const MeshShape& mesh : {MeshShape{}, MeshShape{.tp = 2}, MeshShape{.pp = 2}})
      if (mesh.pp == 1 || !paged_config(model).stands_on_one_stage()) all.push_back({model, mesh});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, PagedModelTest, testing::ValuesIn(paged_cases()), [](const auto& test) {
  return fmt::format("{}_{}", test.param.model.name, name_of_mesh(test.param.mesh));
});

// The last layer then computes little but these rows, and keeps the keys and values of all.
TEST_P(PagedModelTest, RowsThatAreAskedForAreThoseOfAll) {
  const RowFormat& format = GetParam().model.format;
  on_ranks(paged_config(GetParam().model), GetParam().mesh, cpu_kernels(), DType::f32, initial_values(5),
           [&](ForwardModel& model) {
             Served all(model, 8, format), some(model, 8, format);
             const std::function<bool(int32_t)> askers[] = {
                 [](int32_t row) { return row == 39; },                            // one sequence's last
                 [](int32_t) { return false; },                                    // none
                 [](int32_t row) { return row < 3 || row == 19 || row % 7 > 4; },  // runs that cross sequences
                 [](int32_t row) { return row > 5; },                              // all but the first
             };
             int32_t at = 0;
             for (const auto& is_wanted : askers) {
               const auto piece = [at](int s, int32_t n) { return Rows{s, at * n, (at + 1) * n}; };
               const std::vector<Rows> pieces{piece(0, 20), piece(1, 7), piece(2, 13)};
               all.step(pieces), some.step(pieces, is_wanted);
               ++at;
               for (int s = 0; s < 3; ++s)
                 for (size_t t = 0; t < some.logits(s).size(); ++t)
                   if (!some.logits(s)[t].empty()) ASSERT_EQ(some.logits(s)[t], all.logits(s)[t]) << s << ' ' << t;
             }
             if (!model.has_result()) return;
             EXPECT_EQ(some.logits(2)[12].size(), 53u);  // row 39 of the first step
             EXPECT_TRUE(some.logits(0)[19].empty());
           });
}

// Two runs of rows, the first in two sequences and two adapters.
TEST(WantedRowsTest, AreSequencesAndAdaptersOfTheirOwn) {
  const int32_t positions[]{4, 5, 6, 0, 1, 2, 3, 9}, blocks[]{7, 8, 9};
  const PagedSequence sequences[]{{0, 3, 7, blocks}, {3, 7, 4, blocks + 1}, {7, 8, 10, blocks + 2}};
  const PagedPlan plan{.sequences = sequences, .num_sequences = 3};
  const RowAdapters::Run runs[]{{0, 0, 2}, {1, 2, 4}, {0, 7, 1}};
  const RowAdapters adapters{runs, {}};
  const Pass pass{.num_tokens = 8, .attention = {.positions = positions, .paged = &plan}, .lora = &adapters};
  WantedRows wanted;
  wanted.choose(pass, std::vector<int32_t>{1, 2, 3, 6, 7});

  const Pass& narrow = wanted.pass();
  EXPECT_EQ(narrow.num_tokens, 5);
  EXPECT_EQ(std::vector(narrow.attention.positions, narrow.attention.positions + 5),
            (std::vector<int32_t>{5, 6, 0, 3, 9}));
  std::vector<std::array<int32_t, 3>> got;
  const PagedPlan& paged = *narrow.attention.paged;
  for (int i = 0; i < paged.num_sequences; ++i)
    got.push_back({paged.sequences[i].q_begin, paged.sequences[i].q_end, paged.sequences[i].num_keys});
  EXPECT_EQ(got, (std::vector<std::array<int32_t, 3>>{{0, 2, 7}, {2, 3, 1}, {3, 4, 4}, {4, 5, 10}}));
  EXPECT_EQ(paged.sequences[3].blocks, blocks + 2);
  std::vector<std::array<int64_t, 3>> adapted;
  for (const RowAdapters::Run& r : narrow.lora->runs) adapted.push_back({r.set, r.begin, r.count});
  EXPECT_EQ(adapted, (std::vector<std::array<int64_t, 3>>{{0, 0, 1}, {1, 1, 2}, {0, 4, 1}}));

  TestRank rank(cpu_kernels());
  const Tensor x = rank.context.empty(DType::f32, {8, 2});
  for (int i = 0; i < 16; ++i) x.data<float>()[i] = float(i);
  const Tensor y = wanted.of({x, &rank.context}).value;
  ASSERT_EQ(y.shape(), Shape({5, 2}));
  EXPECT_EQ(std::vector(y.data<float>(), y.data<float>() + 10),
            (std::vector<float>{2, 3, 4, 5, 6, 7, 12, 13, 14, 15}));
}

// No rows are chosen, yet the pass is made: its keys are there afterwards.
TEST(RowsOfAPassTest, MayBeNone) {
  on_ranks(paged_config(kModels[0]), {.pp = 2}, cpu_kernels(), DType::f32, initial_values(5),
           [&](ForwardModel& model) {
             const std::vector<int32_t> ids{3, 1, 4};
             const WholePass whole(ids);
             EXPECT_FALSE(model.logits(whole.pass, std::span<const int32_t>()));
             EXPECT_EQ(bool(model.logits(whole.pass, 0, 3)), model.has_result());
           });
}

TEST(DriverTest, IsTheOneRankThatSaysSo) {
  for (const MeshShape& mesh : {MeshShape{}, MeshShape{.pp = 2, .tp = 2}, MeshShape{.pp = 2, .shard = 2}}) {
    std::atomic<int> drivers = 0;
    on_ranks(paged_config(kModels[0]), mesh, cpu_kernels(), DType::f32, initial_values(5), [&](ForwardModel& model) {
      const bool speaks = model.has_result() && model.mesh().place().tp == 0 && model.mesh().data_rank() == 0;
      EXPECT_EQ(model.is_driver(), speaks);
      if (speaks) ++drivers;
      if (speaks) EXPECT_EQ(model.mesh().world().rank(), model.driver());
    });
    EXPECT_EQ(drivers, 1);
  }
}

}  // namespace
}  // namespace weft
