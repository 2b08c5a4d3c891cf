// The keys that rows of sparse attention select: the reference's on every target, the same in any company, and
// attention to them is that to the same keys in a sequence of their own.
#include "cpu_everywhere.h"
#include "select_keys_case.h"

namespace weft {
namespace {

class SelectKeysTest : public testing::TestWithParam<SelectKeysCase> {};

INSTANTIATE_TEST_SUITE_P(Cases, SelectKeysTest, testing::ValuesIn(select_keys_cases()),
                         [](const auto& test) { return test.param.name; });

TEST_P(SelectKeysTest, AreTheReferences) {
  SelectKeysBench expected(GetParam(), Device::cpu, 1), actual(GetParam(), Device::cpu, 2);
  const std::vector<int32_t> places = expected.select(reference_kernels(), kSelectingRows);
  for (const int64_t target : compiled_targets()) {
    const OnTarget on_target(target);
    EXPECT_EQ(actual.select(cpu_kernels(), kSelectingRows), places) << hwy::TargetName(target);
  }
}

TEST_P(SelectKeysTest, ARowSelectsTheSameInAnyCompany) {
  SelectKeysBench bench(GetParam(), Device::cpu, 2);
  const std::vector<int32_t> whole = bench.select(cpu_kernels(), {{1, 0, kSelectedFrom}});
  const int64_t most = GetParam().most;
  for (const int32_t row : {0, 70, 511, 512, 700, kSelectedFrom - 1}) {
    const std::vector<int32_t> alone = bench.select(cpu_kernels(), {{1, row, row + 1}});
    EXPECT_EQ(alone, std::vector(whole.begin() + row * most, whole.begin() + (row + 1) * most)) << row;
  }
}

TEST(SelectKeysOfReferenceTest, AreTheHighestAndOfEqualsTheFirst) {
  const SelectKeysCase c{.name = "", .heads = 1, .dim = 1, .most = 3};
  SelectKeysBench bench(c, Device::cpu, 1);
  const std::array keys{1.0f, 5.0f, -3.0f, 5.0f, 2.0f, 5.0f, 7.0f, 5.0f};
  bench.set_keys(0, keys);
  const std::vector<int32_t> places = bench.select_with_ones(reference_kernels(), {0, 0, int32_t(keys.size())});
  const std::vector<std::vector<int32_t>> expected{{0, -1, -1}, {0, 1, -1}, {0, 1, 2}, {0, 1, 3},
                                                   {1, 3, 4},   {1, 3, 5},  {1, 3, 6}, {1, 3, 6}};
  for (size_t row = 0; row < expected.size(); ++row)
    EXPECT_EQ(std::vector(places.begin() + ptrdiff_t(3 * row), places.begin() + ptrdiff_t(3 * row + 3)),
              expected[row])
        << row;
  EXPECT_EQ(bench.select_with_ones(cpu_kernels(), {0, 0, int32_t(keys.size())}), places);
}

TEST(MarkKeysTest, SetsTheirBitsAlone) {
  Workbench bench(2);
  const Tensor selected = bench.empty(DType::i32, {2, 4}), bits = bench.empty(DType::i32, {2, 3});
  std::ranges::copy(std::array{0, 31, 32, 70, 5, -1, -1, 64}, selected.data<int32_t>());
  for (const Kernels* const k : {&reference_kernels(), &cpu_kernels()}) {
    std::memset(bits.raw(), 0xff, bits.bytes());
    k->mark_keys(bench.stream, bits, selected);
    const std::vector<uint32_t> words(bits.data<int32_t>(), bits.data<int32_t>() + 6);
    EXPECT_EQ(words, (std::vector<uint32_t>{0x80000001u, 1u, 1u << 6, 1u << 5, 0u, 1u})) << k->name;
  }
}

// Where it has no more than are selected, to the bit what it is without a selection.
TEST(AttentionToSelectedKeysTest, ARowSeesItsKeysAlone) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    SelectKeysBench bench({.name = "", .type = dtype, .most = 96}, Device::cpu, 2);
    const std::vector<SelectingRows> few{{0, 20, 90}, {2, 95, 96}}, many{{0, 250, 300}, {1, 0, 40}};
    for (const Kernels* const k : {&reference_kernels(), &cpu_kernels()}) {
      EXPECT_EQ(bench.values(bench.attend(*k, few, true)), bench.values(bench.attend(*k, few, false))) << k->name;
      EXPECT_NE(bench.values(bench.attend(*k, many, true)), bench.values(bench.attend(*k, many, false))) << k->name;
    }
    const ExpectedOutput expected{"y", bench.attend(reference_kernels(), many, true),
                                  std::max(rounding_of(dtype), 3e-6)};
    for (const int64_t target : compiled_targets()) {
      const OnTarget on_target(target);
      expect_output(hwy::TargetName(target), bench.attend(cpu_kernels(), many, true), expected);
    }
  }
}

}  // namespace
}  // namespace weft
