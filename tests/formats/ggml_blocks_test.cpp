// Ggml blocks: decoded bit for bit as an independent reference does; encoded with errors no larger than ggml's.
#include "weft/formats/ggml_blocks.h"

#include <fstream>
#include <numbers>
#include <random>
#include <sstream>

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr GgmlType kBlockTypes[] = {GgmlType::q4_0,  GgmlType::q4_1, GgmlType::q5_0,  GgmlType::q5_1,
                                    GgmlType::q8_0,  GgmlType::q2_k, GgmlType::q3_k,  GgmlType::q4_k,
                                    GgmlType::q5_k,  GgmlType::q6_k, GgmlType::mxfp4, GgmlType::iq4_nl,
                                    GgmlType::iq4_xs};
constexpr GgmlType kPlainTypes[] = {GgmlType::f64, GgmlType::f32, GgmlType::f16, GgmlType::bf16};

GgmlType type_named(const std::string& name) {
  for (const GgmlType type : kBlockTypes) {
    if (name_of(type) == name) return type;
  }
  throw Error("no type is named {}", name);
}

std::vector<std::byte> quantized(GgmlType type, std::span<const float> values) {
  std::vector<std::byte> blocks(*ggml_bytes(type, values.size()));
  quantize(type, values, blocks);
  return blocks;
}

std::vector<float> dequantized(GgmlType type, Bytes blocks) {
  std::vector<float> values(blocks.size() / info_of(type).bytes * info_of(type).block);
  dequantize(type, blocks, values);
  return values;
}

std::vector<float> there_and_back(GgmlType type, std::span<const float> values) {
  return dequantized(type, quantized(type, values));
}

std::string from_hex(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes += char(std::stoi(std::string(text.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

// Normal values, the same on every machine (std::normal_distribution is not).
std::vector<float> normal_values(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  const auto uniform = [&] { return (double(random()) + 0.5) / 4294967296.0; };
  std::vector<float> values(n);
  for (float& x : values) {
    x = float(std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform()));
  }
  return values;
}

double relative_rmse(std::span<const float> values, std::span<const float> approximated) {
  double error = 0, whole = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    error += std::pow(double(values[i]) - double(approximated[i]), 2), whole += std::pow(double(values[i]), 2);
  }
  return std::sqrt(error / whole);
}

TEST(GgmlBlocks, AgreeWithAnIndependentReference) {
  std::ifstream file(WEFT_SOURCE_DIR "/tests/formats/data/ggml_blocks.txt");
  int num_lines = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream words(line);
    std::string action, type, from, to;
    words >> action >> type >> from >> to;
    const std::string input = from_hex(from), expected = from_hex(to);
    std::vector<float> values((action == "decode" ? expected : input).size() / 4);
    if (action == "decode") {
      dequantize(type_named(type), bytes_of(input), values);
      EXPECT_EQ(text_of(std::as_bytes(std::span(values))), expected) << line.substr(0, 100);
    } else {
      std::memcpy(values.data(), input.data(), input.size());
      EXPECT_EQ(text_of(quantized(type_named(type), values)), expected) << line.substr(0, 100);
    }
    ++num_lines;
  }
  EXPECT_EQ(num_lines, 19);
}

struct Bound {
  GgmlType type;
  double most;   // relative RMSE of normal values
  double ggmls;  // of ggml's reference quantiser, for comparison
};
class GgmlErrorTest : public testing::TestWithParam<Bound> {};
INSTANTIATE_TEST_SUITE_P(Types, GgmlErrorTest,
                         testing::Values(Bound{GgmlType::q8_0, 0.0054, 0.00535},
                                         Bound{GgmlType::q4_0, 0.0865, 0.0858}, Bound{GgmlType::q4_1, 0.0788, 0.0782},
                                         Bound{GgmlType::q5_0, 0.0430, 0.0427}, Bound{GgmlType::q5_1, 0.0382, 0.0378},
                                         Bound{GgmlType::q2_k, 0.2640, 0.2963}, Bound{GgmlType::q3_k, 0.1445, 0.1507},
                                         Bound{GgmlType::q4_k, 0.0704, 0.0713}, Bound{GgmlType::q5_k, 0.0348, 0.0361},
                                         Bound{GgmlType::q6_k, 0.0174, 0.0178},
                                         Bound{GgmlType::iq4_nl, 0.0735, 0.0762},
                                         Bound{GgmlType::iq4_xs, 0.0740, 0.0767},
                                         Bound{GgmlType::mxfp4, 0.1165, 0.1143}),
                         [](const auto& test) { return std::string(name_of(test.param.type)); });

TEST_P(GgmlErrorTest, IsSmallOnNormalValuesOfAnyScale) {
  for (const float scale : {1.0f, 0.02f, 300.0f}) {
    std::vector<float> values = normal_values(256 * 64, 3);
    for (float& x : values) x *= scale;
    const double error = relative_rmse(values, there_and_back(GetParam().type, values));
    EXPECT_LE(error, GetParam().most) << scale;
    EXPECT_GE(error, GetParam().most / 1.1) << "a bound that says nothing";
  }
}

class GgmlTypeTest : public testing::TestWithParam<GgmlType> {};
INSTANTIATE_TEST_SUITE_P(Blocks, GgmlTypeTest, testing::ValuesIn(kBlockTypes),
                         [](const auto& test) { return std::string(name_of(test.param)); });

TEST_P(GgmlTypeTest, UnusualBlocksKeepTheirValues) {
  const auto filled = [](auto&& value_of) {
    std::vector<float> values(256);
    for (size_t i = 0; i < values.size(); ++i) values[i] = value_of(i);
    return values;
  };
  const std::vector<float> zeros = filled([](size_t) { return 0.0f; });
  EXPECT_EQ(there_and_back(GetParam(), zeros), zeros);
  // A constant is within a step of the coarsest type, Q2_K, whose scales have 4 bits; or it is 8 where MXFP4 has 6.
  const double step = GetParam() == GgmlType::mxfp4 ? 0.25 : 0.05;
  for (const float c : {1.0f, -1.0f, 1e-3f, -6e4f}) {
    const std::vector<float> constant = filled([&](size_t) { return c; });
    EXPECT_LT(relative_rmse(constant, there_and_back(GetParam(), constant)), step) << c;
  }
  const std::vector<float> outlier = filled([](size_t i) { return i == 77 ? -5e4f : 1e-3f; });
  EXPECT_LT(relative_rmse(outlier, there_and_back(GetParam(), outlier)), 0.05);
  const std::vector<float> codes = filled([](size_t i) { return float(i % 4) - 2; });  // hits codes of every type
  EXPECT_LT(relative_rmse(codes, there_and_back(GetParam(), codes)), 0.15);
  const std::vector<float> tiny = filled([](size_t i) { return i % 2 ? 1e-42f : -1e-39f; });
  for (const float x : there_and_back(GetParam(), tiny)) EXPECT_NEAR(x, 0, 1e-6);
}

TEST_P(GgmlTypeTest, AnyBitsAreDecodedAndAnyValuesEncoded) {
  std::mt19937 random(9);
  std::vector<std::byte> blocks(info_of(GetParam()).bytes);
  std::vector<float> values(info_of(GetParam()).block);
  for (int trial = 0; trial < 200; ++trial) {
    for (std::byte& b : blocks) b = std::byte(random());
    dequantize(GetParam(), blocks, values);
    for (float& x : values) {
      x = std::bit_cast<float>(uint32_t(random()));
      if (!(std::abs(x) <= kLargestBlockValue)) x = float(int(random() % 100) - 50);
    }
    for (const float x : there_and_back(GetParam(), values)) ASSERT_TRUE(std::isfinite(x));
  }
}

TEST_P(GgmlTypeTest, ValuesThatBlocksCannotHoldAreRefused) {
  std::vector<float> values(256);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 65536.0f}) {
    values[100] = bad;
    EXPECT_THROW(quantized(GetParam(), values), Error) << bad;
  }
}

TEST(GgmlBlocks, Mxfp4RoundsWhatItsLeastScaleHolds) {
  std::vector<float> values(32);
  values[0] = 0x1p-130f, values[1] = -0x1p-127f, values[2] = 0x1.8p-126f;
  const std::vector<float> back = there_and_back(GgmlType::mxfp4, values);
  EXPECT_EQ(back[0], 0) << "an eighth of the least number but one";
  EXPECT_EQ(back[1], -0x1p-127f);
  EXPECT_EQ(back[2], 0x1.8p-126f);
}

TEST(GgmlBlocks, PlainTypesRoundAndKeepInfinities) {
  const std::vector<float> values{0.0f, -1.5f, 3.14159274f, 1e30f, -std::numeric_limits<float>::infinity()};
  for (const GgmlType type : kPlainTypes) {
    const std::vector<float> back = there_and_back(type, values);
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(back[i], values[i], 0.01) << name_of(type);
    EXPECT_EQ(back[4], values[4]);
    const bool is_exact = type == GgmlType::f32 || type == GgmlType::f64;
    if (is_exact) EXPECT_EQ(back, values);
  }
}

TEST(GgmlBlocks, WrongSizesAndUnknownTypesAreRefused) {
  std::vector<float> values(32);
  std::vector<std::byte> blocks(18);
  EXPECT_THROW(dequantize(GgmlType::q4_0, Bytes(blocks).first(17), values), Error);
  EXPECT_THROW(dequantize(GgmlType::q4_0, blocks, std::span(values).first(31)), Error);
  EXPECT_THROW(quantize(GgmlType::q4_0, std::span(values).first(16), std::span(blocks).first(9)), Error);
  EXPECT_FALSE(can_convert(GgmlType::iq2_xxs));
  values.resize(256), blocks.resize(66);
  try {
    dequantize(GgmlType::iq2_xxs, blocks, values);
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "weft does not convert IQ2_XXS; convert the file to a type such as Q8_0 or F16 first");
  }
}

}  // namespace
}  // namespace weft
