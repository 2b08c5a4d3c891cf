// Paged attention on the device: equal to the reference, and a row's bits are those it has alone, whatever is
// computed beside it.
#include <set>

#include "kernels/paged_pool.h"

namespace weft {
namespace {

using Heads = PagedHeads;
using Rows = PagedRange;

constexpr int32_t kLongest = 604, kSequences = 3;

// With all keys but the last in their places.
class Pool : public PagedPool {
 public:
  explicit Pool(const Heads& h, uint64_t order = 0) : PagedPool(h, kLongest, kSequences, 1, Device::cuda, order) {
    for (int s = 0; s < kSequences; ++s) place(reference_kernels(), s, 0, kLongest - 1);
  }
};

class CudaPagedAttentionTest : public testing::TestWithParam<Heads> {};

std::vector<Heads> all_heads() {
  std::vector<Heads> all{{"f32"},
                         {"bf16", DType::bf16, DType::bf16},
                         {"f16", DType::f16, DType::f16},
                         {"f32_in_bf16", DType::f32, DType::bf16},
                         {"bf16_in_f32", DType::bf16, DType::f32},
                         {"f16_in_bf16", DType::f16, DType::bf16},
                         {"f32_in_f64", DType::f32, DType::f64}};
  const auto add = [&](const char* name, auto change) {
    Heads h{name};
    change(h);
    all.push_back(h);
  };
  const auto tensor = [](Heads& h) { h.type = h.pool = DType::bf16; };
  add("alone", [](Heads& h) { h.heads = h.kv_heads = 1; });
  add("one_for_all", [&](Heads& h) { tensor(h), h.heads = 6, h.kv_heads = 1; });
  add("group_of_70", [](Heads& h) { h.window = 100, h.heads = 70, h.kv_heads = 1, h.dim = h.value_dim = 8; });
  add("dim_1", [](Heads& h) { h.dim = h.value_dim = 1; });
  add("dim_33", [&](Heads& h) { tensor(h), h.dim = h.value_dim = 33; });
  add("dim_128", [&](Heads& h) { tensor(h), h.dim = h.value_dim = 128; });
  add("wider_keys", [](Heads& h) { h.dim = 48, h.value_dim = 20; });
  add("wider_values", [&](Heads& h) { tensor(h), h.dim = 20, h.value_dim = 136; });
  add("window_1", [](Heads& h) { h.window = 1; });
  add("window_50", [&](Heads& h) { tensor(h), h.window = 50; });
  add("window_600", [](Heads& h) { h.window = 600; });
  add("cap_and_window", [](Heads& h) { h.softcap = 3, h.window = 70; });
  add("blocks_of_1", [&](Heads& h) { tensor(h), h.block_tokens = 1; });
  add("blocks_of_37", [](Heads& h) { h.block_tokens = 37; });
  for (const RowCodes codes : {RowCodes::int8, RowCodes::fp8})
    for (const DType type : {DType::f32, DType::bf16, DType::f16})
      for (const int dim : {33, 64}) {
        if ((dim == 33) == (type == DType::bf16)) continue;
        add("", [&](Heads& h) { h.type = type, h.dim = h.value_dim = dim, h.codes = codes; });
        all.back().name =
            fmt::format("{}_{}_dim_{}", codes == RowCodes::int8 ? "int8" : "fp8", weft::name_of(type), dim);
        if (dim == 33) all.back().block_tokens = 37, all.back().window = 70;
      }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Heads, CudaPagedAttentionTest, testing::ValuesIn(all_heads()),
                         [](const auto& test) { return test.param.name; });

// One of each path through the kernels.
class CudaPagedCompanyTest : public testing::TestWithParam<Heads> {};
std::vector<Heads> heads_in_company() {
  const std::set<std::string> names{
      "f32",       "bf16",           "f16",          "bf16_in_f32",      "one_for_all",
      "window_50", "cap_and_window", "wider_values", "int8_bf16_dim_64", "fp8_f32_dim_33"};
  std::vector<Heads> some = all_heads();
  std::erase_if(some, [&](const Heads& h) { return !names.contains(h.name); });
  check(some.size() == names.size(), "a name is of no heads");
  return some;
}
INSTANTIATE_TEST_SUITE_P(Heads, CudaPagedCompanyTest, testing::ValuesIn(heads_in_company()),
                         [](const auto& test) { return test.param.name; });

TEST_P(CudaPagedAttentionTest, IsTheReferences) {
  const Heads& h = GetParam();
  Pool pool(h, 9);
  // Of one row, of few, and at the borders of tiles and splits.
  const std::vector<Rows> mixed{{0, 0, 1}, {1, 60, 70}, {2, 600, 601}, {1, 508, 516}};
  const std::vector<double> want = pool.bench().values(pool.attend(reference_kernels(), mixed)),
                            got = pool.bench().values(pool.attend(cuda_kernels(), mixed));
  const double rounding = h.type == DType::bf16 ? 0x1p-7 : h.type == DType::f16 ? 0x1p-10 : 3e-6;
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(got[i], want[i], std::max(rounding, h.codes == RowCodes::none ? 0 : 6e-6) * (1 + std::abs(want[i])))
        << "element " << i;
}

TEST_P(CudaPagedCompanyTest, ARowIsTheSame) {
  const Heads& h = GetParam();
  const Rows early{0, 0, 20}, late{0, 508, 516};
  Pool whole(h);
  const Tensor first = whole.attend(cuda_kernels(), {early}), last = whole.attend(cuda_kernels(), {late});
  const auto expect_rows = [&](const std::string& how, const Tensor& y, int64_t row, const Rows& piece) {
    const bool is_late = piece.begin >= late.begin;
    ASSERT_EQ(bytes_of(y, row, piece.end - piece.begin),
              bytes_of(is_late ? last : first, piece.begin - (is_late ? late : early).begin, piece.end - piece.begin))
        << how << ", rows " << piece.begin << " to " << piece.end;
  };
  for (const Rows& piece : {Rows{0, 0, 1}, {0, 9, 20}, {0, 508, 509}, {0, 511, 513}})
    ASSERT_NO_FATAL_FAILURE(expect_rows("alone", whole.attend(cuda_kernels(), {piece}), 0, piece));
  for (const int block_tokens : {1, 64}) {
    Heads other = h;
    other.block_tokens = block_tokens;
    Pool pool(other, uint64_t(5 + block_tokens));
    const Tensor y = pool.attend(cuda_kernels(), {{1, 30, 35}, {0, 512, 516}, {2, 600, 601}, {0, 5, 20}});
    const std::string how = fmt::format("blocks of {}", block_tokens);
    ASSERT_NO_FATAL_FAILURE(expect_rows(how, y, 5, {0, 512, 516}));
    ASSERT_NO_FATAL_FAILURE(expect_rows(how, y, 10, {0, 5, 20}));
  }
}

// What later keys hold, even if it is no number, is nothing to the rows before them.
TEST(CudaPagedAttentionOddTest, KeysThatARowDoesNotSeeAreNothing) {
  const auto expect_nothing = [](const Heads& h, auto spoil) {
    Pool pool(h), spoilt(h);
    spoil(spoilt);
    const Tensor before = pool.attend(cuda_kernels(), {{0, 0, 50}}),
                 after = spoilt.attend(cuda_kernels(), {{0, 0, 50}});
    EXPECT_EQ(bytes_of(before, 0, 40), bytes_of(after, 0, 40)) << h.name;
    for (int64_t row = 40; row < 50; ++row)
      EXPECT_TRUE(std::isnan(pool.bench().values(after.slice_rows(row, 1))[3])) << h.name << ", row " << row;
  };
  expect_nothing({.name = "f32"}, [](Pool& p) { p.value<float>(0, 40, 3) = HUGE_VALF; });
  expect_nothing({.name = "bf16", .type = DType::bf16, .pool = DType::bf16},
                 [](Pool& p) { p.value<BFloat16>(0, 40, 3) = BFloat16(NAN); });
  expect_nothing({.name = "f16", .type = DType::f16, .pool = DType::f16},
                 [](Pool& p) { p.value<Float16>(0, 40, 3) = Float16(HUGE_VALF); });
  expect_nothing({.name = "fp8", .codes = RowCodes::fp8}, [](Pool& p) { p.value<uint8_t>(0, 40, 3) = 0xff; });
  expect_nothing({.name = "a scale", .type = DType::bf16, .codes = RowCodes::int8},
                 [](Pool& p) { std::memset(&p.value<uint8_t>(0, 40, 40), 0xff, 4); });
}

TEST(CudaPagedAttentionOddTest, MayHaveNothingToDo) {
  Pool no_heads({.name = "", .heads = 0, .kv_heads = 0});
  EXPECT_EQ(no_heads.attend(cuda_kernels(), {{0, 0, 5}}).numel(), 0);
  Pool pool({.name = ""});
  EXPECT_EQ(pool.attend(cuda_kernels(), {}).numel(), 0);
  const Tensor among_none = pool.attend(cuda_kernels(), {{1, 0, 0}, {0, 0, 5}, {2, 7, 7}});
  EXPECT_EQ(bytes_of(among_none, 0, 5), bytes_of(pool.attend(cuda_kernels(), {{0, 0, 5}}), 0, 5));
}

}  // namespace
}  // namespace weft
