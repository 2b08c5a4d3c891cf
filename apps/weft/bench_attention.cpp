// weft bench attention: forward and backward of causal attention, as shares of the measured matmul peak.
#include <cmath>

#include "bench.h"
#include "rank_resources.h"
#include "weft/autograd/ops/attention.h"
#include "weft/kernels/cpu/peak.h"

namespace weft::app {
namespace {

struct Options {
  std::string dtype = "fp32";
  int threads = 0, repeats = 10;
  Output output;
};

struct Layout {
  int64_t sequences, tokens, heads, kv_heads, head_dim;
};
constexpr Layout kTable[] = {
    {12, 256, 6, 6, 64}, {4, 512, 8, 8, 64}, {4, 64, 12, 12, 64}, {12, 64, 4, 4, 32}, {1, 4096, 8, 2, 128}};

struct Times {
  double forward, backward;
};

Times seconds_of(RankResources& rank, const Layout& l, DType dtype, int repeats) {
  Context& c = rank.context;
  const Kernels& k = c.kernels;
  const int64_t total = l.sequences * l.tokens;
  const auto tensor = [&](int64_t heads) {
    Tensor t = c.empty(dtype, {total, heads, l.head_dim});
    k.fill(c.stream, t, 0.1f);
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
  return {median(time_calls(repeats, [&] { k.attention(c.stream, forward); })),
          median(time_calls(repeats, [&] { k.attention_backward(c.stream, backward); }))};
}

void bench_attention(const Options& o) {
  RankResources rank(o.threads);
  const DType dtype = parse_dtype(o.dtype);
  nlohmann::json rows = nlohmann::json::array();
  o.output.text(fmt::format("{:>4} {:>6} {:>6} {:>4} {:>4}  {:>10} {:>10} {:>9} {:>9}", "seqs", "tokens", "heads",
                            "kv", "dim", "forward ms", "back ms", "forward", "backward"));
  for (const Layout& l : kTable) {
    const double peak = cpu::measure_peak_flops(rank.team, dtype);
    const Times t = seconds_of(rank, l, dtype, o.repeats);
    // Visible pairs, each once: two products forward, five backward (one of them the scores again).
    const double pairs = double(l.sequences * l.heads) * double(l.tokens) * double(l.tokens + 1) / 2;
    const double forward = 4 * pairs * double(l.head_dim) / t.forward / peak;
    const double backward = 8 * pairs * double(l.head_dim) / t.backward / peak;
    rows.push_back({{"sequences", l.sequences},
                    {"tokens", l.tokens},
                    {"heads", l.heads},
                    {"kv_heads", l.kv_heads},
                    {"head_dim", l.head_dim},
                    {"forward_s", t.forward},
                    {"backward_s", t.backward},
                    {"forward_share", forward},
                    {"backward_share", backward}});
    o.output.text(fmt::format("{:>4} {:>6} {:>6} {:>4} {:>4}  {:>10.3f} {:>10.3f} {:>8.1f}% {:>8.1f}%", l.sequences,
                              l.tokens, l.heads, l.kv_heads, l.head_dim, t.forward * 1e3, t.backward * 1e3,
                              100 * forward, 100 * backward));
  }
  o.output.json({{"bench", "attention"}, {"dtype", o.dtype}, {"threads", rank.team.size()}, {"rows", rows}});
}

}  // namespace

void add_bench_attention(CLI::App& bench) {
  const auto o = std::make_shared<Options>();
  CLI::App* c =
      bench.add_subcommand("attention", "Causal attention; FLOPs count each visible pair once, as MFU does");
  c->add_option("--dtype", o->dtype, "fp32, bf16 or fp16")->capture_default_str();
  c->add_option("--threads", o->threads, "Cores to use; 0: all");
  c->add_option("--repeats", o->repeats, "Timed calls; the median is shown")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  o->output.add_option(*c);
  c->footer("Example: weft bench attention --dtype bf16");
  c->callback([o] { bench_attention(*o); });
}

}  // namespace weft::app
