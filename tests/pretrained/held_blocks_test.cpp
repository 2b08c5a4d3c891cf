// Weights held in blocks: logits near those of the same weights decoded, wherever a mesh cuts them; memory taken.
#include "weft/pretrained/held_blocks.h"

#include <atomic>
#include <mutex>
#include <set>

#include "base/temporary_folder.h"
#include "pretrained/held_values.h"
#include "pretrained/sample_gguf.h"
#include "weft/kernels/block_decode.h"

namespace weft {
namespace {

// The most that rounding of activations to 8 bits may move a logit, as a part of the largest.
constexpr double kTolerance = 0.02;

// With tp=2 the cut of `ffn` is inside of a block.
GgufCase case_of(const char* architecture, GgmlType type, bool is_tied, MeshShape mesh = {}) {
  const bool is_wide = info_of(type).block == 256;
  return {architecture, type, false, is_tied, mesh, is_wide ? 256 : 64, is_wide ? 256 : 96};
}
GgufCase experts_of(const char* architecture, GgmlType type, MeshShape mesh = {}) {
  GgufCase c = case_of(architecture, type, false, mesh);
  c.has_experts = true;
  if (c.ffn == 256) c.expert_ffn = 256;
  return c;
}

class HeldBlocksTest : public testing::TestWithParam<GgufCase> {
 protected:
  static std::unique_ptr<ModelSource> written(const std::string& path) {
    write_gguf(GetParam(), path);
    return open_model(path);
  }
  const TemporaryFolder folder;
  const std::unique_ptr<ModelSource> source = written(folder / "model.gguf");
};
const GgufCase kHeldCases[] = {
    case_of("llama", GgmlType::q8_0, false),
    case_of("llama", GgmlType::q4_0, true),
    case_of("qwen3", GgmlType::q6_k, true),
    case_of("qwen3", GgmlType::q8_0, false, {.tp = 2}),
    case_of("llama", GgmlType::q4_0, false, {.tp = 2}),
    case_of("llama", GgmlType::q4_k, true, {.tp = 2}),
    case_of("llama", GgmlType::q4_k, true, {.pp = 2}),
    case_of("llama", GgmlType::q6_k, false, {.pp = 2, .tp = 2}),
    case_of("qwen3", GgmlType::iq4_nl, true, {.tp = 2}),
    case_of("llama", GgmlType::iq4_xs, false, {.pp = 2}),
    experts_of("qwen3moe", GgmlType::iq4_xs, {.tp = 2}),
    case_of("llama", GgmlType::q5_k, false, {.tp = 2}),
    experts_of("qwen3moe", GgmlType::q5_k, {.tp = 2}),
    experts_of("llama", GgmlType::q8_0),
    experts_of("qwen3moe", GgmlType::q4_0, {.tp = 2}),
    experts_of("qwen3moe", GgmlType::q4_k, {.shard = 2, .ep = 2}),
    experts_of("llama", GgmlType::q6_k, {.pp = 2, .shard = 2, .ep = 2}),
    experts_of("qwen3moe", GgmlType::q8_0, {.shard = 2, .tp = 2, .ep = 2}),
    experts_of("qwen3moe", GgmlType::mxfp4, {.tp = 2}),
    case_of("llama", GgmlType::mxfp4, true),
};
INSTANTIATE_TEST_SUITE_P(Files, HeldBlocksTest, testing::ValuesIn(kHeldCases), [](const auto& test) {
  const GgufCase& c = test.param;
  return fmt::format("{}{}{}_{}_{}", c.architecture, c.is_tied ? "_tied" : "", c.has_experts ? "_experts" : "",
                     weft::name_of(c.type), name_of_mesh(c.mesh));
});

TEST_P(HeldBlocksTest, SayAboutWhatDecodedWeightsSay) {
  const GgufCase& c = GetParam();
  const Logits want = logits_on(
      config_of(c), {}, [&](ForwardModel& m) { fill_as_written(m, c.type); }, kSomeIds);
  std::atomic<int> num_held{0};
  const Logits got = logits_of(*source, kSomeIds, {.as_stored = true}, c.mesh, [&](TestRank& rank, ForwardModel& m) {
    int64_t bytes = 0;
    for (const Param* p : m.part().params()) {
      const bool is_held = p->shape.rank() > 1 && !p->name.ends_with("router.weight");
      EXPECT_EQ(p->is_only_blocks(), is_held) << p->name;
      EXPECT_EQ(bool(p->value), !is_held) << p->name;
      num_held += is_held;
      if (p->value) bytes += int64_t(p->value.bytes());
      if (!p->blocks()) continue;
      // What is cut between the blocks of a row or inside of experts, or in another order, is copied; the rest stays
      // in the file.
      const Placement& place = p->placement;
      const Tensor& blocks = p->blocks().blocks;
      const bool is_copied =
          blocks.dim(1) != place.whole[-1] / block_elements(p->blocks().type) * block_bytes(p->blocks().type) ||
          (place.shape.rank() == 3 && place.shape[1] != place.whole[1]) ||
          (c.architecture == "llama" && (p->name.find("query") + p->name.find("key") != 2 * std::string::npos));
      if (is_copied) bytes += int64_t(blocks.bytes());
      const Bytes file = source->blocks_of(p->name)->stored.at(0).bytes;
      const auto* const at = static_cast<const std::byte*>(blocks.raw());
      EXPECT_EQ(at >= file.data() && at + blocks.bytes() <= file.data() + file.size(), !is_copied) << p->name;
    }
    constexpr int64_t kOther = 160 << 10;  // rotary tables, logits and what the allocator rounds up
    EXPECT_LE(rank.allocator.stats().live_bytes, bytes + bytes / 8 + kOther);
  });
  EXPECT_GE(num_held, 14);
  const double difference = worst_difference(got, want);
  // The weights that a router gives move with its rounded input.
  EXPECT_LE(difference, (c.has_experts ? 1.5 : 1) * kTolerance * largest(want));
  EXPECT_GT(difference, 1e-5 * largest(want)) << "no activation was rounded: are blocks in use?";
  if (c.mesh.tp > 1) return;
  EXPECT_EQ(worst_difference(got, logits_of(*source, kSomeIds, {.as_stored = true}, {})), 0);
}

TEST_P(HeldBlocksTest, AreTheSameWhenCopiedOutOfTheMapping) {
  const GgufCase& c = GetParam();
  const BlockChoice copied{.as_stored = true, .copies_mapped = true};
  const Logits got = logits_of(*source, kSomeIds, copied, c.mesh, [&](TestRank& rank, ForwardModel& m) {
    int64_t bytes = 0;
    for (const Param* p : m.part().params()) {
      if (!p->blocks()) continue;
      const Tensor& blocks = p->blocks().blocks;
      bytes += int64_t(blocks.bytes());
      const Bytes file = source->blocks_of(p->name)->stored.at(0).bytes;
      const auto* const at = static_cast<const std::byte*>(blocks.raw());
      EXPECT_FALSE(at >= file.data() && at < file.data() + file.size()) << p->name;
    }
    EXPECT_GE(rank.allocator.stats().live_bytes, bytes);
    if (c.mesh.size() == 1) EXPECT_LE(bytes, mapped_block_bytes(*source, copied));
  });
  EXPECT_EQ(worst_difference(got, logits_of(*source, kSomeIds, {.as_stored = true}, c.mesh)), 0);
}

TEST(PackedWeightsTest, AreHeldOnce) {
  const TemporaryFolder folder;
  const std::string path = folder / "model.gguf";
  GgufCase c = case_of("llama", GgmlType::f32, false);
  c.ffn = 512;
  write_gguf(c, path);
  const auto source = open_model(path);
  const Logits got = logits_of(*source, kSomeIds, {}, {}, [&](TestRank& rank, ForwardModel& m) {
    int64_t bytes = 0;
    for (Param* p : m.part().params()) {
      EXPECT_EQ(bool(p->value), p->readers != Param::Readers::products) << p->name;
      bytes += int64_t(p->value ? p->value.bytes() : p->product_bytes(rank.context));
    }
    constexpr int64_t kOther = 160 << 10;
    EXPECT_LE(rank.allocator.stats().live_bytes, bytes + bytes / 8 + kOther);
    EXPECT_GT(bytes, 4 * kOther);
  });
  const Logits want = logits_on(
      config_of(c), {}, [&](ForwardModel& m) { fill_as_written(m, c.type); }, kSomeIds);
  EXPECT_EQ(worst_difference(got, want), 0);
}

std::string name_of_block(BlockType type) {
  for (const char* name : {"q8_0", "q4_0", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4", "fp8", "int8", "nf4"})
    if (block_type_named(name) == type) return name;
  return "?";
}

struct RoundCase {
  BlockType type;
  int64_t hidden, ffn;
  int64_t expert_ffn = 0;  // 0: no experts
};
class RoundedBlocksTest : public testing::TestWithParam<RoundCase> {};
INSTANTIATE_TEST_SUITE_P(
    Types, RoundedBlocksTest,
    testing::Values(RoundCase{BlockType::q8_0, 64, 96}, RoundCase{BlockType::q4_0, 64, 80},
                    RoundCase{BlockType::q4_k, 256, 256}, RoundCase{BlockType::q4_k, 64, 300},
                    RoundCase{BlockType::q5_k, 64, 300}, RoundCase{BlockType::iq4_xs, 64, 300},
                    RoundCase{BlockType::iq4_nl, 64, 80}, RoundCase{BlockType::q6_k, 64, 320},
                    RoundCase{BlockType::fp8, 64, 160}, RoundCase{BlockType::int8, 128, 300},
                    RoundCase{BlockType::nf4, 64, 192}, RoundCase{BlockType::mxfp4, 64, 96},
                    RoundCase{BlockType::mxfp4, 64, 96, 48}, RoundCase{BlockType::q8_0, 64, 96, 48},
                    RoundCase{BlockType::q4_k, 64, 96, 300}, RoundCase{BlockType::fp8, 64, 96, 160},
                    RoundCase{BlockType::int8, 64, 96, 52}, RoundCase{BlockType::nf4, 64, 96, 72}),
    [](const auto& test) {
      const RoundCase& c = test.param;
      return fmt::format("{}_{}_{}", name_of_block(c.type), c.hidden,
                         c.expert_ffn > 0 ? fmt::format("experts_{}", c.expert_ffn) : std::to_string(c.ffn));
    });

TEST_P(RoundedBlocksTest, OfAFloatModelAreThoseOfTheWholeOnEveryMesh) {
  const auto& [type, hidden, ffn, expert_ffn] = GetParam();
  const TemporaryFolder folder;
  const std::string path = folder / "model.gguf";
  const bool has_experts = expert_ffn > 0;
  write_gguf({has_experts ? "qwen3moe" : "qwen3", GgmlType::f32, has_experts, false, {}, hidden, ffn, expert_ffn},
             path);
  const auto source = open_model(path);
  const BlockChoice choice{.as_stored = true, .others = type};
  std::map<std::string, std::vector<float>> whole;  // decoded
  const Logits one = logits_of(*source, kSomeIds, choice, {}, [&](TestRank&, ForwardModel& m) {
    for (const Param* p : m.part().params()) {
      if (!p->blocks()) continue;
      EXPECT_EQ(p->blocks().has_row_scales, type == BlockType::fp8) << p->name;
      std::vector<float>& values = whole[p->name];
      values.resize(size_t(p->shape.numel()));
      for (int64_t r = 0; r < p->blocks().rows; ++r) decode_row(p->blocks(), r, values.data() + r * p->shape[-1]);
      const std::span<const float> exact = values_of(p->name, p->shape.numel());
      double error = 0, norm = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        const auto is = double(exact[i]);
        error += (double(values[i]) - is) * (double(values[i]) - is), norm += is * is;
      }
      EXPECT_LT(error, 0.015 * norm) << p->name;
    }
  });
  EXPECT_EQ(whole.size(), 15u);
  const MeshShape cut = has_experts ? MeshShape{.shard = 2, .tp = 2, .ep = 2} : MeshShape{.tp = 2};
  const Logits other = logits_of(*source, kSomeIds, choice, cut, [&](TestRank&, ForwardModel& m) {
    for (const Param* p : m.part().params()) {
      if (!p->blocks()) continue;
      const std::vector<float>& all = whole.at(p->name);
      std::vector<float> values(size_t(p->shape.numel()));
      for (int64_t r = 0; r < p->blocks().rows; ++r) decode_row(p->blocks(), r, values.data() + r * p->shape[-1]);
      p->placement.each_run(0, p->shape.numel(), [&](int64_t local, int64_t global, int64_t n) {
        ASSERT_EQ(std::memcmp(&values[size_t(local)], &all[size_t(global)], size_t(n) * 4), 0)
            << p->name << ", element " << local;
      });
    }
  });
  // Beside int8 a rank rounds its part of a row of activations with a scale of its own.
  const double tolerance = type == BlockType::int8 ? 0.04 : kTolerance;
  EXPECT_LE(worst_difference(one, other), tolerance * largest(one));
}

// Of types that no product reads.
class OtherBlocksTest : public testing::TestWithParam<GgmlType> {};
INSTANTIATE_TEST_SUITE_P(Types, OtherBlocksTest,
                         testing::Values(GgmlType::q2_k, GgmlType::q3_k, GgmlType::q4_1, GgmlType::q5_0,
                                         GgmlType::q5_1),
                         [](const auto& test) { return std::string(weft::name_of(test.param)); });

TEST_P(OtherBlocksTest, AreRoundedToEightBitsOrToWhatIsAskedFor) {
  const TemporaryFolder folder;
  write_gguf({"qwen3", GetParam(), false, false, {}, 256, 256}, folder / "model.gguf");
  const auto source = open_model(folder / "model.gguf");
  const auto types_of = [&](const BlockChoice& choice, const MeshShape& mesh) {
    std::mutex mutex;
    std::set<std::optional<BlockType>> types;  // none: decoded
    logits_of(*source, kSomeIds, choice, mesh, [&](TestRank&, ForwardModel& m) {
      const std::scoped_lock lock(mutex);
      for (const Param* p : m.part().params()) {
        if (!p->is_multiplied()) continue;
        types.insert(p->blocks() ? std::optional(p->blocks().type) : std::nullopt);
        if (!p->blocks() || p->blocks().type != BlockType::q8_0) continue;
        EXPECT_LT(HeldValues(*p, *source).error(), 4e-5) << p->name;
      }
    });
    return types;
  };
  using Types = std::set<std::optional<BlockType>>;
  EXPECT_EQ(types_of({.as_stored = true}, {}), Types{BlockType::q8_0});
  EXPECT_EQ(types_of({.as_stored = true}, {.tp = 2}), Types{BlockType::q8_0});
  EXPECT_EQ(types_of({.as_stored = true, .others = BlockType::q4_k}, {}), Types{BlockType::q4_k});
  EXPECT_EQ(types_of({}, {}), Types{std::nullopt});
}

TEST(BlockChoiceTest, SaysWhatItTakes) {
  EXPECT_TRUE(parse_block_choice("auto").as_stored);
  EXPECT_FALSE(parse_block_choice("none").as_stored);
  EXPECT_EQ(parse_block_choice("q4_k").others, BlockType::q4_k);
  EXPECT_EQ(parse_block_choice("fp8").others, BlockType::fp8);
  EXPECT_EQ(parse_block_choice("int8").others, BlockType::int8);
  EXPECT_EQ(parse_block_choice("nf4").others, BlockType::nf4);
  EXPECT_THROW(parse_block_choice("w4_g128"), UsageError);
  EXPECT_EQ(parse_block_choice("q5_k").others, BlockType::q5_k);
  EXPECT_THROW(parse_block_choice("q5_1"), UsageError);
}

}  // namespace
}  // namespace weft
