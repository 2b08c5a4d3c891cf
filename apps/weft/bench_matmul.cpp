// weft bench matmul: the three products of a linear layer, as shares of the measured peak.
#include "bench.h"
#include "rank_resources.h"
#include "weft/kernels/cpu/peak.h"

namespace weft::app {
namespace {

struct Options {
  std::vector<int64_t> shape;  // M, K, N; empty: the table
  std::string dtype = "fp32";
  int threads = 0, repeats = 20;
  Output output;
};

struct Product {
  int64_t m, k, n;
};
// Tokens x in x out: layers of the models that docs/benchmarks/ measures, and squares.
constexpr Product kTable[] = {{512, 512, 512},    {512, 2048, 2048}, {512, 4096, 4096}, {3072, 384, 1536},
                              {3072, 384, 384},   {2048, 512, 1376}, {2048, 512, 512},  {512, 512, 32000},
                              {2048, 2048, 2048}, {256, 768, 3072},  {1, 4096, 4096}};

enum class Form { forward, input_grad, weight_grad };
constexpr std::pair<Form, const char*> kForms[] = {
    {Form::forward, "y = x wT"}, {Form::input_grad, "dx = dy w"}, {Form::weight_grad, "dw = dyT x"}};

double seconds_of(RankResources& rank, const Product& p, Form form, DType dtype, int repeats) {
  Context& c = rank.context;
  const Kernels& k = c.kernels;
  const auto tensor = [&](DType type, Shape shape) {
    Tensor t = c.empty(type, shape);
    k.fill(c.stream, t, 0.5f);
    return t;
  };
  const Tensor x = tensor(dtype, {p.m, p.k}), w = tensor(dtype, {p.n, p.k}), y = tensor(dtype, {p.m, p.n});
  const Tensor dw = tensor(DType::f32, {p.n, p.k});
  const bool is_forward = form == Form::forward;
  Tensor packed;
  if (form != Form::weight_grad) {
    const int64_t inner = is_forward ? p.k : p.n, outer = is_forward ? p.n : p.k;
    const size_t bytes = k.packed_matmul_b_bytes(dtype, inner, outer, is_forward);
    if (bytes > 0) {
      packed = c.empty(DType::u8, {int64_t(bytes)});
      k.pack_matmul_b(c.stream, packed, w, is_forward);
    }
  }
  MatmulArgs args;
  if (is_forward)
    args = {.y = y, .a = x, .b = w, .transpose_b = true, .packed_b = packed, .epilogue = {}};
  else if (form == Form::input_grad)
    args = {.y = x, .a = y, .b = w, .packed_b = packed, .epilogue = {}};
  else
    args = {.y = dw, .a = y, .b = x, .transpose_a = true, .packed_b = {}, .epilogue = {}};
  return median(time_calls(repeats, [&] { k.matmul(c.stream, args); }));
}

void bench_matmul(const Options& o) {
  RankResources rank(o.threads);
  const DType dtype = parse_dtype(o.dtype);
  std::vector<Product> products(std::begin(kTable), std::end(kTable));
  if (!o.shape.empty()) products = {{o.shape[0], o.shape[1], o.shape[2]}};
  nlohmann::json rows = nlohmann::json::array();
  o.output.text(
      fmt::format("{:>6} {:>6} {:>6}  {:<10} {:>9} {:>8} {:>7}", "M", "K", "N", "form", "GFLOP/s", "peak", "share"));
  for (const Product& p : products)
    for (const auto& [form, name] : kForms) {
      // The probe runs beside every row: the machine's speed drifts.
      const double peak = cpu::measure_peak_flops(rank.team, dtype);
      const double seconds = seconds_of(rank, p, form, dtype, o.repeats);
      const double flops = 2.0 * double(p.m) * double(p.k) * double(p.n) / seconds;
      rows.push_back({{"m", p.m},
                      {"k", p.k},
                      {"n", p.n},
                      {"form", name},
                      {"seconds", seconds},
                      {"flops_per_s", flops},
                      {"peak_flops_per_s", peak},
                      {"share", flops / peak}});
      o.output.text(fmt::format("{:>6} {:>6} {:>6}  {:<10} {:>9.0f} {:>8.0f} {:>6.1f}%", p.m, p.k, p.n, name,
                                flops / 1e9, peak / 1e9, 100 * flops / peak));
    }
  o.output.json({{"bench", "matmul"}, {"dtype", o.dtype}, {"threads", rank.team.size()}, {"rows", rows}});
}

}  // namespace

void add_bench_matmul(CLI::App& bench) {
  const auto o = std::make_shared<Options>();
  CLI::App* c = bench.add_subcommand("matmul", "The three products of a linear layer");
  c->add_option("--shape", o->shape, "M,K,N: tokens, inputs, outputs")
      ->delimiter(',')
      ->expected(3)
      ->check(CLI::Range(int64_t(1), int64_t(1) << 20));
  c->add_option("--dtype", o->dtype, "fp32, bf16 or fp16")->capture_default_str();
  c->add_option("--threads", o->threads, "Cores to use; 0: all");
  c->add_option("--repeats", o->repeats, "Timed calls; the median is shown")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  o->output.add_option(*c);
  c->footer("Example: weft bench matmul --shape 512,2048,2048 --dtype bf16");
  c->callback([o] { bench_matmul(*o); });
}

}  // namespace weft::app
