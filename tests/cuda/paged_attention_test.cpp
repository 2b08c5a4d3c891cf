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
  // Those of tensor cores: see paged_in_parts.cu.
  add("parts_bf16", [&](Heads& h) { tensor(h), h.dim = h.value_dim = 64; });
  add("parts_f16", [](Heads& h) { h.type = h.pool = DType::f16, h.dim = h.value_dim = 64; });
  add("parts_of_128", [&](Heads& h) { tensor(h), h.dim = h.value_dim = 128, h.heads = 8, h.block_tokens = 37; });
  add("parts_alone", [&](Heads& h) { tensor(h), h.dim = h.value_dim = 64, h.heads = h.kv_heads = 1; });
  add("parts_window", [&](Heads& h) { tensor(h), h.dim = h.value_dim = 64, h.window = 150; });
  add("parts_group_of_70",
      [&](Heads& h) { tensor(h), h.dim = h.value_dim = 64, h.heads = 70, h.kv_heads = 1, h.window = 100; });
  add("parts_sinks", [&](Heads& h) { tensor(h), h.dim = h.value_dim = 64, h.has_sinks = true, h.window = 150; });
  add("sinks", [](Heads& h) { h.has_sinks = true; });
  add("window_1", [](Heads& h) { h.window = 1; });
  add("window_50", [&](Heads& h) { tensor(h), h.window = 50; });
  add("window_600", [](Heads& h) { h.window = 600; });
  add("cap_and_window", [](Heads& h) { h.softcap = 3, h.window = 70; });
  add("blocks_of_1", [&](Heads& h) { tensor(h), h.block_tokens = 1; });
  add("blocks_of_37", [](Heads& h) { h.block_tokens = 37; });
  const auto in_keys = [](Heads& h, int dim, int value_dim) {
    h.values_in_keys = true, h.kv_heads = 1, h.heads = 6, h.dim = dim, h.value_dim = value_dim;
  };
  add("values_in_keys", [&](Heads& h) { in_keys(h, 48, 40); });
  add("values_in_keys_bf16", [&](Heads& h) { tensor(h), in_keys(h, 320, 264), h.heads = 16; });
  add("values_in_keys_odd", [&](Heads& h) { tensor(h), in_keys(h, 40, 33), h.kv_heads = 2; });
  add("values_are_keys", [&](Heads& h) { tensor(h), in_keys(h, 64, 64), h.window = 150; });
  add("int8_values_in_keys", [&](Heads& h) { in_keys(h, 44, 33), h.type = DType::bf16, h.codes = RowCodes::int8; });
  add("fp8_values_in_keys", [&](Heads& h) { in_keys(h, 72, 64), h.codes = RowCodes::fp8, h.kv_heads = 2; });
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
      "f32",        "bf16",           "f16",          "bf16_in_f32",      "one_for_all",
      "window_50",  "cap_and_window", "wider_values", "int8_bf16_dim_64", "fp8_f32_dim_33",
      "parts_bf16", "parts_f16",      "parts_window", "parts_sinks",      "sinks",
      "values_in_keys_bf16"};
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

// Rows that a block goes through whole, in a long piece, and rows whose parts have warps of their own.
TEST(CudaPagedPartsTest, WholeTilesAndPartsAreTheSame) {
  struct Case {
    DType type;
    int dim, heads, kv_heads, window;
    int32_t num_keys;
    Rows whole;
  };
  for (const Case& c : {Case{DType::bf16, 64, 2, 2, 0, 400, {0, 250, 400}},
                        {DType::f16, 64, 8, 1, 0, 300, {0, 130, 150}},
                        {DType::bf16, 128, 4, 1, 0, 700, {0, 640, 665}},
                        {DType::bf16, 128, 8, 1, 0, 130, {0, 0, 130}},
                        {DType::f16, 128, 1, 1, 0, 300, {0, 200, 300}},
                        {DType::bf16, 64, 2, 1, 170, 1300, {0, 1100, 1170}},
                        {DType::bf16, 64, 2, 1, 0, 2200, {0, 2040, 2080}},
                        {DType::f16, 128, 2, 1, 1500, 2600, {0, 2540, 2590}}}) {
    const Heads h{.name = "",
                  .type = c.type,
                  .pool = c.type,
                  .heads = c.heads,
                  .kv_heads = c.kv_heads,
                  .dim = c.dim,
                  .value_dim = c.dim,
                  .window = c.window};
    PagedPool pool(h, c.num_keys, 1, 1, Device::cuda, 3);
    pool.place(reference_kernels(), 0, 0, c.num_keys - 1);
    const Rows& all = c.whole;
    const Tensor y = pool.attend(cuda_kernels(), {all});
    for (const int32_t row : {all.begin, all.begin + 7, (all.begin + all.end) / 2, all.end - 2}) {
      const int32_t end = std::min(row + (row % 2 ? 3 : 1), all.end);
      ASSERT_EQ(bytes_of(pool.attend(cuda_kernels(), {{0, row, end}})), bytes_of(y, row - all.begin, end - row))
          << "dim " << c.dim << ", " << c.heads << " heads, row " << row << " of " << all.begin << " to " << all.end;
    }
    const Tensor some = y.slice_rows(0, 2);
    const std::vector<double> want =
        pool.bench().values(pool.attend(reference_kernels(), {{0, all.begin, all.begin + 2}}));
    const std::vector<double> got = pool.bench().values(some);
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i], want[i], (c.type == DType::bf16 ? 0x1p-7 : 0x1p-10) * (1 + std::abs(want[i]))) << i;
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
  // A row that sees it gets what the sum makes of it, and another row not even its own kernel's doubts.
  for (const Rows& rows : {Rows{0, 0, 50}, {0, 35, 44}, {0, 580, 600}, {0, 540, 602}})
    for (const int window : {0, 9}) {
      const Heads h{.name = "", .type = DType::f16, .pool = DType::f16, .dim = 64, .value_dim = 64, .window = window};
      const int32_t bad = rows.begin + 8;
      Pool pool(h), spoilt(h);
      for (const int32_t key : {bad, bad + 3, kLongest - 2}) spoilt.value<Float16>(0, key, 3) = Float16(HUGE_VALF);
      const Tensor before = pool.attend(cuda_kernels(), {rows}), after = spoilt.attend(cuda_kernels(), {rows});
      for (int32_t row = rows.begin; row < rows.end; ++row) {
        const bool sees = row >= bad && (window == 0 || row < bad + 3 + window);
        const int64_t at = row - rows.begin;
        EXPECT_EQ(bytes_of(before, at, 1) == bytes_of(after, at, 1), !sees) << row << " of " << rows.begin;
        EXPECT_EQ(std::isfinite(pool.bench().values(after.slice_rows(at, 1))[3]), !sees) << row;
        EXPECT_EQ(bytes_of(spoilt.attend(cuda_kernels(), {{0, row, row + 1}})), bytes_of(after, at, 1)) << row;
      }
    }
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
