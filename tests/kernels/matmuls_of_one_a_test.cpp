// Products of one a made together: the bits of each made alone, whatever their weights are held as.
#include <gtest/gtest.h>

#include "random_blocks.h"
#include "weft/kernels/cpu/cpu.h"

namespace weft {
namespace {

// What a product's b is held as; no block type: plain, or packed.
struct HeldB {
  std::optional<BlockType> type;
  bool is_packed = false;
};
struct OneACase {
  std::string name;
  std::vector<HeldB> b;
  bool has_gate = false;  // the last product is gated by the one before
};

std::vector<OneACase> cases() {
  std::vector<OneACase> all;
  for (const BlockType type : kBlockTypes) {
    all.push_back({fmt::format("{}", name_of(type)), {{type}, {type}, {type}}});
    all.push_back({fmt::format("{}_gated", name_of(type)), {{type}, {type}}, true});
    all.push_back({fmt::format("{}_beside_q6_k", name_of(type)), {{type}, {type}, {BlockType::q6_k}}});
  }
  const HeldB packed{.is_packed = true}, q4{BlockType::q4_0};
  all.push_back({"packed", {packed, packed, packed, packed}});
  all.push_back({"packed_gated", {packed, packed, packed}, true});
  all.push_back({"packed_beside_plain", {packed, {}, packed}});
  all.push_back({"blocks_beside_packed", {q4, packed}, true});
  return all;
}

class MatmulsOfOneA : public testing::TestWithParam<std::tuple<OneACase, DType>> {};
INSTANTIATE_TEST_SUITE_P(All, MatmulsOfOneA,
                         testing::Combine(testing::ValuesIn(cases()), testing::Values(DType::f32, DType::bf16)),
                         [](const auto& test) {
                           return fmt::format("{}_{}", std::get<0>(test.param).name,
                                              name_of(std::get<1>(test.param)));
                         });

TEST_P(MatmulsOfOneA, HaveTheBitsOfEachAlone) {
  const auto& [test, dtype] = GetParam();
  constexpr int64_t kK = 300;
  const Kernels& kernels = cpu_kernels();
  for (const int threads : {1, 3}) {
    for (const int64_t m : {0, 1, 3, 7, 12, 32, 33, 600}) {
      Workbench bench(threads);
      const Tensor a = bench.random(dtype, {m, kK}, "a");
      std::vector<MatmulArgs> together, alone;
      for (size_t i = 0; i < test.b.size(); ++i) {
        const HeldB& held = test.b[i];
        const bool is_gated = test.has_gate && i + 1 == test.b.size();
        const int64_t n = test.has_gate ? 70 : int64_t(40 + 57 * i);
        MatmulArgs product{.a = a, .transpose_b = true};
        if (held.type) {
          product.blocks_b = random_blocks(bench, *held.type, n, kK, 0);
        } else {
          product.b = bench.random(dtype, {n, kK}, fmt::format("b{}", i));
          if (held.is_packed) {
            const size_t bytes = kernels.packed_matmul_b_bytes(dtype, kK, n, true);
            product.packed_b = bench.empty(DType::u8, {int64_t(bytes)});
            kernels.pack_matmul_b(bench.stream, product.packed_b, product.b, true);
          }
        }
        for (auto* const to : {&together, &alone}) {
          MatmulArgs& p = to->emplace_back(product);
          p.y = bench.empty(dtype, {m, n});
          if (is_gated)
            p.epilogue = {.kind = Epilogue::Kind::gated, .act = bench.empty(dtype, {m, n}), .gate = (*to)[i - 1].y};
        }
      }
      kernels.matmuls_of_one_a(bench.stream, together);
      for (const MatmulArgs& p : alone) kernels.matmul(bench.stream, p);
      for (size_t i = 0; i < alone.size(); ++i) {
        EXPECT_EQ(bench.values(together[i].y), bench.values(alone[i].y)) << m << " rows, product " << i;
        if (alone[i].epilogue.act)
          EXPECT_EQ(bench.values(together[i].epilogue.act), bench.values(alone[i].epilogue.act)) << m << " rows";
      }
    }
  }
}

TEST(MatmulsOfOneARefused, WhatIsNotOfOneA) {
  Workbench bench(1);
  const Tensor a = bench.random(DType::f32, {3, 32}, "a"), other = bench.random(DType::f32, {3, 32}, "other");
  const auto product = [&](const Tensor& of) {
    return MatmulArgs{.y = bench.empty(DType::f32, {3, 8}),
                      .a = of,
                      .transpose_b = true,
                      .blocks_b = random_blocks(bench, BlockType::q8_0, 8, 32, 0)};
  };
  const std::array two{product(a), product(other)};
  EXPECT_THROW(cpu_kernels().matmuls_of_one_a(bench.stream, two), Error);
  const std::vector<MatmulArgs> many(kMostMatmulsOfOneA + 1, product(a));
  EXPECT_THROW(cpu_kernels().matmuls_of_one_a(bench.stream, many), Error);
}

TEST(MatmulsOfOneARefused, MoreThreadsThanThereAreScratchesFor) {
  Workbench bench(1025);
  MatmulArgs product{.y = bench.empty(DType::f32, {3, 8}),
                     .a = bench.random(DType::f32, {3, 32}, "a"),
                     .b = bench.random(DType::f32, {8, 32}, "b"),
                     .transpose_b = true};
  product.packed_b = bench.empty(DType::u8, {int64_t(cpu_kernels().packed_matmul_b_bytes(DType::f32, 32, 8, true))});
  EXPECT_THROW(cpu_kernels().matmuls_of_one_a(bench.stream, {&product, 1}), Error);
}

}  // namespace
}  // namespace weft
