// weft bench attention: forward and backward of causal attention, as shares of the measured matmul peak; then a step
// of serving, over the blocks of a pool and over keys that lie in one piece.
#include <cmath>
#include <numeric>

#include "bench.h"
#include "kv_dtype.h"
#include "limits.h"
#include "threads_option.h"
#include "weft/autograd/ops/attention.h"
#include "weft/base/ceil_div.h"
#include "weft/kernels/without_cudnn.h"

namespace weft::app {
namespace {

struct BenchAttentionCommand {
  std::string dtype = "fp32", device = "cpu";
  std::vector<int64_t> shape;  // of a Layout; empty: the table
  int threads = 0, repeats = 10;
  std::optional<RowFormat> kv;  // none: as q
  Output output;
  RowFormat kv_format() const { return kv.value_or(RowFormat{parse_dtype(dtype)}); }
};

struct Layout {
  int64_t sequences, tokens, heads, kv_heads, head_dim;
};
constexpr Layout kLayouts[] = {
    {12, 256, 6, 6, 64}, {4, 512, 8, 8, 64}, {4, 64, 12, 12, 64}, {12, 64, 4, 4, 32}, {1, 4096, 8, 2, 128}};

struct Times {
  double forward, backward;
};

Times seconds_of(RankResources& rank, const Kernels& k, const Layout& l, DType dtype, int repeats) {
  Context& c = rank.context;
  const int64_t total = l.sequences * l.tokens;
  const auto tensor = [&](int64_t heads) {
    Tensor t = c.empty(dtype, {total, heads, l.head_dim});
    fill_with_noise(c, t);
    return t;
  };
  const Tensor q = tensor(l.heads), key = tensor(l.kv_heads), v = tensor(l.kv_heads), y = tensor(l.heads);
  const Tensor dq = tensor(l.heads), dk = tensor(l.kv_heads), dv = tensor(l.kv_heads), dy = tensor(l.heads);
  const Tensor lse = c.empty(DType::f32, {l.heads, total});
  std::vector<int32_t> starts;
  for (int64_t s = 0; s <= l.sequences; ++s) starts.push_back(int32_t(s * l.tokens));
  const std::vector<AttentionSpan> spans = causal_spans(starts);
  const AttentionShape shape{.num_heads = int(l.heads),
                             .num_kv_heads = int(l.kv_heads),
                             .head_dim = int(l.head_dim),
                             .spans = spans.data(),
                             .num_spans = int(spans.size()),
                             .scale = 1 / std::sqrt(float(l.head_dim))};
  const AttentionArgs forward{.y = y, .lse = lse, .q = q, .k = key, .v = v, .shape = shape, .dropout = {}};
  const AttentionBackwardArgs backward{.dq = dq,
                                       .dk = dk,
                                       .dv = dv,
                                       .dy = dy,
                                       .y = y,
                                       .lse = lse,
                                       .q = q,
                                       .k = key,
                                       .v = v,
                                       .shape = shape,
                                       .dropout = {}};
  return {median(time_calls(c.stream, repeats, [&] { k.attention(c.stream, forward); })),
          median(time_calls(c.stream, repeats, [&] { k.attention_backward(c.stream, backward); }))};
}

// One sequence in a step of serving.
struct Step {
  int64_t rows, keys;
};
constexpr Step kSteps[] = {{1, 4096}, {512, 2048}};
constexpr Layout kServed{.sequences = 1, .tokens = 0, .heads = 32, .kv_heads = 8, .head_dim = 128};

struct StepTimes {
  double paged, plain;
};

StepTimes seconds_of(RankResources& rank, const Layout& l, const Step& step, DType dtype, const RowFormat& format,
                     int repeats) {
  Context& c = rank.context;
  const auto tensor = [&](Shape shape) {
    Tensor t = c.empty(dtype, shape);
    fill_with_noise(c, t);
    return t;
  };
  const int64_t num_blocks = step.keys / kBlockTokens;
  const Tensor q = tensor({step.rows, l.heads, l.head_dim}), y = tensor({step.rows, l.heads, l.head_dim});
  const Tensor keys = tensor({num_blocks, kBlockTokens, l.kv_heads, l.head_dim}), values = tensor(keys.shape());
  std::vector<int32_t> blocks;
  const int64_t apart = std::gcd(num_blocks, 37) == 1 ? 37 : 41;  // prime to their number
  for (int64_t i = 0; i < num_blocks; ++i) blocks.push_back(int32_t(i * apart % num_blocks));
  const PagedSequence sequence{0, int32_t(step.rows), int32_t(step.keys), blocks.data()};
  const float scale = 1 / std::sqrt(float(l.head_dim));
  const Tensor pool =
      c.empty(format.dtype, {num_blocks, kBlockTokens, l.kv_heads, row_width(format.codes, l.head_dim)});
  std::vector<int32_t> places(size_t(step.keys));
  std::iota(places.begin(), places.end(), 0);
  const Shape in_a_row{step.keys, l.kv_heads, l.head_dim};
  c.kernels.place_rows(c.stream,
                       std::array{PlaceRowsArgs{pool, keys.reshape(in_a_row), places.data(), format.codes}});
  const Tensor second = c.empty(format.dtype, pool.shape());
  c.stream.copy(second, pool);
  const PagedAttentionArgs paged{.y = y,
                                 .q = q,
                                 .keys = pool,
                                 .values = second,
                                 .codes = format.codes,
                                 .sequences = &sequence,
                                 .num_sequences = 1,
                                 .scale = scale};
  const AttentionSpan span{.q_end = int32_t(step.rows), .k_end = int32_t(step.keys)};
  const AttentionShape shape{.num_heads = int(l.heads),
                             .num_kv_heads = int(l.kv_heads),
                             .head_dim = int(l.head_dim),
                             .spans = &span,
                             .num_spans = 1,
                             .scale = scale};
  const AttentionArgs plain{
      .y = y, .q = q, .k = keys.reshape(in_a_row), .v = values.reshape(in_a_row), .shape = shape, .dropout = {}};
  return {median(time_calls(c.stream, repeats, [&] { c.kernels.paged_attention(c.stream, paged); })),
          median(time_calls(c.stream, repeats, [&] { c.kernels.attention(c.stream, plain); }))};
}

nlohmann::json bench_steps(const BenchAttentionCommand& o, RankResources& rank, const Layout& l,
                           std::span<const Step> steps) {
  const DType dtype = parse_dtype(o.dtype);
  nlohmann::json rows = nlohmann::json::array();
  const double bandwidth = read_bandwidth(rank.stream);
  o.output.text(fmt::format("\nServing, {} heads, {} of keys and values, dim {}{}", l.heads, l.kv_heads, l.head_dim,
                            bandwidth > 0 ? fmt::format("; memory is read at {:.1f} GB/s", bandwidth * 1e-9) : ""));
  o.output.text(fmt::format("{:>6} {:>6}  {:>10} {:>10} {:>12} {:>12} {:>10}", "rows", "keys", "paged ms", "plain ms",
                            "paged GF/s", "plain GF/s", "paged GB/s"));
  for (const Step& step : steps) {
    const StepTimes t = seconds_of(rank, l, step, dtype, o.kv_format(), o.repeats);
    const double pairs = double(l.heads * step.rows) * double(2 * step.keys - step.rows + 1) / 2;
    const double flops = 4 * pairs * double(l.head_dim);
    const double bytes = 2 * double(step.keys * l.kv_heads * o.kv_format().bytes(l.head_dim));
    rows.push_back({{"rows", step.rows},
                    {"keys", step.keys},
                    {"paged_s", t.paged},
                    {"plain_s", t.plain},
                    {"flops", flops},
                    {"bytes", bytes},
                    {"read_bandwidth", known(bandwidth)}});
    o.output.text(fmt::format("{:>6} {:>6}  {:>10.3f} {:>10.3f} {:>12.1f} {:>12.1f} {:>10.1f}", step.rows, step.keys,
                              t.paged * 1e3, t.plain * 1e3, flops / t.paged * 1e-9, flops / t.plain * 1e-9,
                              bytes / t.paged * 1e-9));
  }
  return rows;
}

void bench_attention(const BenchAttentionCommand& o) {
  RankResources rank(o.threads, parse_device(o.device));
  std::vector<Layout> layouts(std::begin(kLayouts), std::end(kLayouts));
  std::vector<Step> steps(std::begin(kSteps), std::end(kSteps));
  if (!o.shape.empty()) {
    if (o.shape[2] % o.shape[3] != 0)
      throw UsageError("--shape: {} heads cannot share {} of keys and values", o.shape[2], o.shape[3]);
    layouts = {{o.shape[0], o.shape[1], o.shape[2], o.shape[3], o.shape[4]}};
    steps = {{1, round_up(o.shape[1], kBlockTokens)}};
  }
  const DType dtype = parse_dtype(o.dtype);
  const bool has_both = rank.allocator.device() == Device::cuda && has_cudnn();
  nlohmann::json rows = nlohmann::json::array();
  o.output.text(fmt::format("{:>4} {:>6} {:>6} {:>4} {:>4}  {:>10} {:>10} {:>9} {:>9}", "seqs", "tokens", "heads",
                            "kv", "dim", "forward ms", "back ms", "forward", "backward"));
  for (const Layout& l : layouts) {
    const double peak = peak_flops(rank.stream, dtype);
    // Visible pairs, each once: two products forward, five backward (one of them the scores again).
    const double pairs = double(l.sequences * l.heads) * double(l.tokens) * double(l.tokens + 1) / 2;
    const auto measure = [&](const Kernels& kernels, const char* by) {
      const Times t = seconds_of(rank, kernels, l, dtype, o.repeats);
      const double forward = 4 * pairs * double(l.head_dim) / t.forward;
      const double backward = 8 * pairs * double(l.head_dim) / t.backward;
      rows.push_back({{"sequences", l.sequences},
                      {"tokens", l.tokens},
                      {"heads", l.heads},
                      {"kv_heads", l.kv_heads},
                      {"head_dim", l.head_dim},
                      {"by", by},
                      {"forward_s", t.forward},
                      {"backward_s", t.backward},
                      {"forward_share", known(peak > 0 ? forward / peak : 0)},
                      {"backward_share", known(peak > 0 ? backward / peak : 0)}});
      o.output.text(fmt::format("{:>4} {:>6} {:>6} {:>4} {:>4}  {:>10.3f} {:>10.3f} {:>9} {:>9}{}", l.sequences,
                                l.tokens, l.heads, l.kv_heads, l.head_dim, t.forward * 1e3, t.backward * 1e3,
                                percent_of(forward, peak), percent_of(backward, peak),
                                has_both ? fmt::format("  {}", by) : ""));
    };
    measure(rank.context.kernels, has_both ? "cuDNN where it applies" : "weft");
    if (has_both) measure(cuda_kernels_without_cudnn(), "weft");
  }
  const nlohmann::json served = bench_steps(o, rank, o.shape.empty() ? kServed : layouts.front(), steps);
  o.output.json({{"bench", "attention"},
                 {"dtype", o.dtype},
                 {"device", o.device},
                 {"threads", rank.team.size()},
                 {"rows", rows},
                 {"steps", served}});
}

}  // namespace

void add_bench_attention(CLI::App& bench) {
  const auto o = std::make_shared<BenchAttentionCommand>();
  CLI::App* c =
      bench.add_subcommand("attention", "Causal attention; FLOPs count each visible pair once, as MFU does");
  c->add_option("--shape", o->shape, "Sequences,tokens,heads,heads of keys,dim; a step of serving is of as many keys")
      ->delimiter(',')
      ->expected(5)
      ->check(CLI::Range(int64_t(1), int64_t(1) << 20));
  c->add_option("--dtype", o->dtype, "fp32, bf16 or fp16")->capture_default_str();
  add_kv_dtype(*c, o->kv);
  c->add_option("--device", o->device, "cpu or cuda")->capture_default_str();
  add_threads(*c, o->threads);
  c->add_option("--repeats", o->repeats, "Timed calls; the median is shown")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  o->output.add_option(*c);
  c->footer("Example: weft bench attention --dtype bf16");
  c->callback([o] { bench_attention(*o); });
}

}  // namespace weft::app
