// SGD, Lion, Adafactor and 8-bit AdamW on the cpu against the reference.
#include "cpu_everywhere.h"
#include "masters.h"
#include "moments.h"
#include "weft/kernels/cpu/cpu.h"

namespace weft {
namespace {

const int64_t kCounts[] = {0, 1, 7, 65, 256, 257, 1000, 40000};

TEST(CpuOptimizersTest, SgdEqualsReference) {
  for (const int64_t count : kCounts)
    for (const bool nesterov : {false, true})
      for (const DType dtype : {DType::bf16, DType::f16}) {
        Workbench bench;
        const Tensor master = bench.random(DType::f32, {count}, "master"), m = bench.random(DType::f32, {count}, "m");
        const Tensor grad = bench.random(DType::f32, {count}, "grad"), value = bench.empty(dtype, {count});
        const auto args = [&](const std::vector<Tensor>& t) {
          return SgdArgs{.master = t[0],
                         .value = t[1],
                         .m = t[2],
                         .grad = grad,
                         .grad_scale = 0.5f,
                         .lr = 0.01f,
                         .momentum = 0.9f,
                         .weight_decay = 0.1f,
                         .nesterov = nesterov};
        };
        const std::vector<Tensor> want = {bench.copy(master), value, bench.copy(m)};
        const auto step = [&](const Kernels& k, Stream& s, const std::vector<Tensor>& t) {
          on_masters(k, s, t[0], t[1], [&](const Tensor& master_of, const Tensor& value_of) {
            k.sgd(s, args({master_of, value_of, t[2]}));
          });
        };
        step(reference_kernels(), bench.stream, want);
        expect_everywhere(
            {{"master", want[0], 1e-6, master}, {"value", value, rounding_of(dtype)}, {"m", want[2], 1e-6, m}},
            [&](Stream& s, const std::vector<Tensor>& out) { step(cpu_kernels(), s, out); });
        const Tensor plain = bench.copy(master);
        reference_kernels().sgd(bench.stream, args({plain, {}, {}}));
        expect_everywhere({{"without m", plain, 1e-6, master}}, [&](Stream& s, const std::vector<Tensor>& out) {
          cpu::sgd(s, args({out[0], {}, {}}));
        });
      }
}

TEST(CpuOptimizersTest, LionEqualsReference) {
  for (const int64_t count : kCounts)
    for (const float softness : {0.0f, 0.5f}) {
      Workbench bench;
      const Tensor master = bench.random(DType::f32, {count}, "master"), m = bench.random(DType::f32, {count}, "m");
      const Tensor grad = bench.random(DType::f32, {count}, "grad"), value = bench.empty(DType::bf16, {count});
      if (count > 2) m.data<float>()[1] = grad.data<float>()[1] = 0;  // where the sign is 0
      const auto args = [&](const std::vector<Tensor>& t) {
        return LionArgs{.master = t[0],
                        .value = t[1],
                        .m = t[2],
                        .grad = grad,
                        .grad_scale = 0.5f,
                        .lr = 0.01f,
                        .weight_decay = 0.1f,
                        .softness = softness};
      };
      const std::vector<Tensor> want = {bench.copy(master), value, bench.copy(m)};
      const auto step = [&](const Kernels& k, Stream& s, const std::vector<Tensor>& t) {
        on_masters(k, s, t[0], t[1], [&](const Tensor& master_of, const Tensor& value_of) {
          k.lion(s, args({master_of, value_of, t[2]}));
        });
      };
      step(reference_kernels(), bench.stream, want);
      expect_everywhere(
          {{"master", want[0], 1e-6, master}, {"value", value, rounding_of(DType::bf16)}, {"m", want[2], 1e-6, m}},
          [&](Stream& s, const std::vector<Tensor>& out) { step(cpu_kernels(), s, out); });
    }
}

struct PieceCase {
  int64_t rows, cols, first, count;
};
const PieceCase kPieces[] = {{1, 1, 0, 1},  {3, 5, 0, 15},    {3, 5, 4, 3},         {3, 5, 3, 9},
                             {7, 33, 0, 0}, {7, 33, 40, 120}, {70, 130, 100, 7000}, {1, 1000, 17, 900}};

TEST(CpuOptimizersTest, AdafactorEqualsReference) {
  for (const auto& [rows, cols, first, count] : kPieces) {
    Workbench bench;
    const Tensor x = bench.random(DType::f32, {count}, "x"), master = bench.random(DType::f32, {count}, "master");
    const Tensor r = bench.random(DType::f32, {rows}, "r"), c = bench.random(DType::f32, {cols}, "c");
    const auto piece = [&](const Tensor& to_rows, const Tensor& to_cols) {
      return MatrixPiece{.x = x, .scale = 0.5f, .first = first, .rows = to_rows, .cols = to_cols};
    };
    const Tensor row_sums = bench.copy(r), col_sums = bench.copy(c);
    reference_kernels().add_factor_sums(bench.stream, piece(row_sums, col_sums));
    expect_everywhere(
        {{"row sums", row_sums, 2e-6, r}, {"column sums", col_sums, 2e-6, c}},
        [&](Stream& s, const std::vector<Tensor>& out) { cpu::add_factor_sums(s, piece(out[0], out[1])); });
    const double squares = reference_kernels().factored_squares(bench.stream, piece(r, c));
    EXPECT_NEAR(cpu::factored_squares(bench.stream, piece(r, c)), squares, 1e-5 * (1 + squares));
    const Tensor value = bench.empty(DType::bf16, {count}), want = bench.copy(master);
    const auto args = [&](const Tensor& to_master, const Tensor& to_value) {
      return AdafactorArgs{.master = to_master,
                           .value = to_value,
                           .grad = piece(r, c),
                           .lr = 0.01f,
                           .factor = 0.5f,
                           .weight_decay = 0.1f};
    };
    const auto step = [&](const Kernels& k, Stream& s, const Tensor& whole, const Tensor& beside) {
      on_masters(k, s, whole, beside,
                 [&](const Tensor& master_of, const Tensor& value_of) { k.adafactor(s, args(master_of, value_of)); });
    };
    step(reference_kernels(), bench.stream, want, value);
    expect_everywhere({{"master", want, 1e-6, master}, {"value", value, rounding_of(DType::bf16)}},
                      [&](Stream& s, const std::vector<Tensor>& out) { step(cpu_kernels(), s, out[0], out[1]); });
  }
}

TEST(CpuOptimizersTest, FactorMomentEqualsReference) {
  for (const bool is_normalised : {false, true}) {
    Workbench bench;
    const Tensor moment = bench.of(DType::f32, {3}, {1, 2, 0}), sums = bench.of(DType::f32, {3}, {8, 0, 0});
    const auto args = [&](const Tensor& m, const Tensor& s) {
      return FactorMomentArgs{
          .moment = m, .sums = s, .count = 4, .beta = 0.75f, .eps = 1e-3f, .is_normalised = is_normalised};
    };
    const Tensor want_moment = bench.copy(moment), want_sums = bench.copy(sums);
    reference_kernels().factor_moment(bench.stream, args(want_moment, want_sums));
    expect_everywhere(
        {{"moment", want_moment, 1e-6, moment}, {"factors", want_sums, 1e-6, sums}},
        [&](Stream& s, const std::vector<Tensor>& out) { cpu::factor_moment(s, args(out[0], out[1])); });
    EXPECT_NEAR(double(want_moment.data<float>()[0]), 0.75 + 0.25 * 2.001, 1e-6);
  }
}

TEST(BlockCodesTest, AreOrderedAndComeBack) {
  for (const bool is_signed : {false, true}) {
    const block_codes::Table& table = block_codes::table(is_signed);
    const int largest = is_signed ? 127 : 254;
    EXPECT_EQ(table[0], 0);
    EXPECT_EQ(table[size_t(largest)], 1);
    for (int code = 1; code <= largest; ++code) EXPECT_GT(table[size_t(code)], table[size_t(code - 1)]) << code;
    for (int code = 0; code < 256; ++code)
      if (code <= largest || (is_signed && code > 128))
        EXPECT_EQ(int(block_codes::encode(table[size_t(code)], is_signed)), code);
  }
  EXPECT_EQ(block_codes::encode(1e-20f, true), 0);
  EXPECT_EQ(block_codes::encode(1e-20f, false), 1) << "a second moment does not become zero";
}

TEST(BlockCodesTest, DecadesEndWhereTheyShould) {
  const auto by_search = [](float y) {
    int decade = block_codes::kDecades - 1;
    while (decade > 0 && y < block_codes::kEnds[size_t(decade - 1)]) --decade;
    return decade;
  };
  for (uint32_t bits = 0; bits < std::bit_cast<uint32_t>(1.0f); bits += 997) {
    const auto y = std::bit_cast<float>(bits);
    ASSERT_EQ(block_codes::decade_of(y), by_search(y)) << y;
  }
  for (const float end : block_codes::kEnds)
    for (const float y : {std::nextafter(end, 0.0f), end})
      if (y < 1) ASSERT_EQ(block_codes::decade_of(y), by_search(y)) << y;
  for (int exponent = -149; exponent < 0; ++exponent) {
    const float y = std::ldexp(1.0f, exponent);
    for (const float near : {std::nextafter(y, 0.0f), y})
      ASSERT_EQ(block_codes::decade_of(near), by_search(near)) << near;
  }
}

// Codes are compared exactly but at borders between two of them, where a rounding error decides.
TEST(CpuOptimizersTest, BlocksEqualReference) {
  for (const int64_t count : kCounts)
    for (const bool is_signed : {false, true}) {
      Workbench bench(2);
      const Tensor x = random_moments(bench, count, is_signed);
      const int64_t blocks = block_codes::num_blocks(count);
      const Tensor codes = bench.empty(DType::u8, {count}), want = bench.empty(DType::u8, {count});
      const Tensor scales = bench.empty(DType::f32, {blocks}), want_scales = bench.empty(DType::f32, {blocks});
      reference_kernels().encode_blocks(bench.stream, want, want_scales, x, is_signed);
      for (const int64_t target : compiled_targets()) {
        const OnTarget on_target(target);
        cpu::encode_blocks(bench.stream, codes, scales, x, is_signed);
        EXPECT_EQ(std::memcmp(scales.raw(), want_scales.raw(), scales.bytes()), 0);
        int64_t differ = 0;
        for (int64_t i = 0; i < count; ++i) differ += codes.data<uint8_t>()[i] != want.data<uint8_t>()[i];
        EXPECT_LE(double(differ), 1e-3 * double(count)) << hwy::TargetName(target);
        const Tensor back = bench.empty(DType::f32, {count}), again = bench.empty(DType::u8, {count});
        const Tensor again_scales = bench.empty(DType::f32, {blocks});
        cpu::decode_blocks(bench.stream, back, codes, scales, is_signed);
        cpu::encode_blocks(bench.stream, again, again_scales, back, is_signed);
        EXPECT_EQ(std::memcmp(again.raw(), codes.raw(), codes.bytes()), 0) << "decoded numbers are not their codes'";
        EXPECT_EQ(std::memcmp(again_scales.raw(), scales.raw(), scales.bytes()), 0);
      }
    }
}

TEST(CpuOptimizersTest, AdamW8EqualsReference) {
  for (const int64_t count : kCounts)
    for (const DType grad : {DType::f32, DType::bf16}) {
      Workbench bench(2);
      const SteppedAdamW8 want(bench, reference_kernels(), count, grad);
      for (const int64_t target : compiled_targets()) {
        const OnTarget on_target(target);
        const SteppedAdamW8 got(bench, cpu_kernels(), count, grad);
        EXPECT_LE(double(got.num_that_differ(want)), 1e-3 * double(count)) << hwy::TargetName(target);
      }
    }
}

}  // namespace
}  // namespace weft
