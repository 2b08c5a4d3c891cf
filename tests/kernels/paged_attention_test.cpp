// Paged attention: equal to the reference, and a row's bits are those it has alone, whatever is computed beside it.
#include "cpu_everywhere.h"
#include "paged_pool.h"
#include "weft/kernels/cpu/attention.h"

namespace weft {
namespace {

using Heads = PagedHeads;
using Rows = PagedRange;

constexpr int32_t kLongest = 1104;

// Whose keys some kernels place and attend to.
class Pool : public PagedPool {
 public:
  Pool(const Kernels& kernels, const Heads& h, int threads = 1, uint64_t order = 0)
      : PagedPool(h, kLongest, 4, threads, Device::cpu, order), kernels_(kernels) {}

  void place(int sequence, int32_t begin, int32_t end) { PagedPool::place(kernels_, sequence, begin, end); }
  Tensor attend(const std::vector<Rows>& pieces) { return PagedPool::attend(kernels_, pieces); }
  // The same after placing their keys.
  Tensor serve(const std::vector<Rows>& pieces) {
    for (const Rows& p : pieces) place(p.sequence, p.begin, p.end);
    return attend(pieces);
  }

 private:
  const Kernels& kernels_;
};

class PagedAttentionTest : public testing::TestWithParam<Heads> {};

std::vector<Heads> all_heads() {
  std::vector<Heads> all{{"f32"},
                         {"bf16", DType::bf16, DType::bf16},
                         {"f16", DType::f16, DType::f16},
                         {"f32_in_bf16", DType::f32, DType::bf16},
                         {"bf16_in_f32", DType::bf16, DType::f32},
                         {"f32_in_f16", DType::f32, DType::f16}};
  const auto add = [&](const char* name, auto change) {
    Heads h{name};
    change(h);
    all.push_back(h);
  };
  add("alone", [](Heads& h) { h.heads = h.kv_heads = 1; });
  add("one_for_all", [](Heads& h) { h.heads = 6, h.kv_heads = 1; });
  add("no_groups", [](Heads& h) { h.heads = h.kv_heads = 3; });
  add("group_of_70", [](Heads& h) { h.heads = 70, h.kv_heads = 1, h.dim = h.value_dim = 8; });
  add("dim_1", [](Heads& h) { h.dim = h.value_dim = 1; });
  add("dim_33", [](Heads& h) { h.dim = h.value_dim = 33, h.pool = DType::bf16; });
  add("dim_128", [](Heads& h) { h.dim = h.value_dim = 128, h.pool = DType::bf16; });
  add("wider_keys", [](Heads& h) { h.dim = 48, h.value_dim = 20; });
  add("wider_values", [](Heads& h) { h.dim = 20, h.value_dim = 72; });
  add("window_1", [](Heads& h) { h.window = 1; });
  add("window_50", [](Heads& h) { h.window = 50; });
  add("window_600", [](Heads& h) { h.window = 600, h.kv_heads = 4; });
  add("cap", [](Heads& h) { h.softcap = 3, h.type = DType::bf16, h.pool = DType::bf16; });
  add("cap_and_window", [](Heads& h) { h.softcap = 3, h.window = 70; });
  add("blocks_of_1", [](Heads& h) { h.block_tokens = 1; });
  add("blocks_of_64", [](Heads& h) { h.block_tokens = 64, h.pool = DType::bf16; });
  add("blocks_of_37", [](Heads& h) { h.block_tokens = 37; });
  const auto add_bf16 = [&](const char* name, auto change) {
    add(name, change);
    all.back().type = all.back().pool = DType::bf16;
  };
  add_bf16("bf16_dim_33", [](Heads& h) { h.dim = h.value_dim = 33; });
  add_bf16("bf16_dim_1", [](Heads& h) { h.dim = h.value_dim = 1, h.block_tokens = 37; });
  add_bf16("bf16_one_for_all", [](Heads& h) { h.heads = 6, h.kv_heads = 1, h.dim = h.value_dim = 128; });
  add_bf16("bf16_dim_64", [](Heads& h) { h.dim = 64; });
  add_bf16("bf16_dim_64_group_of_18", [](Heads& h) { h.dim = 64, h.heads = 18, h.kv_heads = 1; });
  add_bf16("bf16_window_51", [](Heads& h) { h.window = 51; });
  add_bf16("bf16_window_1", [](Heads& h) { h.window = 1, h.kv_heads = 4; });
  add("sinks", [](Heads& h) { h.has_sinks = true; });
  add_bf16("bf16_sinks_and_window", [](Heads& h) { h.has_sinks = true, h.window = 51; });
  const auto in_keys = [](Heads& h, int dim, int value_dim) {
    h.values_in_keys = true, h.kv_heads = 1, h.heads = 6, h.dim = dim, h.value_dim = value_dim;
  };
  add("values_in_keys", [&](Heads& h) { in_keys(h, 48, 40); });
  add("values_in_keys_of_two", [&](Heads& h) { in_keys(h, 33, 20), h.kv_heads = 2, h.pool = DType::f16; });
  add_bf16("bf16_values_in_keys", [&](Heads& h) { in_keys(h, 160, 128), h.heads = 18; });
  add_bf16("bf16_values_are_keys", [&](Heads& h) { in_keys(h, 33, 33), h.window = 51; });
  for (const RowCodes codes : {RowCodes::int8, RowCodes::fp8}) {
    const auto add_codes = [&](const char* name, auto change) {
      add("", change);
      all.back().codes = codes;
      all.back().name = fmt::format("{}{}", codes == RowCodes::int8 ? "int8" : "fp8", name);
    };
    add_codes("", [](Heads&) {});
    add_codes("_dim_33", [](Heads& h) { h.dim = h.value_dim = 33, h.block_tokens = 37; });
    add_codes("_dim_128", [](Heads& h) { h.dim = h.value_dim = 128, h.kv_heads = 4; });
    add_codes("_values_in_keys", [&](Heads& h) { in_keys(h, 41, 30); });
    add_codes("_cap_and_window", [](Heads& h) { h.softcap = 3, h.window = 70, h.block_tokens = 1; });
    if (codes == RowCodes::fp8) continue;
    add_codes("_of_bf16", [](Heads& h) { h.type = DType::bf16; });
    add_codes("_one_for_all", [](Heads& h) { h.heads = 6, h.kv_heads = 1, h.dim = h.value_dim = 64; });
    add_codes("_wider_values", [](Heads& h) { h.dim = 20, h.value_dim = 72; });
  }
#ifdef WEFT_THREAD_SANITIZED
  // Threads share the work in the same way whatever the shapes: some of them show how.
  std::erase_if(all, [n = 0](const Heads&) mutable { return n++ % 4 != 0; });
#endif
  return all;
}

INSTANTIATE_TEST_SUITE_P(Heads, PagedAttentionTest, testing::ValuesIn(all_heads()),
                         [](const auto& test) { return test.param.name; });

// Of one row, of few, of a tile and more, at the borders of tiles and splits.
const std::vector<Rows> kMixed{{0, 0, 1}, {1, 60, 70}, {2, 1100, 1101}, {3, 470, 530}};

TEST_P(PagedAttentionTest, IsTheReferences) {
  const Heads& h = GetParam();
  Pool expected(reference_kernels(), h, 1, 9), actual(cpu_kernels(), h, 2, 9);
  for (const Rows& p : kMixed) expected.place(p.sequence, 0, p.end), actual.place(p.sequence, 0, p.end);
  const ExpectedOutput output{h.name, expected.attend(kMixed),
                              std::max(rounding_of(h.type), h.codes == RowCodes::none ? 3e-6 : 6e-6)};
  for (const int64_t target : compiled_targets()) {
    const OnTarget on_target(target);
    expect_output(hwy::TargetName(target), actual.attend(kMixed), output);
  }
}

TEST_P(PagedAttentionTest, ARowIsTheSameInAnyCompany) {
  const Heads& h = GetParam();
  constexpr int32_t kKeys = 590;
  for (const int64_t target : compiled_targets()) {
    const OnTarget on_target(target);
    Pool whole(cpu_kernels(), h);
    const Tensor expected = whole.serve({{0, 0, kKeys}});
    const auto expect_rows = [&](const std::string& how, const Tensor& y, int64_t row, const Rows& piece) {
      ASSERT_EQ(bytes_of(y, row, piece.end - piece.begin), bytes_of(expected, piece.begin, piece.end - piece.begin))
          << how << ", rows " << piece.begin << " to " << piece.end << " on " << hwy::TargetName(target);
    };
    for (const int32_t chunk : {1, 7, 64}) {
      Pool pool(cpu_kernels(), h);
      for (int32_t at = 0, next = 0; at < kKeys; at = next) {
        const bool is_far_from_borders = chunk == 1 && at % 64 == 4 && at < 500;
        next = std::min(at + (is_far_from_borders ? 56 : chunk), kKeys);
        const Rows piece{0, at, next};
        ASSERT_NO_FATAL_FAILURE(expect_rows(fmt::format("chunks of {}", chunk), pool.serve({piece}), 0, piece));
      }
    }
    for (const auto& [block_tokens, threads] : {std::pair{1, 2}, {16, 3}, {64, 1}}) {
      Heads other = h;
      other.block_tokens = block_tokens;
      Pool pool(cpu_kernels(), other, threads, uint64_t(5 + threads));
      const std::string how = fmt::format("blocks of {}, {} threads", block_tokens, threads);
      const Rows first{0, 0, 500}, last{0, kKeys - 1, kKeys};
      pool.serve({first, {1, 0, 30}, {2, 0, 600}});
      pool.place(0, 500, kKeys);
      ASSERT_NO_FATAL_FAILURE(expect_rows(how, pool.serve({{1, 30, 40}, last, {2, 600, 601}}), 10, last));
      ASSERT_NO_FATAL_FAILURE(expect_rows(how, pool.attend({last}), 0, last));
      ASSERT_NO_FATAL_FAILURE(expect_rows(how, pool.attend({{0, 0, kKeys}}), 0, {0, 0, kKeys}));
    }
  }
}

// What later keys hold, even if it is no number, is nothing to the rows before them.
template <class T>
void expect_nothing_of_unseen_keys(const Heads& h, int32_t key) {
  Pool pool(cpu_kernels(), h);
  const Tensor before = pool.serve({{0, 0, 100}});
  pool.value<T>(0, key, 3) = T(HUGE_VALF);
  const Tensor after = pool.attend({{0, 0, 100}});
  const int32_t last = h.window > 0 ? std::min(key + h.window, 100) : 100;  // behind the rows that see it
  EXPECT_EQ(bytes_of(before, 0, key), bytes_of(after, 0, key)) << h.name << " " << key;
  EXPECT_EQ(bytes_of(before, last, 100 - last), bytes_of(after, last, 100 - last)) << h.name << " " << key;
  for (int32_t row = key; row < last; ++row)
    EXPECT_NE(bytes_of(before, row, 1), bytes_of(after, row, 1)) << h.name << " " << key << " " << row;
}

TEST(PagedAttentionOfCpuTest, KeysThatARowDoesNotSeeAreNothing) {
  for (const int64_t target : compiled_targets()) {
    const OnTarget on_target(target);
    for (const int window : {0, 1, 6, 7}) {
      for (const int32_t key : {0, 63, 64, 90, 91}) {
        expect_nothing_of_unseen_keys<float>({.name = "f32", .window = window, .block_tokens = 1}, key);
        expect_nothing_of_unseen_keys<BFloat16>(
            {.name = "bf16", .type = DType::bf16, .pool = DType::bf16, .window = window, .block_tokens = 1}, key);
        expect_nothing_of_unseen_keys<BFloat16>({.name = "bf16_of_matrix_tiles",
                                                 .type = DType::bf16,
                                                 .pool = DType::bf16,
                                                 .dim = 64,
                                                 .window = window,
                                                 .block_tokens = 1},
                                                key);
      }
    }
  }
}

// Of lanes of which matrix tiles have few, many, and as many as they take at once.
TEST(PagedAttentionOfCpuTest, IsTheReferencesWithoutDotProductsOfBf16AndWithoutMatrixTiles) {
  static cpu::AttentionOptions used;
  Kernels chosen = cpu_kernels();
  chosen.paged_attention = [](Stream& stream, const PagedAttentionArgs& args) {
    cpu::paged_attention(stream, args, used);
  };
  for (const auto& [heads, dim, value_dim] : {std::tuple{4, 64, 40}, {35, 32, 16}, {16, 32, 16}}) {
    Heads h{.name = "bf16", .type = DType::bf16, .pool = DType::bf16};
    h.heads = heads, h.kv_heads = 1, h.dim = dim, h.value_dim = value_dim, h.softcap = heads == 35 ? 3 : 0;
    Pool expected(reference_kernels(), h, 1, 9);
    for (const Rows& p : kMixed) expected.place(p.sequence, 0, p.end);
    const ExpectedOutput output{h.name, expected.attend(kMixed), rounding_of(h.type)};
    for (const cpu::AttentionOptions& options :
         {cpu::AttentionOptions{.use_bf16_dot = false}, cpu::AttentionOptions{.use_bf16_dot = true, .use_amx = false},
          cpu::AttentionOptions{.use_bf16_dot = true, .use_amx = true}}) {
      used = options;
      Pool actual(chosen, h, 2, 9);
      for (const Rows& p : kMixed) actual.place(p.sequence, 0, p.end);
      expect_output(fmt::format("{} heads of {}", heads, dim), actual.attend(kMixed), output);
    }
  }
}

TEST(PagedAttentionOfCpuTest, MayHaveNothingToDo) {
  for (const Kernels* kernels : {&cpu_kernels(), &reference_kernels()}) {
    Pool no_heads(*kernels, {.name = "", .heads = 0, .kv_heads = 0});
    EXPECT_EQ(no_heads.serve({{0, 0, 5}}).numel(), 0);
    Pool pool(*kernels, {.name = ""});
    EXPECT_EQ(pool.serve({}).numel(), 0);
    const Tensor among_none = pool.serve({{1, 0, 0}, {0, 0, 5}, {2, 0, 0}});
    EXPECT_EQ(bytes_of(among_none), bytes_of(pool.attend({{0, 0, 5}})));
  }
}

TEST(PagedAttentionOfCpuTest, TakesNoMemoryAfterTheFirstStep) {
  Pool pool(cpu_kernels(), {.name = "f32"}, 2);
  for (const Rows& p : kMixed) pool.place(p.sequence, 0, p.end);
  pool.attend(kMixed);
  pool.bench().stream.level_scratch();
  const int64_t bytes = pool.bench().stream.scratch_bytes();
  for (int i = 0; i < 3; ++i) pool.attend(kMixed);
  EXPECT_EQ(pool.bench().stream.scratch_bytes(), bytes);
}

TEST(PlaceRowsTest, ConvertsRowsToTheirPlaces) {
  for (const Kernels* kernels : {&cpu_kernels(), &reference_kernels()}) {
    for (const DType pool_type : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
      for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
        Workbench w(2);
        const Tensor pool = w.random(pool_type, {3, 2, 2, 5}, "pool"), x = w.random(type, {3, 2, 5}, "x");
        const std::vector<double> before = w.values(pool);
        const Tensor converted = w.empty(pool_type, x.shape());
        reference_kernels().convert(w.stream, converted, x);
        const std::vector<int32_t> rows{4, 0, 3};
        kernels->place_rows(w.stream, std::array{PlaceRowsArgs{pool, x, rows.data(), RowCodes::none}});
        const std::vector<double> after = w.values(pool), placed = w.values(converted);
        for (size_t i = 0; i < after.size(); ++i) {
          const auto t = std::find(rows.begin(), rows.end(), int32_t(i / 10)) - rows.begin();
          ASSERT_EQ(after[i], t == 3 ? before[i] : placed[size_t(t) * 10 + i % 10]) << kernels->name << " " << i;
        }
      }
    }
  }
}

// Vectors of a head that are hard to round.
std::vector<std::vector<double>> hard_vectors(int dim) {
  std::vector<std::vector<double>> all;
  const auto add = [&](auto value_at) {
    all.emplace_back();
    for (int i = 0; i < dim; ++i) all.back().push_back(value_at(i));
  };
  add([](int) { return 0.0; });
  add([](int i) { return 1e-38 * i; });                                 // counts as zero
  add([](int i) { return i % 2 ? -3e38 : 1e30; });                      // the largest that there are
  add([](int i) { return (i == 0 ? 127.0 : double(i % 127) + 0.5); });  // ties of INT8
  add([](int i) {
    return i == 0 ? 448.0 : std::ldexp(double(i % 32) + 0.5, i % 9 - 10);
  });  // and of FP8, below it too
  add([](int i) { return i == 0 ? std::nan("") : 1.0; });
  add([](int i) { return i == 0 ? HUGE_VAL : 1.0; });
  return all;
}

struct Rounded {
  const char* name;
  RowCodes codes;
  double relative, absolute;  // of the largest: |number - x| <= max(relative |x|, absolute largest)
};
class RowCodesTest : public testing::TestWithParam<Rounded> {
 protected:
  static double number(RowCodes codes, uint8_t code) {
    return codes == RowCodes::int8 ? double(int8_t(code)) : double(float(Float8E4M3::from_bits(code)));
  }
};
INSTANTIATE_TEST_SUITE_P(Codes, RowCodesTest,
                         testing::Values(Rounded{"int8", RowCodes::int8, 0, 0.5 / 127},
                                         Rounded{"fp8", RowCodes::fp8, 1.0 / 16, 0x1p-10 / 448}),
                         [](const auto& test) { return std::string(test.param.name); });

// The same codes from both tables, as near to x as the formats allow.
TEST_P(RowCodesTest, AreTheNearest) {
  const auto& [name, codes, relative, absolute] = GetParam();
  for (const int dim : {1, 7, 33, 64, 100}) {
    for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
      Workbench w(2);
      std::vector<std::vector<double>> vectors = hard_vectors(dim);
      const std::vector<double> random = w.values(w.random(DType::f32, {7, dim}, "x"));
      for (auto at = random.begin(); at != random.end(); at += dim) vectors.emplace_back(at, at + dim);
      std::vector<double> flat;
      for (const auto& v : vectors) flat.insert(flat.end(), v.begin(), v.end());
      const auto tokens = int64_t(vectors.size() / 2);
      const Tensor x = w.of(type, {tokens, 2, dim}, flat);
      std::vector<int32_t> rows;
      for (int64_t t = 0; t < tokens; ++t) rows.push_back(int32_t(tokens - t));  // place 0 stays as it is
      const Tensor want = w.empty(DType::u8, {tokens + 1, 1, 2, dim + 4}), got = w.empty(DType::u8, want.shape());
      std::memset(want.raw(), 0x5a, want.bytes());
      reference_kernels().place_rows(w.stream, std::array{PlaceRowsArgs{want, x, rows.data(), codes}});
      for (const int64_t target : compiled_targets()) {
        const OnTarget on_target(target);
        std::memset(got.raw(), 0x5a, got.bytes());
        cpu_kernels().place_rows(w.stream, std::array{PlaceRowsArgs{got, x, rows.data(), codes}});
        ASSERT_TRUE(bytes_of(got) == bytes_of(want)) << hwy::TargetName(target) << ", dim " << dim;
      }
      const std::vector<double> exact = w.values(x);
      for (int64_t v = 0; v < 2 * tokens; ++v) {
        const uint8_t* const row = want.data<uint8_t>() + (rows[size_t(v / 2)] * 2 + v % 2) * (dim + 4);
        float scale = 0;
        std::memcpy(&scale, row + dim, 4);
        const auto at = exact.begin() + v * dim;
        double largest = 0;
        bool is_finite = true;
        for (int i = 0; i < dim; ++i) largest = std::max(largest, std::abs(at[i])), is_finite &= std::isfinite(at[i]);
        if (!is_finite) EXPECT_TRUE(std::isnan(scale));
        for (int i = 0; i < dim && is_finite; ++i)
          EXPECT_NEAR(double(scale) * number(codes, row[i]), at[i],
                      std::max(relative * std::abs(at[i]), absolute * largest) * (1 + 1e-5) + 0x1p-100)
              << "vector " << v << ", element " << i;
      }
    }
  }
}

// A key whose elements are off by up to e_i moves a score by up to s = scale sum |q_i| e_i, so probabilities change
// by factors of up to exp(2 s) and y by up to sum_j p_j ((exp(2 s) - 1) |v_j| + exp(2 s) e_j).
TEST_P(RowCodesTest, AttentionIsAsNearAsTheRounding) {
  const auto& [name, codes, relative, absolute] = GetParam();
  Heads h{.name = name, .dim = 16, .value_dim = 16};
  Pool coded(cpu_kernels(), [&, with = h]() mutable { return with.codes = codes, with; }()),
      exact(reference_kernels(), h);
  Workbench& w = exact.bench();
  double worst = 0;
  for (const Rows& row : {Rows{0, 0, 1}, {1, 69, 70}, {2, 1100, 1101}}) {
    exact.place(row.sequence, 0, row.end), coded.place(row.sequence, 0, row.end);
    const std::vector<double> want = w.values(exact.attend({row})), got = w.values(coded.attend({row}));
    const std::vector<double> q = w.values(exact.rows_of("q", row.sequence, row.begin, row.end, h.heads, h.dim));
    const std::vector<double> k = w.values(exact.rows_of("k", row.sequence, 0, row.end, h.kv_heads, h.dim));
    const std::vector<double> v = w.values(exact.rows_of("v", row.sequence, 0, row.end, h.kv_heads, h.dim));
    for (int head = 0; head < h.heads; ++head) {
      const auto vector_of = [&](const std::vector<double>& x, int key) {
        return std::span(x).subspan(size_t((key * h.kv_heads + head / 2) * h.dim), size_t(h.dim));
      };
      const auto rounding = [&](std::span<const double> x, size_t i) {
        double largest = 0;
        for (const double value : x) largest = std::max(largest, std::abs(value));
        return std::max(relative * std::abs(x[i]), absolute * largest);
      };
      std::vector<double> p;
      double most = 0, sum = 0;
      for (int key = 0; key < row.end; ++key) {
        double score = 0, off = 0;
        for (size_t i = 0; i < size_t(h.dim); ++i) {
          const double q_i = 0.2 * q[size_t(head * h.dim) + i];
          score += q_i * vector_of(k, key)[i], off += std::abs(q_i) * rounding(vector_of(k, key), i);
        }
        p.push_back(std::exp(score));
        sum += p.back(), most = std::max(most, off);
      }
      for (size_t i = 0; i < size_t(h.dim); ++i) {
        double bound = 1e-5;
        for (int key = 0; key < row.end; ++key)
          bound += p[size_t(key)] / sum *
                   ((std::exp(2 * most) - 1) * std::abs(vector_of(v, key)[i]) +
                    std::exp(2 * most) * rounding(vector_of(v, key), i));
        const size_t at = size_t(head * h.dim) + i;
        ASSERT_NEAR(got[at], want[at], bound) << "row " << row.begin << ", head " << head;
        worst = std::max(worst, std::abs(got[at] - want[at]));
      }
    }
  }
  RecordProperty("largest_difference", fmt::format("{:.5f}", worst));
  EXPECT_GT(worst, 1e-4) << "nothing was rounded";
}

// Arguments that are right, to be spoilt one at a time.
struct Arguments {
  Workbench w;
  std::vector<int32_t> blocks{4, 0, 2}, other{1};
  std::vector<PagedSequence> sequences{{0, 3, 9, blocks.data()}, {3, 4, 1, other.data()}};
  PagedAttentionArgs args{.y = w.empty(DType::bf16, {4, 6, 16}),
                          .q = w.empty(DType::bf16, {4, 6, 8}),
                          .keys = w.empty(DType::f16, {5, 4, 2, 8}),
                          .values = w.empty(DType::f16, {5, 4, 2, 16}),
                          .sequences = sequences.data(),
                          .num_sequences = 2,
                          .scale = 1};
};

TEST(PagedAttentionOfMetaTest, CountsWhatIsSeenOnce) {
  Arguments a;
  meta_kernels().paged_attention(a.w.stream, a.args);
  EXPECT_EQ(a.w.stream.cost.flops, (7 + 8 + 9 + 1) * 6 * (2 * (8 + 16) + 5));
  EXPECT_EQ(a.w.stream.cost.bytes, 4 * 6 * (8 + 16) * 2 + (9 + 1) * 2 * (8 + 16) * 2);
  a.w.stream.cost = {};
  a.args.window = 4, a.args.softcap = 2;
  meta_kernels().paged_attention(a.w.stream, a.args);
  EXPECT_EQ(a.w.stream.cost.flops, (3 * 4 + 1) * 6 * (2 * (8 + 16) + 5 + 4));
  EXPECT_EQ(a.w.stream.cost.bytes, 4 * 6 * (8 + 16) * 2 + (6 + 1) * 2 * (8 + 16) * 2);
  a.w.stream.cost = {};
  const std::vector<int32_t> rows{4, 0, 3};
  const Tensor pool = a.w.empty(DType::f16, {5, 4, 2, 8}), x = a.w.empty(DType::f32, {3, 2, 8});
  meta_kernels().place_rows(a.w.stream, std::array{PlaceRowsArgs{pool, x, rows.data(), RowCodes::none}});
  EXPECT_EQ(a.w.stream.cost.flops, 0);
  EXPECT_EQ(a.w.stream.cost.bytes, 3 * 16 * (4 + 2));
  a.w.stream.cost = {};
  const PlaceRowsArgs as_codes{a.w.empty(DType::u8, {5, 4, 2, 12}), x, rows.data(), RowCodes::fp8};
  meta_kernels().place_rows(a.w.stream, std::array{as_codes});
  EXPECT_EQ(a.w.stream.cost.bytes, 3 * 2 * (8 * 4 + 12));
  a.w.stream.cost = {};
  a.args.window = 0, a.args.codes = RowCodes::int8;
  a.args.keys = a.w.empty(DType::u8, {5, 4, 2, 12}), a.args.values = a.w.empty(DType::u8, {5, 4, 2, 20});
  meta_kernels().paged_attention(a.w.stream, a.args);
  EXPECT_EQ(a.w.stream.cost.bytes, 4 * 6 * (8 + 16) * 2 + (9 + 1) * 2 * (12 + 20));
}

struct Spoilt {
  const char* name;
  void (*spoil)(Arguments&);
};

class PagedArgumentsTest : public testing::TestWithParam<Spoilt> {};

TEST_P(PagedArgumentsTest, AreRefused) {
  for (const Kernels* kernels : {&cpu_kernels(), &reference_kernels(), &meta_kernels()}) {
    Arguments a;
    GetParam().spoil(a);
    EXPECT_THROW(kernels->paged_attention(a.w.stream, a.args), Error) << kernels->name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Arguments, PagedArgumentsTest,
    testing::Values(Spoilt{"block_behind_the_pool", [](Arguments& a) { a.blocks[2] = 5; }},
                    Spoilt{"block_below_0", [](Arguments& a) { a.other[0] = -1; }},
                    Spoilt{"no_blocks", [](Arguments& a) { a.sequences[1].blocks = nullptr; }},
                    Spoilt{"no_sequences", [](Arguments& a) { a.args.sequences = nullptr; }},
                    Spoilt{"a_gap", [](Arguments& a) { a.sequences[0].q_end = 2; }},
                    Spoilt{"an_overlap", [](Arguments& a) { a.sequences[1].q_begin = 2; }},
                    Spoilt{"too_few_rows", [](Arguments& a) { a.args.num_sequences = 1; }},
                    Spoilt{"too_many_rows", [](Arguments& a) { a.sequences[1].q_end = 5; }},
                    Spoilt{"fewer_keys_than_rows", [](Arguments& a) { a.sequences[0].num_keys = 2; }},
                    Spoilt{"another_head_dim", [](Arguments& a) { a.args.q = a.args.y; }},
                    Spoilt{"another_value_dim", [](Arguments& a) { a.args.y = a.args.q; }},
                    Spoilt{"dtypes_of_the_pool",
                           [](Arguments& a) {
                             a.args.values = a.w.empty(DType::f32, {5, 4, 2, 16});
                           }},
                    Spoilt{"numbers_for_codes", [](Arguments& a) { a.args.codes = RowCodes::int8; }},
                    Spoilt{"codes_for_numbers",
                           [](Arguments& a) {
                             a.args.keys = a.w.empty(DType::u8, {5, 4, 2, 8});
                             a.args.values = a.w.empty(DType::u8, {5, 4, 2, 16});
                           }},
                    Spoilt{"codes_without_scales",
                           [](Arguments& a) {
                             a.args.codes = RowCodes::fp8, a.args.keys = a.w.empty(DType::u8, {5, 4, 2, 8});
                             a.args.values = a.w.empty(DType::u8, {5, 4, 2, 16});
                           }},
                    Spoilt{
                        "uneven_heads",
                        [](Arguments& a) {
                          a.args.q = a.w.empty(DType::bf16, {4, 5, 8}), a.args.y = a.w.empty(DType::bf16, {4, 5, 16});
                        }},
                    Spoilt{"no_scale", [](Arguments& a) { a.args.scale = 0; }},
                    Spoilt{"window_below_0", [](Arguments& a) { a.args.window = -1; }}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(PlaceRowsTest, RefusesPlacesOutsideAndOtherRows) {
  for (const Kernels* kernels : {&cpu_kernels(), &reference_kernels(), &meta_kernels()}) {
    Workbench w;
    const Tensor pool = w.empty(DType::f32, {3, 2, 5}), x = w.empty(DType::f32, {2, 5});
    const std::vector<int32_t> behind{0, 6}, below{-1, 0}, right{0, 1};
    EXPECT_THROW(kernels->place_rows(w.stream, std::array{PlaceRowsArgs{pool, x, behind.data(), RowCodes::none}}),
                 Error)
        << kernels->name;
    EXPECT_THROW(kernels->place_rows(w.stream, std::array{PlaceRowsArgs{pool, x, below.data(), RowCodes::none}}),
                 Error)
        << kernels->name;
    EXPECT_THROW(kernels->place_rows(w.stream, std::array{PlaceRowsArgs{pool, x, nullptr, RowCodes::none}}), Error)
        << kernels->name;
    const auto place = [&](const Tensor& to, const Tensor& from, RowCodes codes) {
      kernels->place_rows(w.stream, std::array{PlaceRowsArgs{to, from, right.data(), codes}});
    };
    EXPECT_THROW(place(pool, w.empty(DType::f32, {2, 4}), RowCodes::none), Error) << kernels->name;
    EXPECT_THROW(place(pool, x, RowCodes::int8), Error) << kernels->name;
    EXPECT_THROW(place(w.empty(DType::u8, {3, 2, 5}), x, RowCodes::int8), Error) << kernels->name;
    EXPECT_THROW(place(w.empty(DType::u8, {3, 2, 9}), x, RowCodes::none), Error) << kernels->name;
  }
}

}  // namespace
}  // namespace weft
