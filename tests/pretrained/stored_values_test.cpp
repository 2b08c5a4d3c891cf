// What is copied from a model's files as it lies there is what is read from them, for every family and dtype.
#include "pretrained/golden_models.h"
#include "weft/pretrained/export.h"

namespace weft {
namespace {

float widened(DType dtype, const std::byte* from) {
  switch (dtype) {
    case DType::bf16: return std::bit_cast<float>(uint32_t(load_le<uint16_t>(from)) << 16);
    case DType::f16: return Float16::from_bits(load_le<uint16_t>(from));
    default: return std::bit_cast<float>(load_le<uint32_t>(from));
  }
}

using StoredIn = std::tuple<std::string, DType>;
class StoredValuesTest : public testing::TestWithParam<StoredIn> {};
INSTANTIATE_TEST_SUITE_P(Models, StoredValuesTest,
                         testing::Combine(testing::ValuesIn(GoldenModel::all()),
                                          testing::Values(DType::f32, DType::bf16, DType::f16)),
                         [](const auto& test) {
                           return fmt::format("{}_{}", std::get<0>(test.param), name_of(std::get<1>(test.param)));
                         });

TEST_P(StoredValuesTest, AreThoseThatAreRead) {
  const auto& [name, dtype] = GetParam();
  const GoldenModel golden(name);
  const TemporaryFolder folder;
  export_hugging_face(*open_model(golden.path()), folder / "copy", {.dtype = dtype});
  const auto source = open_model(folder / "copy");
  for (const ParamNames& names : source->names()) {
    const auto stored = source->values_of(names.param);
    ASSERT_EQ(stored.has_value(), names.values == ValueMap::same) << names.param;
    if (!stored) continue;
    ASSERT_EQ(stored->dtype, dtype) << names.param;
    // A part that begins inside a row and ends in another.
    const int64_t size = names.shape.numel(), first = size / 5, count = size - first - size / 7;
    std::vector<float> expected(static_cast<size_t>(count));
    source->read(names.param, first, expected);
    std::vector<std::byte> copied(size_t(count) * size_of(dtype));
    stored->copy(first, copied);
    for (int64_t i = 0; i < count; ++i)
      ASSERT_EQ(widened(dtype, &copied[size_t(i) * size_of(dtype)]), expected[size_t(i)])
          << names.param << " " << first + i;
  }
}

}  // namespace
}  // namespace weft
