// weft bench matmul: the three products of a linear layer, as shares of the measured peak.
#include <span>

#include "bench.h"
#include "limits.h"
#include "threads_option.h"
#include "weft/kernels/grouped_matmul.h"
#include "weft/pretrained/held_blocks.h"
#include "weft/tensor/host_access.h"

namespace weft::app {
namespace {

struct BenchMatmulCommand {
  std::vector<int64_t> shape;  // M, K, N; empty: the table
  std::string dtype = "fp32", blocks, device = "cpu";
  int64_t groups = 0;
  int threads = 0, repeats = 20;
  Output output;
};

struct Product {
  int64_t m, k, n;
};
// Tokens x in x out: layers of the models that docs/benchmarks/ measures, and squares.
constexpr Product kProducts[] = {{512, 512, 512},    {512, 2048, 2048}, {512, 4096, 4096}, {3072, 384, 1536},
                                 {3072, 384, 384},   {2048, 512, 1376}, {2048, 512, 512},  {512, 512, 32000},
                                 {2048, 2048, 2048}, {256, 768, 3072},  {1, 4096, 4096}};

enum class Form { forward, input_grad, weight_grad };
constexpr std::pair<Form, const char*> kForms[] = {
    {Form::forward, "y = x wT"}, {Form::input_grad, "dx = dy w"}, {Form::weight_grad, "dw = dyT x"}};

Tensor noise(Context& c, DType type, const Shape& shape) {
  Tensor t = c.empty(type, shape);
  fill_with_noise(c, t);
  return t;
}

double seconds_of(RankResources& rank, const Product& p, Form form, DType dtype, int repeats) {
  Context& c = rank.context;
  const Kernels& k = c.kernels;
  const Tensor x = noise(c, dtype, {p.m, p.k}), w = noise(c, dtype, {p.n, p.k}), y = noise(c, dtype, {p.m, p.n});
  const Tensor dw = noise(c, DType::f32, {p.n, p.k});
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
  return median(time_calls(c.stream, repeats, [&] { k.matmul(c.stream, args); }));
}

// Products of an even cut of the rows, each group's with a weight of its own: by one call, and one after the other.
struct GroupedSeconds {
  double together, alone;
};

GroupedSeconds seconds_of_groups(RankResources& rank, const Product& p, int64_t groups, Form form, DType dtype,
                                 int repeats) {
  Context& c = rank.context;
  const Kernels& k = c.kernels;
  const auto timed = [&](FunctionRef<void()> call) { return median(time_calls(c.stream, repeats, call)); };
  std::vector<int64_t> starts;
  for (int64_t g = 0; g <= groups; ++g) starts.push_back(p.m * g / groups);
  const auto each_group = [&](FunctionRef<void(int64_t begin, int64_t count, int64_t group)> body) {
    for (int64_t g = 0; g < groups; ++g)
      if (const int64_t begin = starts[size_t(g)], count = starts[size_t(g) + 1] - begin; count > 0)
        body(begin, count, g);
  };
  const Tensor x = noise(c, dtype, {p.m, p.k}), y = noise(c, dtype, {p.m, p.n});
  if (form == Form::weight_grad) {
    const Tensor dw = noise(c, DType::f32, {groups, p.n, p.k});
    const auto one = [&](int64_t begin, int64_t count, int64_t group) {
      k.matmul(c.stream, {.y = matrix_of(dw, group),
                          .a = y.slice_rows(begin, count),
                          .b = x.slice_rows(begin, count),
                          .transpose_a = true});
    };
    return {timed([&] { k.grouped_gradients(c.stream, {.y = dw, .a = y, .b = x, .starts = starts}); }),
            timed([&] { each_group(one); })};
  }
  const bool is_forward = form == Form::forward;
  const GroupedMatmulArgs all{.y = is_forward ? y : x,
                              .a = is_forward ? x : y,
                              .b = noise(c, dtype, {groups, p.n, p.k}),
                              .transpose_b = is_forward,
                              .starts = starts};
  const auto one = [&](int64_t begin, int64_t count, int64_t group) {
    k.matmul(c.stream, of_group(all, begin, count, group));
  };
  return {timed([&] { k.grouped_matmuls(c.stream, {&all, 1}); }), timed([&] { each_group(one); })};
}

void bench_groups(const BenchMatmulCommand& o, RankResources& rank, std::span<const Product> products) {
  const DType dtype = parse_dtype(o.dtype);
  nlohmann::json rows = nlohmann::json::array();
  o.output.text(fmt::format("{:>6} {:>6} {:>6}  {:<10} {:>9} {:>9} {:>8} {:>7}", "M", "K", "N", "form", "GFLOP/s",
                            "alone", "peak", "share"));
  for (const Product& p : products)
    for (const auto& [form, name] : kForms) {
      const double peak = peak_flops(rank.stream, dtype);
      const GroupedSeconds seconds = seconds_of_groups(rank, p, o.groups, form, dtype, o.repeats);
      const double flops = 2.0 * double(p.m) * double(p.k) * double(p.n);
      rows.push_back({{"m", p.m},
                      {"k", p.k},
                      {"n", p.n},
                      {"form", name},
                      {"seconds", seconds.together},
                      {"alone_seconds", seconds.alone},
                      {"flops_per_s", flops / seconds.together},
                      {"peak_flops_per_s", known(peak)},
                      {"share", known(peak > 0 ? flops / seconds.together / peak : 0)}});
      o.output.text(fmt::format("{:>6} {:>6} {:>6}  {:<10} {:>9.0f} {:>9.0f} {:>8} {:>7}", p.m, p.k, p.n, name,
                                flops / seconds.together / 1e9, flops / seconds.alone / 1e9, giga(peak, 0),
                                percent_of(flops / seconds.together, peak)));
    }
  o.output.json({{"bench", "matmul"},
                 {"groups", o.groups},
                 {"dtype", o.dtype},
                 {"device", o.device},
                 {"threads", rank.team.size()},
                 {"rows", rows}});
}

// The product with a weight in blocks. Several weights take turns where one would stay in the caches.
double seconds_of_blocks(RankResources& rank, const Product& p, BlockType type, DType dtype, int repeats) {
  constexpr int64_t kBytes = 256 << 20;
  Context& c = rank.context;
  BlockMatrix b{.blocks = {}, .type = type, .rows = p.n, .cols = p.k};
  const int64_t one = p.n * b.row_bytes(), count = std::clamp<int64_t>(kBytes / one, 1, repeats);
  const Tensor all = c.empty(DType::u8, {count, one}), x = c.empty(dtype, {p.m, p.k}), y = c.empty(dtype, {p.m, p.n});
  fill_on_host(c.stream, all, [](const Tensor& host) { std::memset(host.raw(), 0x11, host.bytes()); });
  fill_with_noise(c, x);
  int64_t turn = 0;
  return median(time_calls(c.stream, repeats, [&] {
    b.blocks = all.slice_flat(turn++ % count * one, {p.n, b.row_bytes()});
    c.kernels.matmul(c.stream, {.y = y, .a = x, .transpose_b = true, .blocks_b = b});
  }));
}

void bench_blocks(const BenchMatmulCommand& o, RankResources& rank, std::span<const Product> products) {
  const BlockType type = *block_type_named(o.blocks);
  const DType dtype = parse_dtype(o.dtype);
  nlohmann::json rows = nlohmann::json::array();
  o.output.text(fmt::format("{:>6} {:>6} {:>6}  {:>9} {:>7} {:>7}", "M", "K", "N", "GFLOP/s", "GB/s", "read"));
  for (const Product& p : products) {
    const double read = read_bandwidth(rank.stream);
    const double seconds = seconds_of_blocks(rank, p, type, dtype, o.repeats);
    const double flops = 2.0 * double(p.m) * double(p.k) * double(p.n) / seconds;
    const double bytes =
        double(p.n * ((p.k + block_elements(type) - 1) / block_elements(type)) * block_bytes(type)) / seconds;
    rows.push_back({{"m", p.m},
                    {"k", p.k},
                    {"n", p.n},
                    {"seconds", seconds},
                    {"flops_per_s", flops},
                    {"bytes_per_s", bytes},
                    {"read_bytes_per_s", known(read)}});
    o.output.text(fmt::format("{:>6} {:>6} {:>6}  {:>9.0f} {:>7.1f} {:>7}", p.m, p.k, p.n, flops / 1e9, bytes / 1e9,
                              giga(read, 1)));
  }
  o.output.json({{"bench", "matmul"},
                 {"blocks", o.blocks},
                 {"device", o.device},
                 {"threads", rank.team.size()},
                 {"rows", rows}});
}

void bench_matmul(const BenchMatmulCommand& o) {
  RankResources rank(o.threads, parse_device(o.device));
  const DType dtype = parse_dtype(o.dtype);
  std::vector<Product> products(std::begin(kProducts), std::end(kProducts));
  if (!o.shape.empty()) products = {{o.shape[0], o.shape[1], o.shape[2]}};
  if (!o.blocks.empty()) return bench_blocks(o, rank, products);
  if (o.groups > 0) return bench_groups(o, rank, products);
  nlohmann::json rows = nlohmann::json::array();
  o.output.text(
      fmt::format("{:>6} {:>6} {:>6}  {:<10} {:>9} {:>8} {:>7}", "M", "K", "N", "form", "GFLOP/s", "peak", "share"));
  for (const Product& p : products)
    for (const auto& [form, name] : kForms) {
      // The probe runs beside every row: the machine's speed drifts.
      const double peak = peak_flops(rank.stream, dtype);
      const double seconds = seconds_of(rank, p, form, dtype, o.repeats);
      const double flops = 2.0 * double(p.m) * double(p.k) * double(p.n) / seconds;
      rows.push_back({{"m", p.m},
                      {"k", p.k},
                      {"n", p.n},
                      {"form", name},
                      {"seconds", seconds},
                      {"flops_per_s", flops},
                      {"peak_flops_per_s", known(peak)},
                      {"share", known(peak > 0 ? flops / peak : 0)}});
      o.output.text(fmt::format("{:>6} {:>6} {:>6}  {:<10} {:>9.0f} {:>8} {:>7}", p.m, p.k, p.n, name, flops / 1e9,
                                giga(peak, 0), percent_of(flops, peak)));
    }
  o.output.json(
      {{"bench", "matmul"}, {"dtype", o.dtype}, {"device", o.device}, {"threads", rank.team.size()}, {"rows", rows}});
}

}  // namespace

void add_bench_matmul(CLI::App& bench) {
  const auto o = std::make_shared<BenchMatmulCommand>();
  CLI::App* c = bench.add_subcommand("matmul", "The three products of a linear layer");
  c->add_option("--shape", o->shape, "M,K,N: tokens, inputs, outputs")
      ->delimiter(',')
      ->expected(3)
      ->check(CLI::Range(int64_t(1), int64_t(1) << 20));
  c->add_option("--dtype", o->dtype, "fp32, bf16 or fp16")->capture_default_str();
  CLI::Option* const groups =
      c->add_option(
           "--groups", o->groups,
           "Cut the M rows into so many groups, each with a weight of its own, as experts have; also without "
           "doing groups together")
          ->check(CLI::Range(int64_t(1), int64_t(4096)));
  c->add_option("--blocks", o->blocks,
                fmt::format("Weights in blocks: {} (w4_: GPTQ's and AWQ's of 32 and of 128 inputs); the product "
                            "y = x wT alone",
                            fmt::join(block_type_names(), ", ")))
      ->check(CLI::IsMember(block_type_names()))
      ->excludes(groups);
  c->add_option("--device", o->device, "cpu or cuda")->capture_default_str();
  add_threads(*c, o->threads);
  c->add_option("--repeats", o->repeats, "Timed calls; the median is shown")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  o->output.add_option(*c);
  c->footer("Example: weft bench matmul --shape 512,2048,2048 --dtype bf16");
  c->callback([o] { bench_matmul(*o); });
}

}  // namespace weft::app
