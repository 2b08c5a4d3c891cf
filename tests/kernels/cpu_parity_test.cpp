// The cpu kernels equal the reference in f64, for every op, dtype, odd sizes and several threads, and repeat bitwise.
#include "parity_cases.h"

namespace weft {
namespace {

class CpuParityTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, CpuParityTest, testing::ValuesIn(names_of_parity_cases()),
                         [](const auto& test) { return test.param; });

// Sanitizers see with several threads all that they see with one.
#ifdef WEFT_SANITIZED
constexpr int kThreads[] = {3};
#else
constexpr int kThreads[] = {1, 3};
#endif

TEST_P(CpuParityTest, EqualsReferenceAndRepeats) {
  const ParityCase& c = parity_case(GetParam());
  for (const int num_threads : kThreads) {
    Workbench bench(num_threads);
    for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
      if (type == DType::f16 && !c.takes_f16) continue;
      SCOPED_TRACE(fmt::format("{}, {} threads", name_of(type), num_threads));
      expect_parity(c, cpu_kernels(), bench, type);
    }
  }
}

}  // namespace
}  // namespace weft
