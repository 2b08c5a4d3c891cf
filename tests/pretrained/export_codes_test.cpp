// What is written as codes is read as the blocks that the same weights are rounded to, whatever the family.
#include "weft/pretrained/export_codes.h"

#include <cmath>
#include <limits>

#include "pretrained/golden_models.h"
#include "pretrained/sample_gguf.h"
#include "pretrained/source_values.h"
#include "weft/pretrained/export.h"
#include "weft/pretrained/held_blocks.h"

namespace weft {
namespace {

struct Case {
  const char* name;
  BlockType type;
  bool has_experts;
  int64_t ffn;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class ExportCodesTest : public testing::TestWithParam<Case> {
 protected:
  GgufCase sample() const {
    GgufCase c{"llama", GgmlType::f32, GetParam().has_experts, false};
    c.ffn = c.expert_ffn = GetParam().ffn;
    return c;
  }
  const TemporaryFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(
    Types, ExportCodesTest,
    testing::Values(Case{"Int8", BlockType::int8, false, 96}, Case{"Fp8", BlockType::fp8, false, 96},
                    Case{"Nf4", BlockType::nf4, false, 128}, Case{"Int8Experts", BlockType::int8, true, 96},
                    Case{"Fp8Experts", BlockType::fp8, true, 160}, Case{"Nf4Experts", BlockType::nf4, true, 64}),
    [](const auto& test) { return test.param.name; });

TEST_P(ExportCodesTest, AreTheBlocksOfWeightsThatAreRoundedWhenRead) {
  write_gguf(sample(), folder_ / "model.gguf");
  const auto source = open_model(folder_ / "model.gguf");
  export_hugging_face(*source, folder_ / "codes", {.codes = GetParam().type});
  const auto written = open_model(folder_ / "codes");
  TestRank rank(cpu_kernels());
  Decoder rounded(source->config()), stored(source->config());
  hold_blocks(rank.context, *source, rounded.params(), {.others = GetParam().type});
  hold_blocks(rank.context, *written, stored.params(), {.as_stored = true});
  const std::vector<Param*> wants = rounded.params(), gots = stored.params();
  for (size_t i = 0; i < wants.size(); ++i) {
    const BlockMatrix &want = wants[i]->blocks(), &got = gots[i]->blocks();
    ASSERT_EQ(bool(got), bool(want) && wants[i]->name != "head.weight") << wants[i]->name;
    if (!got) continue;
    ASSERT_EQ(got.type, GetParam().type);
    ASSERT_EQ(got.blocks.shape(), want.blocks.shape()) << wants[i]->name;
    EXPECT_EQ(std::memcmp(got.blocks.raw(), want.blocks.raw(), want.blocks.bytes()), 0) << wants[i]->name;
  }
  for (const ParamNames& names : source->names())
    if (!written->blocks_of(names.param))
      EXPECT_EQ(values_of(*written, names), values_of(*source, names)) << names.param;
}

TEST_P(ExportCodesTest, RefuseWhatIsNoNumber) {
  write_gguf(sample(), folder_ / "model.gguf");
  const auto source = open_model(folder_ / "model.gguf");
  const HfText text = write_hf_config(source->config());
  const std::vector<ParamNames> names = names_of(*text.family, source->config());
  const std::vector<AssembledTensor> tensors = assemble(names);
  CodedWeights codes(GetParam().type, source->config(), tensors);
  size_t num_coded = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!codes.has(i)) continue;
    ++num_coded;
    std::vector<float> values(size_t(tensors[i].numel()));
    values.back() = std::numeric_limits<float>::infinity();
    EXPECT_THROW(codes.encode(i, values, [](Bytes) {}), Error) << tensors[i].name;
  }
  EXPECT_GE(num_coded, 14);
}

// Rows of 96 are no blocks of 64: these go on across rows, as bitsandbytes has them.
// Codes become floats and codes of the same numbers again.
TEST(ExportCodesOfStacksTest, HoldWhatTheyHeld) {
  const TemporaryFolder folder;
  const auto source = open_model(WEFT_SOURCE_DIR "/tests/pretrained/golden_quantized/gpt_oss_mxfp4");
  export_hugging_face(*source, folder / "floats");
  const auto floats = open_model(folder / "floats");
  export_hugging_face(*floats, folder / "codes", {.codes = BlockType::mxfp4});
  const auto codes = open_model(folder / "codes");
  int num_coded = 0;
  for (const ParamNames& names : codes->names()) {
    EXPECT_EQ(values_of(*codes, names), values_of(*source, names)) << names.param;
    if (const auto blocks = codes->blocks_of(names.param)) num_coded += blocks->type == BlockType::mxfp4;
  }
  EXPECT_EQ(num_coded, 6) << "gates, ups and downs of two layers";
}

TEST(ExportCodesOfStacksTest, RefuseWhatHasNoBlocks) {
  const TemporaryFolder folder;
  for (const char* model : {"llama", "gpt_oss"}) {  // the second has rows of 16
    const GoldenModel golden(model);
    const auto source = open_model(golden.path());
    EXPECT_THROW(export_hugging_face(*source, folder / model, {.codes = BlockType::mxfp4}), Error) << model;
  }
}

TEST(ExportCodesOfNeighboursTest, AreNearWhatTheyStandFor) {
  const TemporaryFolder folder;
  write_gguf({"llama", GgmlType::f32, false, true}, folder / "model.gguf");
  const auto source = open_model(folder / "model.gguf");
  export_hugging_face(*source, folder / "codes", {.codes = BlockType::nf4});
  const auto written = open_model(folder / "codes");
  const auto down = std::ranges::find(source->names(), "layers.1.mlp.down.weight", &ParamNames::param);
  const std::vector<float> want = values_of(*source, *down), got = values_of(*written, *down);
  for (size_t begin = 0; begin < want.size(); begin += 64) {
    float largest = 0, worst = 0;
    for (size_t i = begin; i < begin + 64; ++i) {
      largest = std::max(largest, std::abs(want[i]));
      worst = std::max(worst, std::abs(got[i] - want[i]));
    }
    EXPECT_GT(worst, 0) << begin;
    EXPECT_LE(worst, 0.1521f * largest) << begin;  // half of the widest gap of the table, 1 to 0.696
  }
}

class ExportCodesOfFamilyTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, ExportCodesOfFamilyTest, testing::ValuesIn(GoldenModel::all()),
                         [](const auto& test) { return test.param; });

TEST_P(ExportCodesOfFamilyTest, AreReadAsNearTheWeights) {
  const GoldenModel golden(GetParam());
  const TemporaryFolder folder;
  const auto source = open_model(golden.path());
  const std::string to = folder / "codes";
  if (GetParam() == "gpt2" || GetParam() == "gpt2_scores") {
    EXPECT_THROW(export_hugging_face(*source, to, {.codes = BlockType::int8}), Error) << "[inputs, outputs]";
    return;
  }
  export_hugging_face(*source, to, {.codes = BlockType::int8});
  const auto written = open_model(to);
  EXPECT_EQ(written->config(), source->config());
  int num_rounded = 0;
  for (const ParamNames& names : source->names()) {
    const std::vector<float> want = values_of(*source, names), got = values_of(*written, names);
    float worst = 0;
    for (size_t i = 0; i < want.size(); ++i) worst = std::max(worst, std::abs(got[i] - want[i]));
    EXPECT_LE(worst, 0.5f / 254) << names.param;  // weights are of [-1/2, 1/2)
    num_rounded += worst > 0;
  }
  EXPECT_GE(num_rounded, 4);
}

}  // namespace
}  // namespace weft
