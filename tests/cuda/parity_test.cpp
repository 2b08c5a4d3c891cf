// The cuda kernels equal the reference in f64, for every op, dtype and odd sizes, and repeat bitwise.
#include "kernels/parity_cases.h"

namespace weft {
namespace {

class CudaParityTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, CudaParityTest, testing::ValuesIn(names_of_parity_cases()),
                         [](const auto& test) { return test.param; });

TEST_P(CudaParityTest, EqualsReferenceAndRepeats) {
  const ParityCase& c = parity_case(GetParam());
  Workbench bench(1, Device::cuda);
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    if (type == DType::f16 && !c.takes_f16) continue;
    SCOPED_TRACE(std::string(name_of(type)));
    expect_parity(c, cuda_kernels(), bench, type);
  }
}

}  // namespace
}  // namespace weft
