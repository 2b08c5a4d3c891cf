// Hugging Face models whose weights are codes (FP8, INT8, GPTQ, AWQ): the numbers that they stand for, logits near
// those of the same numbers in floats wherever a mesh cuts them, and what is refused.
#include <atomic>

#include "base/temporary_folder.h"
#include "pretrained/sample_packed.h"
#include "weft/pretrained/export.h"

namespace weft {
namespace {

using nlohmann::json;
using Dims = ScaledFormat::Dims;

json compressed(const char* format, json weights) {
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"ignore", {"lm_head"}},
          {"config_groups", {{"group_0", {{"weights", std::move(weights)}, {"targets", {"Linear"}}}}}}};
}
json gptq(int64_t group, const char* format = "gptq", bool acts = false) {
  return {{"quant_method", "gptq"},
          {"bits", 4},
          {"group_size", group},
          {"checkpoint_format", format},
          {"desc_act", acts}};
}
json awq(int64_t group, const char* version = "gemm") {
  return {{"quant_method", "awq"}, {"bits", 4}, {"group_size", group}, {"version", version}, {"zero_point", true}};
}
json planar(int bits) {
  json q = gptq(128, "gptq_p");
  q["bits"] = bits;
  return q;
}

const json kNvFloat4 = {
    {"num_bits", 4}, {"type", "float"}, {"strategy", "tensor_group"}, {"group_size", 16}, {"symmetric", true}};
const json kMxFloat4 = {{"num_bits", 4}, {"type", "float"}, {"strategy", "group"}, {"group_size", 32}};

struct PackedCase {
  const char* name;
  json quantization;
  Pack pack;
  std::optional<BlockType> held;  // none: decoded
  int experts = 0;
};

const std::vector<PackedCase>& packed_cases() {
  const json blocks = {{"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {128, 128}}};
  const json small = {{"quant_method", "fp8"}, {"weight_block_size", {64, 48}}};
  static const std::vector<PackedCase> all = {
      {"fp8_blocks", blocks, ScaledFormat{true, 128, 128, "weight_scale_inv"}, BlockType::fp8},
      {"fp8_small_blocks", small, ScaledFormat{true, 64, 48, "weight_scale_inv"}, {}},
      {"fp8_tensor",
       {{"quant_method", "fp8"}, {"activation_scheme", "static"}},
       ScaledFormat{.has_input_scale = true, .dims = Dims::scalar},
       BlockType::fp8},
      {"fbgemm",
       {{"quant_method", "fbgemm_fp8"}, {"activation_scale_ub", 1200.0}},
       ScaledFormat{.block_rows = 1, .dims = Dims::column},
       BlockType::fp8},
      {"compressed_fp8",
       compressed("float-quantized",
                  {{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}, {"symmetric", true}}),
       ScaledFormat{.block_rows = 1, .scale_dtype = "BF16", .dims = Dims::vector}, BlockType::fp8},
      {"compressed_int8",
       compressed("int-quantized", {{"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}, {"symmetric", true}}),
       ScaledFormat{.is_float = false, .block_rows = 1, .scale_dtype = "F16", .dims = Dims::column}, BlockType::int8},
      {"compressed_int8_tensor", compressed("int-quantized", {{"num_bits", 8}, {"strategy", "tensor"}}),
       ScaledFormat{.is_float = false, .dims = Dims::scalar}, BlockType::int8},
      {"compressed_int8_groups",
       compressed("int-quantized", {{"num_bits", 8}, {"strategy", "group"}, {"group_size", 64}}),
       ScaledFormat{.is_float = false, .block_rows = 1, .block_cols = 64},
       {}},
      {"gptq_128", gptq(128), GroupedFormat{}, BlockType::w4_g128},
      {"gptq_64", gptq(64), GroupedFormat{.group = 64, .has_order = true}, BlockType::w4_g32},
      {"gptq_32_bf16", gptq(32), GroupedFormat{.group = 32, .scale_dtype = "BF16"}, BlockType::w4_g32},
      {"gptq_all", gptq(-1), GroupedFormat{.group = -1}, BlockType::w4_g128},
      {"gptq_v2", gptq(128, "gptq_v2"), GroupedFormat{.zeros_less_one = false}, BlockType::w4_g128},
      {"auto_round",
       {{"quant_method", "auto-round"}, {"packing_format", "auto_round:auto_gptq"}, {"bits", 4}, {"group_size", 128}},
       GroupedFormat{},
       BlockType::w4_g128},
      {"auto_round_awq",
       {{"quant_method", "auto-round"}, {"packing_format", "auto_round:auto_awq"}, {"bits", 4}, {"group_size", 128}},
       GroupedFormat{.is_awq = true, .zeros_less_one = false},
       BlockType::w4_g128},
      {"gptq_acts", gptq(64, "gptq", true), GroupedFormat{.group = 64, .acts_in_order = true}, {}},
      {"awq_128", awq(128), GroupedFormat{.is_awq = true, .zeros_less_one = false}, BlockType::w4_g128},
      {"awq_32", awq(32), GroupedFormat{.is_awq = true, .group = 32, .zeros_less_one = false}, BlockType::w4_g32},
      {"awq_gemv", awq(128, "gemv"), GroupedFormat{.is_awq = true, .is_gemv = true}, BlockType::w4_g128},
      {"awq_gemv_32", awq(32, "gemv"), GroupedFormat{.is_awq = true, .group = 32, .is_gemv = true},
       BlockType::w4_g32},
      {"gptq_p_3", planar(3), PlanarFormat{.bits = 3}, BlockType::w4_g128},
      {"gptq_p_4", planar(4), PlanarFormat{.bits = 4}, BlockType::w4_g128},
      {"gptq_p_5", planar(5), PlanarFormat{.bits = 5}, BlockType::q8_0},
      {"gptq_p_6", planar(6), PlanarFormat{.bits = 6}, BlockType::q8_0},
      {"gptq_p_7", planar(7), PlanarFormat{.bits = 7}, BlockType::q8_0},
      {"nvfp4", compressed("nvfp4-pack-quantized", kNvFloat4), Float4Format{}, {}},
      {"nvfp4_experts", compressed("nvfp4-pack-quantized", kNvFloat4), Float4Format{}, {}, 2},
      {"mxfp4", compressed("mxfp4-pack-quantized", kMxFloat4), Float4Format{.has_powers_of_two = true},
       BlockType::mxfp4},
      {"mxfp4_of_large_powers", compressed("mxfp4-pack-quantized", kMxFloat4),
       Float4Format{.has_powers_of_two = true, .spread = 40}, BlockType::mxfp4},
      {"mxfp4_experts", compressed("mxfp4-pack-quantized", kMxFloat4), Float4Format{.has_powers_of_two = true},
       BlockType::mxfp4, 2},
      {"modelopt_nvfp4",
       {{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}},
       Float4Format{.is_modelopt = true},
       {}},
      {"modelopt_mxfp4",
       {{"quant_method", "modelopt"}, {"quant_algo", "W4A8_MXFP4_FP8"}},
       Float4Format{.is_modelopt = true, .has_powers_of_two = true},
       BlockType::mxfp4},
      {"modelopt_fp8",
       {{"quant_method", "modelopt"}, {"quant_algo", "FP8"}},
       ScaledFormat{.has_input_scale = true, .dims = Dims::scalar},
       BlockType::fp8},
      {"fp8_blocks_of_experts", blocks, ScaledFormat{true, 128, 128, "weight_scale_inv"}, BlockType::fp8, 3},
      {"fp8_experts_of_small_blocks", small, ScaledFormat{true, 64, 48, "weight_scale_inv"}, {}, 2},
      {"int8_experts", compressed("int-quantized", {{"num_bits", 8}, {"strategy", "tensor"}}),
       ScaledFormat{.is_float = false, .dims = Dims::scalar}, BlockType::int8, 2},
      {"awq_experts", awq(128), GroupedFormat{.is_awq = true, .zeros_less_one = false}, BlockType::w4_g128, 4},
  };
  return all;
}

// Folders of both forms, opened.
struct Opened {
  explicit Opened(const PackedModel& model) {
    model.write(folder / "packed", true), model.write(folder / "plain", false);
    packed = open_model(folder / "packed"), plain = open_model(folder / "plain");
  }
  TemporaryFolder folder;
  std::unique_ptr<ModelSource> packed, plain;
};

void expect_same_numbers(const ModelSource& is, const ModelSource& want) {
  for (const ParamNames& names : want.names()) {
    const auto size = size_t(names.shape.numel());
    std::vector<float> a(size), b(size);
    is.read(names.param, 0, a), want.read(names.param, 0, b);
    for (size_t i = 0; i < size; ++i)
      ASSERT_NEAR(double(a[i]), double(b[i]), 1e-7 * std::abs(double(b[i]))) << names.param << ", element " << i;
  }
}

class WeightsOfCodesTest : public testing::TestWithParam<size_t> {
 protected:
  const PackedCase& c = packed_cases()[GetParam()];
  const PackedModel model{c.quantization, c.pack, c.experts};
};
INSTANTIATE_TEST_SUITE_P(Formats, WeightsOfCodesTest, testing::Range(size_t(0), packed_cases().size()),
                         [](const auto& test) { return std::string(packed_cases()[test.param].name); });

TEST_P(WeightsOfCodesTest, AreReadAsTheNumbersThatTheyStandFor) {
  const Opened opened(model);
  EXPECT_EQ(opened.packed->tensors().all().size(), opened.plain->tensors().all().size());
  expect_same_numbers(*opened.packed, *opened.plain);
}

// The most that rounding of activations to 8 bits moves a logit, as a part of the largest; floats are not rounded.
double tolerance_of(std::optional<BlockType> held) { return held && held != BlockType::fp8 ? 0.03 : 1e-5; }

TEST_P(WeightsOfCodesTest, SayAboutWhatFloatsSay) {
  const Opened opened(model);
  const Logits want = logits_of(*opened.plain, kSomeIds, {}, {});
  const double size = largest(want);
  EXPECT_LE(worst_difference(logits_of(*opened.packed, kSomeIds, {}, {}), want), 1e-5 * size) << "decoded";
  for (const MeshShape& mesh :
       {MeshShape{}, MeshShape{.tp = 2}, MeshShape{.pp = 2}, MeshShape{.shard = 2, .ep = 2}}) {
    if (mesh.ep > c.experts) continue;
    std::atomic<int> num_held{0};
    const Logits got =
        logits_of(*opened.packed, kSomeIds, {.as_stored = true}, mesh, [&](TestRank&, ForwardModel& m) {
          for (const Param* p : m.part().params()) {
            num_held += bool(p->blocks());
            if (!p->blocks()) continue;
            EXPECT_EQ(p->blocks().type, c.held) << p->name;
            const bool is_of_rows =
                c.held == BlockType::fp8 &&
                (!std::string_view(c.name).starts_with("fp8_blocks") || p->blocks().row_blocks() == 1);
            EXPECT_EQ(p->blocks().has_row_scales, is_of_rows) << p->name;
          }
        });
    EXPECT_EQ(num_held, c.held ? 14 * mesh.tp * mesh.ep : 0);
    const double difference = worst_difference(got, want);
    RecordProperty(name_of_mesh(mesh), fmt::format("{:.5f}", difference / size));
    EXPECT_LE(difference, tolerance_of(c.held) * size) << name_of_mesh(mesh);
  }
}

// Experts that a file has in several ways have no blocks in common.
TEST(ExpertsOfCodesTest, AreDecodedWhereOneIsInFloats) {
  PackedModel model(awq(128), GroupedFormat{.is_awq = true, .zeros_less_one = false}, 3);
  const std::string expert = "model.layers.1.block_sparse_moe.experts.2.w1.";
  std::erase_if(model.packed, [&](const RawTensor& t) { return t.name.starts_with(expert); });
  for (const RawTensor& t : model.plain)
    if (t.name.starts_with(expert)) model.packed.push_back(t);
  const Opened opened(model);
  expect_same_numbers(*opened.packed, *opened.plain);
  EXPECT_FALSE(opened.packed->blocks_of("layers.1.moe.experts.gate.weight"));
  for (const char* param : {"layers.0.moe.experts.gate.weight", "layers.1.moe.experts.up.weight"}) {
    const auto blocks = opened.packed->blocks_of(param);
    ASSERT_TRUE(blocks) << param;
    EXPECT_EQ(blocks->stored.size(), 3u);
  }
  const Logits want = logits_of(*opened.plain, kSomeIds, {}, {});
  EXPECT_LE(worst_difference(logits_of(*opened.packed, kSomeIds, {.as_stored = true}, {}), want),
            0.03 * largest(want));
}

TEST(FilesOfCodesTest, AreWrittenAsFloats) {
  const PackedModel model(awq(128), GroupedFormat{.is_awq = true, .zeros_less_one = false});
  const Opened opened(model);
  export_hugging_face(*opened.packed, opened.folder / "written");
  expect_same_numbers(*open_model(opened.folder / "written"), *opened.plain);
}

std::string packed_error(PackedModel& model, const std::function<void(PackedModel&)>& change, bool is_held = false) {
  change(model);
  const TemporaryFolder folder;
  model.write(folder / "packed", true);
  try {
    const auto source = open_model(folder / "packed");
    if (is_held) logits_of(*source, kSomeIds, {.as_stored = true}, {});
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

struct PackedRefusal {
  const char* what;  // that the message must have
  json quantization;
  const PackedModel* model;
  std::function<void(PackedModel&)> change;
  bool is_held = false;  // found when blocks are made
};

TEST(FilesOfCodesTest, WhatIsWrongIsRefused) {
  const PackedModel of_four({}, GroupedFormat{}), in_order({}, GroupedFormat{.has_order = true});
  const PackedModel of_eight({}, ScaledFormat{.block_rows = 1, .dims = Dims::column});
  const PackedModel in_planes({}, PlanarFormat{.bits = 6});
  const PackedModel in_lines({}, GroupedFormat{.is_awq = true, .is_gemv = true});
  const PackedModel of_floats({}, Float4Format{}), of_powers({}, Float4Format{.has_powers_of_two = true});
  const json nv = compressed("nvfp4-pack-quantized", kNvFloat4), mx = compressed("mxfp4-pack-quantized", kMxFloat4);
  const auto set_weights = [](const char* key, json value) {
    return [=](PackedModel& m) { m.quantization()["config_groups"]["group_0"]["weights"][key] = value; };
  };
  const PackedModel* const floats = &of_floats;
  const PackedModel* const four = &of_four;
  const PackedModel* const eight = &of_eight;
  const std::string q = "model.layers.0.self_attn.q_proj";
  const auto set = [](const char* key, json value) { return [=](PackedModel& m) { m.quantization()[key] = value; }; };
  const auto nothing = [](PackedModel&) {};
  const json fp8 = {{"quant_method", "fp8"}};
  const PackedRefusal table[] = {
      {"\"torchao\" is not supported", {{"quant_method", "torchao"}}, four, nothing},
      {"has no tensor model.layers.0.self_attn.q_proj.weight",
       {{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}},
       four,
       nothing},
      {"packing_format = auto_round:fp8",
       {{"quant_method", "auto-round"}, {"packing_format", "auto_round:fp8"}},
       four,
       nothing},
      {"bits = 5 is not supported", gptq(128), four, set("bits", 5)},
      {"scales", gptq(128), four, set("bits", 8)},
      {"pack_dtype = int16", gptq(128), four, set("pack_dtype", "int16")},
      {"bits = 8 is not supported", awq(128), four, set("bits", 8)},
      {"group_size = 0", gptq(128), four, set("group_size", 0)},
      {"group_size", gptq(128), four, set("group_size", -7)},
      {"checkpoint_format = marlin", gptq(128), four, set("checkpoint_format", "marlin")},
      {"version = marlin", awq(128), four, set("version", "marlin")},
      {"fewer zeros beside it", awq(1, "gemv"), &in_lines, nothing},
      {"q_proj.scales", awq(128, "gemv"), &in_lines,
       [&](PackedModel& m) {
         RawTensor& t = m.tensor(q + ".scales");
         t.dims = {t.dims[1], t.dims[0]};
       }},
      {"no whole words of codes of 6 bits", planar(6), &in_planes,
       [&](PackedModel& m) {
         m.tensor(q + ".qweight").dims = {192, 16};
       }},
      {"bits = 9 is not supported", planar(9), &in_planes, nothing},
      {"zero_point = false", awq(128), four, set("zero_point", false)},
      {"format = marlin-24", compressed("marlin-24", {{"num_bits", 4}}), eight, nothing},
      {"num_bits = 9", compressed("pack-quantized", {{"num_bits", 9}}), eight, nothing},
      {"num_bits = 4", compressed("float-quantized", {{"num_bits", 4}}), eight, nothing},
      {"strategy = block",
       compressed("pack-quantized", {{"num_bits", 4}, {"strategy", "block"}, {"block_structure", {128, 128}}}), eight,
       nothing},
      {"group_size = 32", nv, floats, set_weights("group_size", 32)},
      {"group_size = 16", mx, &of_powers, set_weights("group_size", 16)},
      {"symmetric = false", nv, floats, set_weights("symmetric", false)},
      {"type = int", nv, floats, set_weights("type", "int")},
      {"num_bits = 8", mx, &of_powers, set_weights("num_bits", 8)},
      {"location = input", nv, floats,
       set("transform_config", {{"config_groups", {{"u", {{"apply", json::array({{{"location", "input"}}})}}}}}})},
      {"quant_algo = NVFP4_AWQ is not supported",
       {{"quant_method", "modelopt"}, {"quant_algo", "NVFP4_AWQ"}},
       floats,
       nothing},
      {"quantized_layers.b.quant_algo = W4A16_AWQ",
       {{"quant_method", "modelopt"},
        {"quant_algo", "MIXED_PRECISION"},
        {"quantized_layers", {{"a", {{"quant_algo", "FP8"}}}, {"b", {{"quant_algo", "W4A16_AWQ"}}}}}},
       floats,
       nothing},
      {"no matrix of words", compressed("pack-quantized", {{"num_bits", 4}}), floats, nothing},
      {"has no scale of the whole", nv, floats,
       [&](PackedModel& m) { m.tensor(q + ".weight_global_scale").name = q + ".input_scale"; }},
      {"no finite positive number", nv, floats,
       [&](PackedModel& m) {
         const float zero = 0;
         std::memcpy(m.tensor(q + ".weight_global_scale").bytes.data(), &zero, 4);
       }},
      {"is not one number", nv, floats, [&](PackedModel& m) { m.tensor(q + ".weight_global_scale").dtype = "I32"; }},
      {"has no weight_scale", nv, floats, [&](PackedModel& m) { m.tensor(q + ".weight_scale").name = q + ".scale"; }},
      {"scales of another shape", nv, floats,
       [&](PackedModel& m) {
         RawTensor& t = m.tensor(q + ".weight_scale");
         t.dims = {t.dims[1], t.dims[0]};
       }},
      {"scales of another shape", nv, floats,
       [&](PackedModel& m) { m.tensor(q + ".weight_scale").dtype = "F8_E8M0"; }},
      {"F8_E4M3 (NVFP4)", nv, floats, [&](PackedModel& m) { m.tensor(q + ".weight_scale").dtype = "I8"; }},
      {"has powers of two and", mx, &of_powers,
       [&](PackedModel& m) { m.packed.push_back(raw(q + ".weight_global_scale", "F32", {1}, std::vector{1.0f})); }},
      {"no finite number", mx, &of_powers,
       [&](PackedModel& m) { m.tensor(q + ".weight_scale").bytes[5] = std::byte(255); }, true},
      {"no finite number", gptq(128), four,
       [&](PackedModel& m) { m.tensor(q + ".scales").bytes[9] = std::byte(0x7e); }, true},
      {"strategy = token", compressed("int-quantized", {{"num_bits", 8}, {"strategy", "token"}}), eight, nothing},
      {"weight_block_size", fp8, eight, set("weight_block_size", {128})},
      {"fmt = e5m2", fp8, eight, set("fmt", "e5m2")},
      {"scales", gptq(32), four, nothing},
      {"qzeros", gptq(128), four, [&](PackedModel& m) { m.tensor(q + ".qzeros").name = q + ".other"; }},
      {"q_proj.qzeros", gptq(128), four,
       [&](PackedModel& m) {
         RawTensor& t = m.tensor(q + ".qzeros");
         t.dims = {t.dims[1], t.dims[0]};
       }},
      {"is no matrix of words", gptq(128), four, [&](PackedModel& m) { m.tensor(q + ".qweight").dtype = "F32"; }},
      {"names group 9 of 1", gptq(128), &in_order,
       [&](PackedModel& m) {
         const int32_t group = 9;
         std::memcpy(m.tensor(q + ".g_idx").bytes.data() + 40, &group, 4);
       }},
      {"neither weight_scale nor weight_scale_inv", fp8, eight,
       [&](PackedModel& m) { m.tensor(q + ".weight_scale").name = q + ".scale"; }},
      {"scales of another shape", fp8, eight,
       [&](PackedModel& m) {
         m.tensor(q + ".weight_scale").dims = {PackedModel::kHidden / 2, 2};
       }},
      {"holds no scales", fp8, eight, [&](PackedModel& m) { m.tensor(q + ".weight_scale").dtype = "I32"; }},
      {"no finite number", fp8, eight,
       [&](PackedModel& m) {
         const uint32_t nan = 0x7fc00000;
         std::memcpy(m.tensor(q + ".weight_scale").bytes.data() + 8, &nan, 4);
       }},
      {"code that is no number", fp8, eight,
       [&](PackedModel& m) { m.tensor(q + ".weight").bytes[77] = std::byte(0xff); }, true},
      {"zeros of another shape", fp8, eight,
       [&](PackedModel& m) {
         m.packed.push_back(raw(q + ".weight_zero_point", "I8", {2, 1}, std::vector<int8_t>(2, 1)));
       }},
      {"there twice", gptq(128), four,
       [&](PackedModel& m) {
         m.packed.push_back(raw(q + ".weight", "F32", {1, 1}, std::vector{1.0f}));
       }},
      {"belongs to no part", fp8, eight,
       [&](PackedModel& m) {
         m.packed.push_back(raw(q + ".qweight", "I32", {1, 1}, std::vector{1}));
       }},
  };
  for (const PackedRefusal& r : table) {
    PackedModel model = *r.model;
    model.quantization() = r.quantization;
    const std::string message = packed_error(model, r.change, r.is_held);
    EXPECT_NE(message.find(r.what), std::string::npos) << r.what << ": " << message;
  }
}

// A byte of the header, or one of the codes and scales, is another: what opens can be read and held.
TEST(FilesOfCodesTest, DamagedFilesAreReadOrRefused) {
  const PackedModel models[] = {{gptq(128), GroupedFormat{.has_order = true}},
                                {{{"quant_method", "fp8"}}, ScaledFormat{.block_rows = 1, .dims = Dims::column}}};
  int num_read = 0, num_refused = 0;
  for (const PackedModel& model : models) {
    const TemporaryFolder folder;
    model.write(folder / "packed", true);
    const std::string path = folder / "packed/model.safetensors";
    std::ifstream in(path, std::ios::binary);
    const std::string whole((std::istreambuf_iterator<char>(in)), {});
    for (uint64_t round = 0; round < 120; ++round) {
      std::string text = whole;
      const auto random = philox(11, round);
      const size_t end = round % 2 == 0 ? 8 + size_t(text.find("}}")) : text.size();
      const char digits[] = "0123456789";
      char& byte = text[8 + random[0] % (end - 8)];
      byte = std::isdigit(uint8_t(byte)) ? digits[random[1] % 10] : char(random[1]);
      std::ofstream(path, std::ios::binary) << text;
      ++(can_be_read(folder / "packed") ? num_read : num_refused);
    }
  }
  EXPECT_GT(num_read, 20);
  EXPECT_GT(num_refused, 20);
}

}  // namespace
}  // namespace weft
