// Files that the makers of quantised checkpoints wrote, as golden_quantized/README.md says: the numbers that they
// decode them to, transformers' logits, and damage.
#include <atomic>

#include "base/temporary_folder.h"
#include "pretrained/sample_packed.h"
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
          {"ct_mxfp4", BlockType::mxfp4},
          {"ct_nvfp4_mixed", BlockType::fp8, 4},
          {"ct_w4a16_experts", BlockType::w4_g32, 6},
          {"ct_w4a16_asym", BlockType::w4_g32, 6},
          {"ct_w8a8_asym", {}},
          {"fp8_ue8m0", {}},
          {"gpt_oss_mxfp4", BlockType::mxfp4, 6},
          {"gptq_3", BlockType::w4_g32, 6},
          {"gptq_8", BlockType::q8_0},
          {"gptq_desc_act_asym", BlockType::w4_g128, 1},
          {"gptq_dynamic", BlockType::q8_0, 3},
          {"modelopt_nvfp4_kv", {}}};
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
  for (const MeshShape& mesh : {MeshShape{}, MeshShape{.tp = 2}}) {
    std::atomic<int> num_in_blocks{0};
    std::atomic<bool> rounds_activations{false};
    const Logits got = logits_of(*source, expected.ids, {.as_stored = true}, mesh, [&](TestRank&, ForwardModel& m) {
      for (const Param* p : m.part().params()) {
        if (!p->blocks()) continue;
        num_in_blocks += p->blocks().type == held;
        if (p->blocks().type != BlockType::fp8 && p->blocks().type != BlockType::nf4) rounds_activations = true;
      }
    });
    EXPECT_EQ(num_in_blocks, held ? num_held * mesh.tp : 0) << name_of_mesh(mesh);
    // The most that rounding of activations to 8 bits moves a logit of so narrow a model.
    EXPECT_LE(worst_difference(got, expected.logits), (rounds_activations ? 0.1 : 1e-5) * size) << name_of_mesh(mesh);
  }
}

// Earlier versions of compressed-tensors wrote an order of inputs: one in which the two groups of a weight
// change places is the same as scales and zeros that do.
TEST(QuantizedWordsTest, InputsAreOfTheGroupsThatTheirOrderNames) {
  const std::string base = "model.layers.0.self_attn.q_proj.";
  const std::string golden = fmt::format("{}/tests/pretrained/golden_quantized/ct_w4a16_asym", WEFT_SOURCE_DIR);
  const auto files = open_safetensors(golden);
  const TemporaryFolder folder;
  const auto write = [&](const char* name, const std::function<void(std::vector<RawTensor>&)>& change) {
    std::vector<RawTensor> tensors;
    for (const StoredInfo& info : files->all()) {
      const Bytes bytes = *files->bytes(info);
      tensors.push_back({info.name, info.dtype_name, info.dims, {bytes.begin(), bytes.end()}});
    }
    change(tensors);
    std::filesystem::create_directories(folder / name);
    std::filesystem::copy(golden + "/config.json", folder / name);
    write_raw_safetensors(folder / name + "/model.safetensors", tensors);
    return open_model(folder / name);
  };
  const auto by_order = write("by_order", [&](std::vector<RawTensor>& tensors) {
    std::vector<int32_t> order(64, 1);
    std::fill(order.begin() + 32, order.end(), 0);
    tensors.push_back(raw(base + "weight_g_idx", "I32", {64}, order));
  });
  const auto by_groups = write("by_groups", [&](std::vector<RawTensor>& tensors) {
    for (RawTensor& t : tensors) {
      if (t.name != base + "weight_scale" && t.name != base + "weight_zero_point") continue;
      ASSERT_EQ(t.dims[1], 2) << t.name;
      const size_t size = t.bytes.size() / size_t(t.dims[0]) / 2;
      for (size_t at = 0; at < t.bytes.size(); at += 2 * size)
        std::swap_ranges(&t.bytes[at], &t.bytes[at] + size, &t.bytes[at] + size);
    }
  });
  const auto values = [&](const ModelSource& source) {
    const StoredInfo& info = *source.tensors().find(base + "weight");
    EXPECT_FALSE(info.dims.empty());
    std::vector<float> all(size_t(info.numel()));
    source.tensors().read(info, 0, 1, all);
    return all;
  };
  EXPECT_EQ(values(*by_order), values(*by_groups));
  EXPECT_NE(values(*by_order), values(*open_model(golden)));
  EXPECT_FALSE(by_order->tensors().blocks(*by_order->tensors().find(base + "weight")));
  EXPECT_TRUE(by_groups->tensors().blocks(*by_groups->tensors().find(base + "weight")));
}

// Its versions before 0.29 wrote hf_quant_config.json alone.
TEST(ModelOptTest, IsReadByTheFileThatItWritesBesideTheConfiguration) {
  const std::string golden = fmt::format("{}/tests/pretrained/golden_quantized/modelopt_nvfp4_kv", WEFT_SOURCE_DIR);
  const TemporaryFolder folder;
  std::filesystem::copy(golden + "/model.safetensors", folder.path());
  nlohmann::json config = nlohmann::json::parse(std::ifstream(golden + "/config.json"));
  config.erase("quantization_config");
  std::ofstream(folder / "config.json") << config;
  EXPECT_THROW(open_model(folder.path()), Error);
  std::ofstream(folder / "hf_quant_config.json")
      << R"({"producer": {"name": "modelopt", "version": "0.23.0"}, "quantization": {"quant_algo": "NVFP4",)"
      << R"( "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": ["lm_head"]}})";
  const auto source = open_model(folder.path()), want = open_model(golden);
  for (const ParamNames& names : want->names()) {
    std::vector<float> a(size_t(names.shape.numel())), b(a.size());
    source->read(names.param, 0, a), want->read(names.param, 0, b);
    EXPECT_EQ(a, b) << names.param;
  }
}

struct WordsRefusal {
  const char* what;  // that the message must have
  const char* folder;
  const char* tensor;
  std::function<void(RawTensor&)> change;
};

TEST(QuantizedWordsTest, WhatIsWrongIsRefused) {
  const auto rename = [](RawTensor& t) { t.name += "_other"; };
  const auto turn = [](RawTensor& t) { std::swap(t.dims.front(), t.dims.back()); };
  const auto set = [](size_t at, auto value) {
    return [=](RawTensor& t) { std::memcpy(&t.bytes.at(at), &value, sizeof(value)); };
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const WordsRefusal table[] = {
      {"has no tensor", "ct_w4a16_asym", "weight_shape", rename},
      {"does not have the rows", "ct_w4a16_asym", "weight_shape", set(0, int64_t(-64))},
      {"fewer than 32 columns", "ct_w4a16_asym", "weight_shape", set(8, int64_t(8))},
      {"has not the words", "ct_w4a16_asym", "weight_shape", set(8, int64_t(1) << 20)},
      {"has no weight_scale", "ct_w4a16_asym", "weight_scale", rename},
      {"scales of another shape", "ct_w4a16_asym", "weight_scale", turn},
      {"weight_zero_point", "ct_w4a16_asym", "weight_zero_point", turn},
      {"has no weight_zero_point", "ct_w4a16_asym", "weight_zero_point", rename},
      {"has no weight_zero_point", "ct_w8a8_asym", "weight_zero_point", rename},
      {"zeros of another shape", "ct_w8a8_asym", "weight_zero_point", [](RawTensor& t) { t.dtype = "U8"; }},
      {"has neither quant_state", "bnb_nf4_double", "weight.quant_state.bitsandbytes__nf4", rename},
      {"bitsandbytes__nf4, line", "bnb_nf4_double", "weight.quant_state.bitsandbytes__nf4", set(0, 'x')},
      {"absmax", "bnb_nf4_double", "weight.absmax", [](RawTensor& t) { t.dtype = "I8"; }},
      {"quant_map", "bnb_nf4_double", "weight.quant_map", rename},
      {"no finite number", "bnb_nf4_double", "weight.nested_quant_map", set(40, nan)},
      {"no finite number", "bnb_nf4_double", "weight.nested_absmax", set(0, nan)},
      {"has not the 2048 bytes", "bnb_nf4_double", "weight",
       [](RawTensor& t) { t.dims[0] /= 2, t.bytes.resize(t.bytes.size() / 2); }},
      {"no finite number", "bnb_int8", "SCB", set(4, nan)},
      {"no finite number", "fp8_ue8m0", "weight_scale_inv", set(0, uint8_t(255))},
      {"other shapes", "gptq_dynamic", "qzeros", turn},
  };
  for (const WordsRefusal& r : table) {
    const std::string golden = fmt::format("{}/tests/pretrained/golden_quantized/{}", WEFT_SOURCE_DIR, r.folder);
    const auto files = open_safetensors(golden);
    std::vector<RawTensor> tensors;
    int num_changed = 0;
    for (const StoredInfo& info : files->all()) {
      const Bytes bytes = *files->bytes(info);
      tensors.push_back({info.name, info.dtype_name, info.dims, {bytes.begin(), bytes.end()}});
      if (info.name == fmt::format("model.layers.0.self_attn.q_proj.{}", r.tensor))
        r.change(tensors.back()), ++num_changed;
    }
    EXPECT_EQ(num_changed, 1) << r.tensor;
    const TemporaryFolder folder;
    std::filesystem::copy(golden + "/config.json", folder.path());
    write_raw_safetensors(folder / "model.safetensors", tensors);
    std::string message;
    try {
      open_model(folder.path());
    } catch (const Error& e) {
      message = e.what();
    }
    EXPECT_NE(message.find(r.what), std::string::npos) << r.folder << ", " << r.what << ": " << message;
  }
}

// A byte of the header, or of what stands beside it, is another: what opens can be read and held.
TEST_P(QuantizedFilesTest, DamagedAreReadOrRefused) {
  const TemporaryFolder copy;
  std::filesystem::copy(folder, copy.path(), std::filesystem::copy_options::recursive);
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
    ++(can_be_read(copy.path()) ? num_read : num_refused);
  }
  EXPECT_GT(num_read, 10);
  EXPECT_GT(num_refused, 10);
}

}  // namespace
}  // namespace weft
