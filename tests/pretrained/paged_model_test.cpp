// A model over a paged cache: the logits of a sequence are the same to the last bit however it is cut into steps,
// whatever sequences go with it and however its blocks lie; and near those over a cache of its own.
#include "pretrained/model_on_ranks.h"
#include "weft/autograd/ops/paged_cache.h"

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
constexpr PagedModel kModels[] = {
    {"llama", "llama", [](ModelConfig& c) { c.kv_heads = 2; }},
    {"llama_bf16", "llama", [](ModelConfig& c) { c.kv_heads = 2; }, {DType::bf16}, 0.015},
    {"llama_int8", "llama", [](ModelConfig& c) { c.kv_heads = 2; }, kInt8, 0.04},
    {"llama_fp8", "llama", [](ModelConfig& c) { c.kv_heads = 2; }, kFp8, 0.2},
    {"gpt2_int8", "gpt2", [](ModelConfig&) {}, kInt8, 0.04},
    {"gpt2", "gpt2", [](ModelConfig&) {}},
    {"moe", "llama", [](ModelConfig& c) { c.kv_heads = 2, c.experts = 5, c.expert_ffn = 24, c.shared_experts = 1; }},
    {"latent", "llama",
     [](ModelConfig& c) { c.kv_rank = 20, c.query_rank = 28, c.rotary_dim = 8, c.value_dim = 16; }},
    {"window_and_cap", "llama",
     [](ModelConfig& c) {
       c.kv_heads = 1, c.window = 10, c.global_every = 2, c.attention_softcap = 4, c.qk_norm = true;
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
        cache_(model.context(), int(model.config().layers), 3 * kContext, block_tokens, format),
        block_tokens_(int32_t(block_tokens)) {}

  // The logits of all rows, behind those of the sequences before.
  void step(const std::vector<Rows>& pieces) {
    std::vector<int32_t> ids, positions, places, chosen;
    std::vector<PagedSequence> sequences;
    std::vector<std::pair<int, size_t>> owners;
    for (const Rows& p : pieces) {
      const auto first = int32_t(ids.size());
      const std::vector<int32_t> all = tokens_of(p.sequence, p.end);
      for (int32_t i = p.begin; i < p.end; ++i) {
        ids.push_back(all[size_t(i)]), positions.push_back(i);
        places.push_back(block(p.sequence, i / block_tokens_) * block_tokens_ + i % block_tokens_);
        // Chosen from the last to the first.
        chosen.insert(chosen.begin(), int32_t(ids.size()) - 1);
        owners.insert(owners.begin(), {p.sequence, size_t(i)});
      }
      sequences.push_back({first, int32_t(ids.size()), p.end, blocks_[p.sequence].data()});
    }
    const PagedPlan plan{&cache_, sequences.data(), int(sequences.size()), places.data()};
    const Pass pass{.ids = ids.data(),
                    .num_tokens = int64_t(ids.size()),
                    .attention = {.positions = positions.data(), .paged = &plan}};
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
             if (!model.has_result()) return;
             ASSERT_EQ(whole.logits(0).size(), ids.size());
             double largest = 0, worst = 0;
             for (int64_t i = 0; i < logits.numel(); ++i) {
               const double here = double(whole.logits(0)[size_t(i / logits.dim(1))][size_t(i % logits.dim(1))]);
               largest = std::max(largest, std::abs(here));
               worst = std::max(worst, std::abs(here - double(logits.data<float>()[i])));
             }
             RecordProperty("largest_difference", fmt::format("{:.6f} of {:.3f}", worst, largest));
             EXPECT_LE(worst, GetParam().model.tolerance * largest);
             if (format != RowFormat()) EXPECT_GT(worst, 1e-4 * largest) << "no key was rounded";
             EXPECT_GT(largest, 0.1) << "logits that are all alike test nothing";
           });
}

std::vector<PagedCase> paged_cases() {
  std::vector<PagedCase> all;
  for (const PagedModel& model : kModels)
    for (const MeshShape& mesh : {MeshShape{}, MeshShape{.tp = 2}, MeshShape{.pp = 2}}) all.push_back({model, mesh});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, PagedModelTest, testing::ValuesIn(paged_cases()), [](const auto& test) {
  return fmt::format("{}_{}", test.param.model.name, name_of_mesh(test.param.mesh));
});

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

TEST(SpeakerTest, IsTheOneRankThatSaysSo) {
  for (const MeshShape& mesh : {MeshShape{}, MeshShape{.pp = 2, .tp = 2}, MeshShape{.pp = 2, .shard = 2}}) {
    std::atomic<int> speakers = 0;
    on_ranks(paged_config(kModels[0]), mesh, cpu_kernels(), DType::f32, initial_values(5), [&](ForwardModel& model) {
      const bool speaks = model.has_result() && model.mesh().place().tp == 0 && model.mesh().data_rank() == 0;
      EXPECT_EQ(model.is_speaker(), speaks);
      if (speaks) ++speakers;
      if (speaks) EXPECT_EQ(model.mesh().world().rank(), model.speaker());
    });
    EXPECT_EQ(speakers, 1);
  }
}

}  // namespace
}  // namespace weft
