// Keys and values in 16 and 8 bits: a request still gets its own bits in any company, and a cache of as many bytes
// holds more of them.
#include "pretrained/model_on_ranks.h"
#include "serve/company.h"

namespace weft {
namespace {

struct KvCase {
  const char* name;
  RowFormat format;
  MeshShape mesh = {};
};
void PrintTo(const KvCase& c, std::ostream* out) { *out << c.name; }

class KvFormatTest : public testing::TestWithParam<KvCase> {
 protected:
  // Answers to a company of requests, and what the engine counted.
  std::pair<std::vector<ServedAnswer>, EngineStats> serve(ContinuousOptions options, size_t concurrency) const {
    std::pair<std::vector<ServedAnswer>, EngineStats> result;
    options.kv_format = GetParam().format;
    const Fill initial = [](ForwardModel& m) { m.part().initialize(m.context(), 11); };
    on_ranks(small_config(), GetParam().mesh, cpu_kernels(), DType::f32, initial, [&](ForwardModel& model) {
      with_engine(model, options, [&](ContinuousEngine& engine) {
        result.first = answers_of(engine, company(24), concurrency);
        result.second = engine.stats();
      });
    });
    return result;
  }
};

TEST_P(KvFormatTest, GivesTheSameBitsInAnyCompany) {
  const auto [alone, quiet] = serve({.kv_blocks = kCompanyContext, .max_running = 1, .keeps_prefixes = false}, 1);
  const auto [together, stats] =
      serve({.kv_blocks = 128, .block_tokens = 4, .tokens_per_step = 20, .max_draft_tokens = 2}, 0);
  EXPECT_EQ(together, alone);
  EXPECT_GT(stats.cached_tokens_total, 0);
  const auto [tight, preempted] = serve({.kv_blocks = 18, .block_tokens = 4}, 0);
  EXPECT_EQ(tight, alone);
  EXPECT_GT(preempted.preemptions_total, 0);
}

// 2 layers, 2 heads of 8 for keys and for values: 64 numbers a token, and 8 scales.
TEST_P(KvFormatTest, MoreTokensFitIntoTheSameMemory) {
  const RowFormat& format = GetParam().format;
  const int64_t bytes = 64 * int64_t(size_of(format.dtype)) + (format.codes == RowCodes::none ? 0 : 8 * 4);
  EXPECT_EQ(serve({.kv_bytes = 1 << 16, .block_tokens = 16}, 0).second.kv_blocks, (1 << 16) / (16 * bytes));
}

constexpr RowFormat kInt8 = RowFormat::of(RowCodes::int8), kFp8 = RowFormat::of(RowCodes::fp8);
INSTANTIATE_TEST_SUITE_P(Formats, KvFormatTest,
                         testing::Values(KvCase{"fp32", {}}, KvCase{"bf16", {DType::bf16}}, KvCase{"int8", kInt8},
                                         KvCase{"fp8", kFp8}, KvCase{"int8_tp2", kInt8, {.tp = 2}},
                                         KvCase{"fp8_pp2", kFp8, {.pp = 2}}, KvCase{"int8_cp2", kInt8, {.cp = 2}}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace weft
