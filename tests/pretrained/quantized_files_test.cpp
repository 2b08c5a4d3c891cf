// Files that the makers of quantised checkpoints wrote, as golden_quantized/README.md says: the numbers that they
// decode them to, transformers' logits, and damage.
#include <atomic>

#include "base/temporary_folder.h"
#include "pretrained/model_on_ranks.h"
#include "weft/pretrained/stored_tensors.h"

namespace weft {
namespace {

struct QuantizedFile {
  const char* name;
  std::optional<BlockType> held;  // of most weights; none: they are decoded
  int num_held = 7;               // the others are in blocks of another type, or decoded
};

std::vector<QuantizedFile> quantized_files() {
  return {{"awq_gemm", BlockType::w4_g32, 6},
          {"bnb_int8", BlockType::int8},
          {"bnb_nf4_double", BlockType::nf4, 6},
          {"ct_fp8_kv", BlockType::fp8},
          {"ct_mixed", BlockType::fp8, 4},
          {"ct_w4a16_experts", BlockType::w4_g32, 6},
          {"ct_w4a16_asym", BlockType::w4_g32, 6},
          {"ct_w8a8_asym", {}},
          {"fp8_ue8m0", {}},
          {"gptq_3", BlockType::w4_g32, 6},
          {"gptq_8", BlockType::q8_0},
          {"gptq_desc_act_asym", {}},
          {"gptq_dynamic", BlockType::q8_0, 3}};
}

struct ExpectedOfTool {
  explicit ExpectedOfTool(const std::string& folder) : files(open_safetensors(folder + "/expected.safetensors")) {
    for (const int64_t id : integers("ids")) ids.push_back(int32_t(id));
    stride = integers("stride")[0];
    const StoredInfo& info = *files->find("logits");
    std::vector<float> values(size_t(info.numel()));
    files->read(info, 0, 1, values);
    for (size_t at = 0; at < values.size(); at += size_t(info.dims[1]))
      logits.emplace_back(values.begin() + int64_t(at), values.begin() + int64_t(at) + info.dims[1]);
  }
  std::vector<int64_t> integers(const char* name) const {
    const Bytes bytes = *files->bytes(*files->find(name));
    std::vector<int64_t> values;
    for (size_t at = 0; at < bytes.size(); at += 4) values.push_back(load_le<int32_t>(bytes.data() + at));
    return values;
  }

  std::unique_ptr<StoredTensors> files;
  std::vector<int32_t> ids;
  int64_t stride = 0;
  Logits logits;
};

class QuantizedFilesTest : public testing::TestWithParam<QuantizedFile> {
 protected:
  const std::string folder = fmt::format("{}/tests/pretrained/golden_quantized/{}", WEFT_SOURCE_DIR, GetParam().name);
};
INSTANTIATE_TEST_SUITE_P(Tools, QuantizedFilesTest, testing::ValuesIn(quantized_files()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(QuantizedFilesTest, AreReadAsTheirToolsDecodeThem) {
  constexpr std::string_view kPrefix = "every.";
  const ExpectedOfTool expected(folder);
  const auto source = open_model(folder);
  int num_weights = 0;
  for (const StoredInfo& sample : expected.files->all()) {
    if (!sample.name.starts_with(kPrefix)) continue;
    const StoredInfo* const weight = source->tensors().find(sample.name.substr(kPrefix.size()));
    ASSERT_TRUE(weight) << sample.name;
    std::vector<float> want(size_t(sample.numel())), is(want.size());
    ASSERT_EQ((weight->numel() + expected.stride - 1) / expected.stride, sample.numel());
    expected.files->read(sample, 0, 1, want);
    source->tensors().read(*weight, 0, expected.stride, is);
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(double(is[i]), double(want[i]), 2e-7 * std::abs(double(want[i])))
          << sample.name << ", sample " << i;
    ++num_weights;
  }
  EXPECT_GE(num_weights, 4);
}

TEST_P(QuantizedFilesTest, GiveTransformersLogits) {
  const ExpectedOfTool expected(folder);
  const auto source = open_model(folder);
  const double size = largest(expected.logits);
  EXPECT_LE(worst_difference(logits_of(*source, expected.ids, {}, {}), expected.logits), 1e-5 * size);
  const auto& [name, held, num_held] = GetParam();
  // The most that rounding of activations to 8 bits moves a logit of so narrow a model.
  const double tolerance = held && held != BlockType::fp8 && held != BlockType::nf4 ? 0.1 : 1e-5;
  for (const MeshShape& mesh : {MeshShape{}, MeshShape{.tp = 2}}) {
    std::atomic<int> num_in_blocks{0};
    const Logits got = logits_of(*source, expected.ids, {.as_stored = true}, mesh, [&](TestRank&, ForwardModel& m) {
      for (const Param* p : m.part().params()) num_in_blocks += p->blocks() && p->blocks().type == held;
    });
    EXPECT_EQ(num_in_blocks, held ? num_held * mesh.tp : 0) << name_of_mesh(mesh);
    EXPECT_LE(worst_difference(got, expected.logits), tolerance * size) << name_of_mesh(mesh);
  }
}

// A byte of the header, or of what stands beside it, is another: what opens can be read and held.
TEST_P(QuantizedFilesTest, DamagedAreReadOrRefused) {
  const TemporaryFolder copy;
  std::filesystem::copy(folder, copy.path(), std::filesystem::copy_options::overwrite_existing);
  const std::string path = copy / "model.safetensors";
  std::ifstream in(path, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  const size_t end_of_header = 8 + size_t(load_le<uint64_t>(reinterpret_cast<const std::byte*>(whole.data())));
  int num_read = 0, num_refused = 0;
  for (uint64_t round = 0; round < 60; ++round) {
    std::string text = whole;
    const auto random = philox(13, round);
    const size_t begin = round % 2 == 0 ? 8 : end_of_header, end = round % 2 == 0 ? end_of_header : text.size();
    char& byte = text[begin + random[0] % (end - begin)];
    byte = std::isdigit(uint8_t(byte)) ? char('0' + random[1] % 10) : char(random[1]);
    std::ofstream(path, std::ios::binary) << text;
    try {
      const auto source = open_model(copy.path());
      for (const ParamNames& names : source->names()) {
        std::vector<float> row(size_t(names.num_cols()));
        source->read(names.param, names.shape.numel() - names.num_cols(), row);
        const auto blocks = source->blocks_of(names.param);
        if (!blocks) continue;
        std::vector<std::byte> out(size_t(block_bytes(blocks->type)));
        blocks->tensors->copy_blocks(*blocks->stored.front().info, 0, 0, out);
      }
      ++num_read;
    } catch (const Error&) {
      ++num_refused;
    }
  }
  EXPECT_GT(num_read, 10);
  EXPECT_GT(num_refused, 10);
}

}  // namespace
}  // namespace weft
