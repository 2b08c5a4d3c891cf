// The catalogue, how it is read, and what the cost model makes of it, beside published measurements.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "support/message_of.h"
#include "weft/base/error.h"
#include "weft/plan/cost_model.h"

namespace weft::plan {
namespace {

class CatalogueTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, CatalogueTest, testing::ValuesIn(hardware_names()), [](const auto& entry) {
  std::string name = entry.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST_P(CatalogueTest, IsReadAndIsPlausible) {
  const Hardware h = find_hardware(GetParam());
  EXPECT_EQ(h.name, GetParam());
  EXPECT_GT(h.memory_bytes, h.reserved_bytes);
  EXPECT_GE(h.node.bytes_per_s, h.network.bytes_per_s) << "the network is faster than the node";
  EXPECT_GT(h.peak(MatmulType::fp32), 0);
  const std::string_view text = hardware_text(GetParam());
  for (const char* figure : {"gib", "gb_s", "cores", "bf16", "fp16", "fp32"}) {
    const size_t at = text.find(fmt::format("\n{} = ", figure));
    if (at == std::string_view::npos) continue;
    const std::string_view line = text.substr(at + 1, text.find('\n', at + 1) - at - 1);
    const bool is_above = text.substr(0, at).rfind("\n#") == text.substr(0, at).rfind('\n');
    EXPECT_TRUE(line.find('#') != std::string_view::npos || is_above) << figure << " has no source";
  }
  // An operation a byte of memory between 10 and 1000: else some figure is off by thousands.
  const double most = std::max({h.peak(MatmulType::fp32), h.peak(MatmulType::fp16), h.peak(MatmulType::bf16)});
  EXPECT_GT(most / h.memory_bytes_per_s, 10);
  EXPECT_LT(most / h.memory_bytes_per_s, 1000);
}

TEST(HardwareTest, HasWhatWasAskedFor) {
  const std::vector<std::string> names = hardware_names();
  for (const char* name :
       {"v100-sxm", "a100-80", "h100-sxm", "h200", "b200", "gb200", "mi300x", "rtx4090", "l40s", "cpu-node"})
    EXPECT_NE(std::ranges::find(names, name), names.end()) << name;
}

TEST(HardwareTest, MistakesAreNamed) {
  const std::string text(hardware_text("h100-sxm"));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return message_of<UsageError>([&] {
      Toml toml = Toml::parse(changed, "mine.toml");
      read_hardware(toml);
    });
  };
  EXPECT_NE(with("launch_us", "launch_ms").find("device.launch_us"), std::string::npos);
  EXPECT_NE(with("gib = 80", "gib = -3").find("memory.gib"), std::string::npos);
  EXPECT_NE(with("tile = [128, 128]", "tile = [128]").find("matmul.tile"), std::string::npos);
  // 132 and 128, were they cut to 32 bits.
  EXPECT_NE(with("cores = 132", "cores = 4294967428").find("device.cores = 4294967428"), std::string::npos);
  EXPECT_NE(with("tile = [128, 128]", "tile = [4294967424, 128]").find("from 1 to 65536"), std::string::npos);
  EXPECT_NE(with("bf16 = [989, 0.8]", "bf16 = [989, 8]").find("matmul.bf16"), std::string::npos);
  EXPECT_NE(with("devices = 8", "devices = 8\ncolour = 3").find("node.colour"), std::string::npos);
  const std::string list = fmt::format("there are {}, or write a .toml file", fmt::join(hardware_names(), ", "));
  EXPECT_EQ(message_of<UsageError>([] { find_hardware("h100-sx"); }),
            "the hardware \"h100-sx\" is not known: " + list + "; did you mean h100-sxm?");
  EXPECT_EQ(message_of<UsageError>([] { find_hardware("abacus"); }), "the hardware \"abacus\" is not known: " + list);
  EXPECT_NE(message_of<UsageError>([] { parse_cluster("0xh100-sxm"); }).find("64xh100-sxm"), std::string::npos);
}

TEST(HardwareTest, ClustersAreCounted) {
  EXPECT_EQ(parse_cluster("64xh100-sxm").num_devices, 64);
  EXPECT_EQ(parse_cluster("64 x h100-sxm").num_devices, 64);
  EXPECT_EQ(parse_cluster("h100-sxm").num_devices, 8);
  EXPECT_EQ(parse_cluster("gb200").num_devices, 72);
}

// Products of a layer: M tokens, N and K as named; medians of aiconfigurator's operator database.
struct MeasuredProduct {
  const char* hardware;
  double m, n, k, tflops;
};
TEST(CostModelTest, ProductsTakeWhatWasMeasured) {
  constexpr MeasuredProduct kMeasured[] = {
      {"a100-80", 512, 8192, 8192, 257},    {"a100-80", 2048, 6144, 6144, 255},  {"a100-80", 8192, 8192, 8192, 263},
      {"a100-80", 4096, 1536, 1536, 199},   {"h100-sxm", 512, 6144, 6144, 714},  {"h100-sxm", 2048, 6144, 6144, 788},
      {"h100-sxm", 8192, 10240, 8192, 740}, {"h100-sxm", 8192, 1536, 1536, 715}, {"b200", 8192, 6144, 6144, 1500}};
  for (const MeasuredProduct& p : kMeasured) {
    Hardware alone = find_hardware(p.hardware);
    alone.sustained = 1;  // products alone, not whole steps
    const CostModel costs(alone, {});
    const double bytes = 2 * (p.m * p.n + p.m * p.k + p.n * p.k);
    const double seconds = costs.matmul_s(p.m, p.n, p.k, MatmulType::bf16, bytes) + costs.hardware().launch_s;
    const double tflops = 2 * p.m * p.n * p.k / seconds / 1e12;
    EXPECT_NEAR(tflops / p.tflops, 1, 0.2) << p.hardware << " " << p.m << " x " << p.n << " x " << p.k;
  }
}

// Eight devices of a node; bus bandwidths of nccl-tests from the same database, in GB/s.
struct MeasuredCollective {
  const char* hardware;
  CommOp op;
  double mib, bus_gb_s;
};
TEST(CostModelTest, CollectivesTakeWhatWasMeasured) {
  constexpr MeasuredCollective kMeasured[] = {
      {"a100-80", CommOp::all_reduce, 512, 222},  {"a100-80", CommOp::all_reduce, 64, 197},
      {"a100-80", CommOp::all_reduce, 16, 136},   {"a100-80", CommOp::all_gather, 512, 205},
      {"h100-sxm", CommOp::all_gather, 512, 335}, {"h100-sxm", CommOp::all_gather, 64, 281},
      {"h100-sxm", CommOp::all_gather, 16, 214},  {"b200", CommOp::all_gather, 512, 617}};
  for (const MeasuredCollective& c : kMeasured) {
    const CostModel costs(find_hardware(c.hardware), {.tp = 8});
    const double whole = c.mib * (1 << 20), bytes = c.op == CommOp::all_reduce ? whole : whole / 8;
    const double sent = c.op == CommOp::all_reduce ? 2 * 7.0 / 8 * whole : 7.0 / 8 * whole;
    const double bus = sent / costs.collective_s(c.op, bytes, Axis::tp) / 1e9;
    EXPECT_NEAR(bus / c.bus_gb_s, 1, 0.25) << c.hardware << " " << name_of(c.op) << " " << c.mib << " MiB";
  }
}

TEST(CostModelTest, GroupsAreWhereTheMeshPutsThem) {
  const MeshShape shape{.pp = 2, .shard = 4, .cp = 2, .tp = 4};
  EXPECT_EQ(group_place(shape, Axis::tp, 8).num_nodes(), 1);
  EXPECT_EQ(group_place(shape, Axis::cp, 8).num_nodes(), 1);
  EXPECT_EQ(group_place(shape, Axis::shard, 8).num_nodes(), 4);
  EXPECT_EQ(group_place(shape, Axis::data, 8).num_nodes(), 4);
  EXPECT_EQ(group_place(shape, Axis::data, 8).per_node, 2);
  EXPECT_EQ(group_place(shape, Axis::pp, 8).num_nodes(), 2);
  EXPECT_EQ(group_place(shape, Axis::tp, 2).num_nodes(), 2);
  // Between nodes is slower.
  const CostModel costs(find_hardware("h100-sxm"), shape);
  EXPECT_GT(costs.collective_s(CommOp::all_reduce, 1e8, Axis::shard),
            2 * costs.collective_s(CommOp::all_reduce, 1e8, Axis::tp));
}

// What programs do otherwise than weft, on an H100 with tp=4, in bytes and FLOPs that are easy to count.
class StackTest : public testing::Test {
 protected:
  const Hardware hardware_ = find_hardware("h100-sxm");
  const MeshShape shape_{.shard = 8, .cp = 2, .tp = 4, .ep = 8};
  double memory_s(double bytes) const { return bytes / (hardware_.memory_bytes_per_s * hardware_.memory_reached); }
  CostModel with(const Stack& stack) const { return {hardware_, shape_, stack}; }
};

TEST_F(StackTest, ScoresInMemoryArePassesOverTheSame) {
  const CostModel costs = with({.has_fused_attention = false});
  const double pairs = 1e10, d = 128;  // visible ones; masked ones are as many
  Event e{.kind = Event::Kind::attention, .dtype = DType::bf16, .k = int32_t(d), .flops = 4 * d * pairs};
  const double products = 2 * e.flops / (989e12 * 0.5);
  EXPECT_NEAR(costs.kernel_s(e), products + memory_s(2 * pairs * 2 * 8), 1e-6);
  e.is_backward = true, e.flops = 10 * d * pairs;
  EXPECT_NEAR(costs.kernel_s(e), 2 * products + memory_s(2 * pairs * 2 * 10), 1e-6);
  const CostModel again = with({.has_fused_attention = false, .recomputes_scores = true});
  EXPECT_NEAR(again.kernel_s(e), 3 * products + memory_s(2 * pairs * 2 * 18), 1e-6);
}

TEST_F(StackTest, PartsOfARowInOrderWaitForTheLast) {
  const Event e{.kind = Event::Kind::attention, .dtype = DType::bf16, .k = 128, .flops = 1e12};
  EXPECT_NEAR(with({.has_balanced_context = false}).kernel_s(e) / with({}).kernel_s(e), 1.5, 1e-9);
  EXPECT_NEAR(with({.visible = 0.1}).kernel_s(e) / with({}).kernel_s(e), 0.1, 1e-9);
}

TEST_F(StackTest, TheDeltaRuleIsBoundByItsSumsOrItsBytes) {
  Event e{.flops = 67e12, .bytes = 1e6, .name = "recurrence_backward"};
  EXPECT_NEAR(with({}).kernel_s(e), 1, 1e-9);
  e.flops = 1;
  EXPECT_NEAR(with({}).kernel_s(e), memory_s(1e6), 1e-12);
}

TEST_F(StackTest, ActivationsAreKernelsOfTheirOwn) {
  const Event e{.kind = Event::Kind::matmul,
                .dtype = DType::bf16,
                .m = 4096,
                .n = 4096,
                .k = 4096,
                .bytes = 1e8,
                .fused_bytes = 1e9};
  const CostModel apart = with({.has_epilogues = false, .small_kernels = 2});
  EXPECT_NEAR(apart.kernel_s(e) - with({}).kernel_s(e), memory_s(2e9) + apart.launch_s(), 1e-9);
}

// Of 64 experts with 8 rows each, and of 64 with so many that each fills the card.
TEST_F(StackTest, ExpertsOfFewRowsShareALaunchAndItsWaves) {
  const auto products = [](int32_t count, int32_t rows) {
    const double bytes = 2.0 * (double(rows) * (128 + 256) + 128.0 * 256);
    return Event{.kind = Event::Kind::matmul,
                 .dtype = DType::bf16,
                 .m = rows,
                 .n = 128,
                 .k = 256,
                 .count = count,
                 .bytes = count * bytes};
  };
  const CostModel own = with({}), apart = with({.has_grouped_products = false});
  const double one = own.kernel_s(products(1, 8));
  EXPECT_EQ(own.launches_s(products(64, 8)), own.launch_s());
  EXPECT_EQ(apart.launches_s(products(64, 8)), 64 * own.launch_s());
  EXPECT_NEAR(apart.kernel_s(products(64, 8)), 64 * one, 1e-9 * one);
  EXPECT_LT(own.kernel_s(products(64, 8)), 40 * one);
  EXPECT_GE(own.kernel_s(products(64, 8)), memory_s(products(64, 8).bytes));
  EXPECT_EQ(own.launches_s(products(64, 1 << 18)), 64 * own.launch_s());
  EXPECT_NEAR(own.kernel_s(products(64, 1 << 18)), apart.kernel_s(products(64, 1 << 18)), 1e-12);
}

TEST_F(StackTest, OperandsOfWeightGradientsAreCastAlready) {
  Event e{.kind = Event::Kind::matmul, .dtype = DType::bf16, .m = 4096, .n = 4096, .k = 4096};
  const double casts = with({.has_fp8 = true}).traffic_s(e);
  EXPECT_NEAR(casts, memory_s(2.0 * 4096 * 4096), 1e-12);
  e.is_weight_gradient = true;
  EXPECT_EQ(with({.has_fp8 = true}).traffic_s(e), 0);
}

TEST_F(StackTest, OperandsOfOwnFp8ProductsAreRoundedFirst) {
  constexpr double kM = 4096, kN = 2048, kK = 1024;
  Event e{.kind = Event::Kind::matmul, .dtype = DType::bf16, .m = 4096, .n = 2048, .k = 1024};
  e.bytes = 2 * (kM * kN + kM * kK + kK * kN);
  const double plain_s = with({}).traffic_s(e);
  e.is_float8 = true, e.bytes += 4 * (kM * kK + kK * kN);
  EXPECT_NEAR(with({}).traffic_s(e) - plain_s, memory_s(3 * (kM * kK + kK * kN)), 1e-12);
  EXPECT_EQ(with({.has_fp8 = true}).kernel_s(e), with({}).kernel_s(e));
}

TEST_F(StackTest, WholeLogitsAreTallProductsAndWideLosses) {
  const Event gradient{.kind = Event::Kind::matmul,
                       .dtype = DType::bf16,
                       .is_weight_gradient = true,
                       .m = 32064,
                       .n = 4096,
                       .k = 256,
                       .bytes = 1.05e9};
  const CostModel whole = with({.whole_logits = 32064});
  EXPECT_LT(whole.kernel_s(gradient), 0.7 * with({}).kernel_s(gradient));
  const Event loss{.kind = Event::Kind::memory, .bytes = 1e9, .name = "cross_entropy"};
  EXPECT_NEAR(whole.kernel_s(loss) / with({}).kernel_s(loss), 7, 1e-9);
}

TEST_F(StackTest, CollectivesOfTpHideOrAreCopied) {
  const Event e{.kind = Event::Kind::collective, .axis = Axis::tp, .op = CommOp::all_gather, .bytes = 1e8};
  const double seconds = with({}).collective_s(e);
  EXPECT_EQ(with({}).exposed_s(e), seconds);
  EXPECT_NEAR(with({.has_tp_overlap = true}).exposed_s(e), seconds * (0.25 + Stack{}.link_slowdown), 1e-12);
  EXPECT_NEAR(with({.has_tp_copies = true}).exposed_s(e), seconds + memory_s(2 * 4 * 1e8), 1e-12);
}

TEST_F(StackTest, ExpertsTokensLeaveInParts) {
  const Event e{.kind = Event::Kind::collective, .axis = Axis::ep, .op = CommOp::all_to_all, .bytes = 1e8};
  const double whole = with({}).exposed_s(e), parts = with({.has_sharded_dispatch = true}).exposed_s(e);
  const CostModel costs = with({});
  EXPECT_NEAR(parts,
              costs.collective_s(CommOp::all_to_all, 2.5e7, Axis::ep) +
                  costs.collective_s(CommOp::all_gather, 2.5e7, Axis::tp),
              1e-12);
  EXPECT_LT(parts, whole / 2);
}

TEST_F(StackTest, GradientsAreSummedIn16Bits) {
  Event e{.kind = Event::Kind::start, .axis = Axis::shard, .op = CommOp::reduce_scatter, .bytes = 1e9};
  const CostModel narrow = with({.has_16bit_gradients = true});
  EXPECT_NEAR(narrow.collective_s(e), with({}).collective_s(CommOp::reduce_scatter, 5e8, Axis::shard), 1e-12);
  e.op = CommOp::all_gather;  // of weights
  EXPECT_EQ(narrow.collective_s(e), with({}).collective_s(e));
}

}  // namespace
}  // namespace weft::plan
