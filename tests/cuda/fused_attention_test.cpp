// Attention by fused plans: which cases they take, that they are the reference's, and that none is trusted unseen.
#include "cuda/device_attention.h"
#include "cuda/emulation.h"
#include "weft/kernels/cuda/attention_ways.h"

namespace weft {
namespace {

using cuda::FusedKey;

AttentionShape shape_of(const DeviceAttention& c) {
  return {.num_heads = c.heads,
          .num_kv_heads = c.kv_heads,
          .head_dim = c.dim,
          .spans = c.spans.data(),
          .num_spans = int(c.spans.size()),
          .softcap = c.softcap,
          .window = c.window,
          .value_dim = c.value_dim};
}
std::optional<FusedKey> key_of(const DeviceAttention& c) {
  return cuda::fused_key(shape_of(c), c.type, c.queries, c.keys);
}

DeviceAttention packed(const std::string& name, const std::vector<int32_t>& starts, bool causal = true) {
  return {name, 4, 2, 16, spans_of(starts, starts, causal), starts.back(), starts.back(), DType::bf16};
}

struct Taken {
  DeviceAttention attention;
  std::optional<FusedKey> key;  // none: left to the tiles
};

std::vector<Taken> cases() {
  FusedKey key{.is_causal = true, .type = DType::bf16, .sequences = 2, .queries = 256, .keys = 256};
  key.heads = key.row_heads = 4, key.kv_heads = key.row_kv_heads = 2, key.dim = key.value_dim = 16,
  key.lse_stride = 512;
  std::vector<Taken> all{{packed("even", {0, 256, 512}), key}};
  const auto add = [&](const std::string& name, const auto& change, auto&& change_key) {
    Taken one{packed(name, {0, 256, 512}), key};
    change(one.attention), change_key(*one.key);
    all.push_back(std::move(one));
  };
  const auto leave = [&](const std::string& name, const auto& change) {
    Taken one{packed(name, {0, 256, 512}), {}};
    change(one.attention);
    all.push_back(std::move(one));
  };
  const auto none = [](FusedKey&) {};
  const auto ragged = [](int32_t sequences, int32_t longest, int64_t rows) {
    return [=](FusedKey& k) {
      k.is_ragged = true, k.sequences = sequences, k.queries = k.keys = longest, k.lse_stride = rows;
    };
  };
  const auto starts = [](std::vector<int32_t> s) { return [s](DeviceAttention& c) { c = packed(c.name, s); }; };
  add(
      "f16", [](auto& c) { c.type = DType::f16; }, [](FusedKey& k) { k.type = DType::f16; });
  add(
      "all_see_all",
      [](auto& c) {
        c = packed(c.name, {0, 256, 512}, false);
      },
      [](FusedKey& k) { k.is_causal = false; });
  add("documents", starts({0, 100, 420, 512}), ragged(4, 512, 512));
  add("odd_length", starts({0, 130}), ragged(1, 256, 130));
  add(
      "wide_window", [](auto& c) { c.window = 256; }, none);
  add(
      "window", [](auto& c) { c.window = 255; }, [](FusedKey& k) { k.window = 255; });
  add(
      "more_keys",
      [](auto& c) {
        c.spans = spans_of({0, 256, 512}, {0, 384, 768}, false), c.keys = 768;
      },
      [](FusedKey& k) { k.is_causal = false, k.keys = 384; });

  add(
      "other_values", [](auto& c) { c.value_dim = 8; }, [](FusedKey& k) { k.value_dim = 8; });

  leave("f32", [](auto& c) { c.type = DType::f32; });
  leave("short", starts({0, 100, 200}));
  leave("a_window_where_all_see_all", [](auto& c) { c = packed(c.name, {0, 256, 512}, false), c.window = 255; });
  leave("softcap", [](auto& c) { c.softcap = 30; });
  leave("odd_dim", [](auto& c) { c.dim = 20; });
  leave("odd_value_dim", [](auto& c) { c.value_dim = 20; });
  leave("a_gap", [](auto& c) { c.spans[1].q_begin = c.spans[1].k_begin = 257; });
  leave("shared_keys", [](auto& c) { c.spans[1].k_begin = 0, c.spans[1].k_end = 256, c.keys = 256; });
  leave("rows_left_over", [](auto& c) { c.queries = c.keys = 600; });
  leave("a_past", [](auto& c) { c.spans = spans_of({0, 256, 512}, {0, 384, 768}, true), c.keys = 768; });
  leave("two_kinds", [](auto& c) { c.spans[1].causal = false; });
  leave("no_spans", [](auto& c) { c.spans.clear(); });
  leave("offsets_beyond_32_bits", [](auto& c) {
    c = packed(c.name, {0, 1000, 2'100'000}), c.heads = c.kv_heads = 64;
  });
  return all;
}

class FusedKeyTest : public testing::TestWithParam<Taken> {};
INSTANTIATE_TEST_SUITE_P(Cases, FusedKeyTest, testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.attention.name; });

TEST_P(FusedKeyTest, TakesTrainingsUsualCases) { EXPECT_EQ(key_of(GetParam().attention), GetParam().key); }

TEST(FusedBackwardKeyTest, CutsToTheWorkspace) {
  FusedKey key{.is_causal = true, .sequences = 6, .queries = 1024, .keys = 1024, .heads = 8, .kv_heads = 4};
  key.row_heads = 8, key.row_kv_heads = 4, key.dim = key.value_dim = 64;
  // Of a head of a sequence: 2 MiB of scores, and 256 KiB of gradients of keys.
  const auto cut = [&](double mib) { return cuda::fused_backward_key(key, int64_t(mib * double(1 << 20))); };
  const auto part = [&](double mib) { return std::pair(cut(mib)->sequences, cut(mib)->kv_heads); };
  EXPECT_EQ(part(108), std::pair(6, 4));
  EXPECT_EQ(part(107), std::pair(3, 4));
  EXPECT_EQ(part(18), std::pair(1, 4));
  EXPECT_EQ(part(17), std::pair(1, 2));
  EXPECT_EQ(part(4.5), std::pair(1, 1));
  EXPECT_EQ(cut(4.5)->heads, 2);
  EXPECT_EQ(cut(4.5)->row_heads, 8);
  EXPECT_TRUE(cut(4.5)->is_backward);
  EXPECT_FALSE(cut(4.4));
  key.is_ragged = true;  // sequences stay together: which rows are whose is told for all
  EXPECT_EQ(part(54), std::pair(6, 2));
}

// The emulator's cuDNN, for as long as this lives; how it fails, where it does.
class OfferedCudnn : EmulatorSetting {
 public:
  explicit OfferedCudnn(const char* how) : EmulatorSetting("WEFT_EMULATED_CUDNN", how) {}
};

std::vector<DeviceAttention> fused_attentions() {
  std::vector<DeviceAttention> all{packed("even", {0, 128, 256}), packed("documents", {0, 7, 137, 138}),
                                   packed("one_odd", {0, 133}), packed("all_see_all", {0, 128, 256}, false),
                                   packed("all_see_all_ragged", {0, 20, 160}, false)};
  all.push_back({"more_keys", 2, 2, 24, spans_of({0, 128, 256}, {0, 256, 512}, false), 256, 512, DType::bf16});
  all.push_back({"fewer_keys", 2, 1, 8, spans_of({0, 200}, {0, 33}, false), 200, 33, DType::bf16});
  all.push_back(packed("window", {0, 128, 256}));
  all.back().window = 100;
  all.push_back(packed("window_ragged", {0, 140, 150}));
  all.back().window = 7;
  all.push_back(packed("other_values", {0, 128, 256}));
  all.back().value_dim = 24;
  all.push_back(packed("other_values_ragged", {0, 140, 150}));
  all.back().value_dim = 8;
  const size_t num_bf16 = all.size();
  for (size_t i = 0; i < num_bf16; ++i) {
    all[i].heads = i % 2 == 0 ? 2 : 1, all[i].kv_heads = 1;
    if (i > 2) continue;
    all.push_back(all[i]);
    all.back().type = DType::f16, all.back().name += "_f16";
  }
  all[0].heads = 4, all[0].kv_heads = 2;
  return all;
}

class FusedAttentionTest : public testing::TestWithParam<DeviceAttention> {};
INSTANTIATE_TEST_SUITE_P(Cases, FusedAttentionTest, testing::ValuesIn(fused_attentions()),
                         [](const auto& test) { return test.param.name; });

TEST_P(FusedAttentionTest, IsTheReferences) {
  const OfferedCudnn offered("right");
  ASSERT_TRUE(key_of(GetParam()));
  Workbench host, device(1, Device::cuda);
  const AttentionResults expected = attention_results(GetParam(), host, reference_kernels(), true);
  const AttentionResults tried = attention_results(GetParam(), device, cuda_kernels(), false);
  expect_near(GetParam(), expected, tried);
  EXPECT_EQ(attention_results(GetParam(), device, cuda_kernels(), false).values, tried.values)
      << "a plan that is tried gives other bits than one that is trusted";
}

struct Failing {
  std::string how;
  int dim;  // of its own: what is known of a plan is kept
};

class FailingPlanTest : public testing::TestWithParam<Failing> {};
INSTANTIATE_TEST_SUITE_P(Ways, FailingPlanTest,
                         testing::Values(Failing{"wrong", 8}, Failing{"unsteady", 24}, Failing{"refuses", 40}),
                         [](const auto& test) { return test.param.how; });

TEST_P(FailingPlanTest, IsSaidAndNotUsed) {
  Workbench host, device(1, Device::cuda);
  const DeviceAttention c{"", 1, 1, GetParam().dim, spans_of({0, 128}, {0, 128}, true), 128, 128, DType::bf16};
  const AttentionResults own = attention_results(c, device, cuda_kernels(), false);
  const OfferedCudnn offered(GetParam().how.c_str());
  if (!kIsEmulated || !cuda::has_fused_plans()) GTEST_SKIP() << "no emulated cuDNN";
  testing::internal::CaptureStderr();
  const AttentionResults first = attention_results(c, device, cuda_kernels(), false);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("cuDNN's plan for attention of 1 sequences of"), std::string::npos) << said;
  EXPECT_NE(said.find("cuDNN's plan for gradients of 1 sequences of"), std::string::npos) << said;
  EXPECT_EQ(first.values, own.values);
  testing::internal::CaptureStderr();
  EXPECT_EQ(attention_results(c, device, cuda_kernels(), false).values, own.values);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(FusedAttentionTest, ALibraryThatFailsIsSaidAndNotUsed) {
  Workbench device(1, Device::cuda);
  const DeviceAttention c{"", 1, 1, 56, spans_of({0, 128}, {0, 128}, true), 128, 128, DType::bf16};
  const AttentionResults own = attention_results(c, device, cuda_kernels(), false);
  const OfferedCudnn offered("broken");
  if (!kIsEmulated || !cuda::has_fused_plans()) GTEST_SKIP() << "no emulated cuDNN";
  testing::internal::CaptureStderr();
  EXPECT_EQ(attention_results(c, device, cuda_kernels(), false).values, own.values);
  EXPECT_EQ(attention_results(c, device, cuda_kernels(), false).values, own.values);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2) << said;
  EXPECT_NE(said.find("no plan for attention of 1 sequences of"), std::string::npos) << said;
  EXPECT_NE(said.find("cuDNN could not make a descriptor: refused"), std::string::npos) << said;
}

// What proves that the cases above are not the tiles': a plan that was trusted goes on when it turns wrong.
TEST(FusedAttentionTest, APlanIsTriedOnce) {
  Workbench device(1, Device::cuda);
  const DeviceAttention c{"", 1, 1, 48, spans_of({0, 128}, {0, 128}, true), 128, 128, DType::bf16};
  AttentionResults right;
  {
    const OfferedCudnn offered("right");
    if (!kIsEmulated || !cuda::has_fused_plans()) GTEST_SKIP() << "no emulated cuDNN";
    right = attention_results(c, device, cuda_kernels(), false);
  }
  const OfferedCudnn offered("wrong");
  const AttentionResults wrong = attention_results(c, device, cuda_kernels(), false);
  for (size_t i = 0; i < right.values.size(); ++i) EXPECT_NE(right.values[i], wrong.values[i]) << right.names[i];
}

}  // namespace
}  // namespace weft
