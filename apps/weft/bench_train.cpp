// weft bench train: whole training steps of fixed shapes, with the share of each op.
#include <cmath>

#include "bench.h"
#include "limits.h"
#include "mesh_options.h"
#include "threads_option.h"
#include "weft/base/file.h"
#include "weft/base/machine.h"
#include "weft/comm/run_world.h"
#include "weft/comm/trace/trace.h"
#include "weft/train/launch.h"
#include "weft/train/op_profile.h"
#include "weft/train/recipe_names.h"
#include "weft/train/trainer.h"

namespace weft::app {
namespace {

struct BenchTrainCommand {
  std::string shape = "gpt", precision = "fp32", gradients = "fp32", optimizer = "adamw", mesh, device;
  int threads = 0, steps = 10;
  int64_t batch = 0, micro_batches = 1, seq_len = 0;
  bool by_op = false;
  Output output;
};

// The shapes that docs/benchmarks/ compares with other programs, and presets.
Recipe recipe_of(const BenchTrainCommand& o) {
  Recipe r;
  ModelConfig& m = r.model;
  if (o.shape == "gpt") {
    m = family_defaults("gpt2");
    m.layers = 6, m.heads = 6, m.hidden = 384, m.vocab = 65, m.bias = false;
    r.train.seq_len = 256, r.train.global_batch = 12;
  } else if (o.shape == "llama") {
    m = family_defaults("llama");
    m.layers = 8, m.heads = 8, m.hidden = 512, m.ffn = 1376, m.vocab = 32000;
    r.train.seq_len = 512, r.train.global_batch = 4;
  } else if (o.shape == "tiny") {
    m = family_defaults("llama");
    m.layers = 2, m.heads = 4, m.hidden = 32, m.ffn = 96, m.vocab = 65;
    r.train.seq_len = 32, r.train.global_batch = 4;
  } else {
    m = preset(o.shape);
    r.train.seq_len = std::min<int64_t>(m.context, 1024), r.train.global_batch = 4;
  }
  if (o.seq_len > 0) r.train.seq_len = o.seq_len;
  m.context = std::max(m.context, r.train.seq_len);
  complete(m);
  r.train.steps = o.steps + 1;
  if (o.batch > 0) r.train.global_batch = o.batch;
  Toml toml;
  if (!o.device.empty()) toml.apply("mesh.device=" + o.device);
  MeshOptions::apply_spec(toml, o.mesh);
  r.mesh = read_mesh(toml);
  r.train.recompute = read_recompute(toml);
  toml.apply("optimizer.name=" + o.optimizer);
  r.optimizer = read_optimizer(toml, r.train.steps);
  toml.reject_unknown();
  const int64_t parts = r.mesh.shape.dp() * o.micro_batches;
  if (r.train.global_batch % parts != 0)
    throw UsageError("{} rows do not divide by dp {} x {} micro-batches: write another --batch", r.train.global_batch,
                     r.mesh.shape.dp(), o.micro_batches);
  r.train.micro_batch = r.train.global_batch / parts, r.train.accumulation = o.micro_batches;
  r.train.precision = Precision(std::ranges::find(kPrecisionNames, o.precision) - std::begin(kPrecisionNames));
  r.train.gradients = gradient_type(o.gradients, r.train.precision, "--gradients");
  r.optimizer.schedule = {.decay = Decay::constant, .lr = 1e-4, .steps = r.train.steps};
  return r;
}

SyntheticBatches batches_of(const Recipe& r) {
  return {int32_t(r.train.seq_len), int32_t(r.train.global_batch), int32_t(r.model.vocab), 1};
}

// FLOPs of each op of one step of one rank, from the same step over meta kernels.
OpProfile cost_of(const Recipe& recipe, Stream& stream) {
  Context context{meta_kernels(), stream};
  const auto world = make_trace_communicator(0, recipe.mesh.size());
  const SyntheticBatches batches = batches_of(recipe);
  Trainer trainer(context, *world, recipe, batches);
  OpProfile profile(stream);
  context.observer = &profile;
  trainer.step();
  return profile;
}

struct Measured {
  double step_s = 0, min_s = 0, peak_flops = 0, exposed_s = 0, waited_s = 0;
  int64_t peak_bytes = 0, scratch_bytes = 0;
  std::vector<OpProfile::Entry> ops;
};

Measured measure(const BenchTrainCommand& o, const Recipe& recipe, Communicator& world, int threads) {
  RankResources rank(threads, recipe.mesh.device, world.rank());
  const SyntheticBatches batches = batches_of(recipe);
  Trainer trainer(rank.context, world, recipe, batches);
  OpProfile profile(rank.stream);
  if (o.by_op) rank.context.observer = &profile;
  Measured m;
  const Tensor sum = rank.stream.host_memory().empty(DType::f64, {1});
  std::vector<double> peaks;
  const auto probe = [&] {
    world.barrier();
    *sum.data<double>() = peak_flops(rank.stream, recipe.dtype());
    world.all_reduce(sum);
    peaks.push_back(*sum.data<double>());
  };
  probe();
  trainer.step();
  profile.reset();
  const double exposed = trainer.mesh().exposed_seconds();
  double waited = 0;
  const std::vector<double> seconds = time_calls(o.steps - 1, [&] {
    waited += trainer.step().waited_s;
    rank.stream.wait();
  });
  m.exposed_s = (trainer.mesh().exposed_seconds() - exposed) / double(o.steps);
  m.waited_s = waited / double(o.steps);
  if (recipe.mesh.device == Device::cpu) probe();  // a device may be full
  m.step_s = median(seconds);
  m.min_s = *std::min_element(seconds.begin(), seconds.end());
  m.peak_flops = *std::max_element(peaks.begin(), peaks.end());
  m.peak_bytes = rank.allocator.stats().peak_bytes;
  m.scratch_bytes = rank.stream.scratch_bytes();
  m.ops = profile.entries();
  return m;
}

void print_ops(const BenchTrainCommand& o, const Recipe& recipe, const Measured& m, nlohmann::json& rows) {
  ThreadTeam team(1);
  Allocator memory(Device::meta);
  Stream stream(team, memory);
  const OpProfile cost = cost_of(recipe, stream);
  double total = 0;
  for (const OpProfile::Entry& e : m.ops) total += e.seconds;
  std::vector<OpProfile::Entry> ops = m.ops;
  std::sort(ops.begin(), ops.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  const double rank_peak = m.peak_flops / recipe.mesh.size();
  for (const OpProfile::Entry& e : ops) {
    const OpProfile::Entry* c = cost.find(e.op, e.phase);
    const double seconds = e.seconds / double(o.steps), flops = c ? c->cost.flops : 0, bytes = c ? c->cost.bytes : 0;
    rows.push_back({{"op", e.op},
                    {"phase", name_of(e.phase)},
                    {"seconds", seconds},
                    {"share", e.seconds / total},
                    {"flops", flops},
                    {"of_peak", rank_peak > 0 ? nlohmann::json(flops / seconds / rank_peak) : nlohmann::json()},
                    {"bytes_per_s", bytes / seconds}});
    o.output.text(fmt::format("  {:<18} {:<9} {:>8.2f} ms {:>6.1f}% of the step {:>7} of peak {:>7.1f} GB/s", e.op,
                              name_of(e.phase), seconds * 1e3, 100 * e.seconds / total,
                              percent_of(flops / seconds, rank_peak), bytes / seconds / 1e9));
  }
}

void bench_train(const BenchTrainCommand& o) {
  const Recipe recipe = recipe_of(o);
  const int threads = o.threads > 0 ? o.threads : std::max(1, usable_cores() / recipe.mesh.size());
  run_world(recipe.mesh.size(), [&](Communicator& world) {
    const Measured m = measure(o, recipe, world, threads);
    if (world.rank() != 0) return;
    const double tokens = double(recipe.train.global_batch * recipe.train.seq_len);
    const double flops = recipe.model.flops_per_token(recipe.train.seq_len) * tokens / m.step_s;
    o.output.text(fmt::format(
        "{} {}{}{}: {} rank(s) of {} thread(s) ({}): median {:.1f} ms, min {:.1f} ms, {:.0f} tokens/s, "
        "{}peak {} + {} scratch a rank, {:.2f} ms in communication",
        o.shape, o.precision, o.mesh.empty() ? "" : " ", o.mesh, world.size(), threads, world.name(), m.step_s * 1e3,
        m.min_s * 1e3, tokens / m.step_s,
        m.peak_flops > 0
            ? fmt::format("MFU {} of {:.0f} GFLOP/s, ", percent_of(flops, m.peak_flops), m.peak_flops / 1e9)
            : "",
        human_bytes(uint64_t(m.peak_bytes)), human_bytes(uint64_t(m.scratch_bytes)), m.exposed_s * 1e3));
    nlohmann::json rows = nlohmann::json::array();
    if (o.by_op) print_ops(o, recipe, m, rows);
    o.output.json({{"bench", "train"},
                   {"shape", o.shape},
                   {"seq_len", recipe.train.seq_len},
                   {"precision", o.precision},
                   {"gradients", o.gradients},
                   {"optimizer", o.optimizer},
                   {"mesh", o.mesh},
                   {"device", kDeviceNames[size_t(recipe.mesh.device)]},
                   {"ranks", world.size()},
                   {"threads", threads},
                   {"step_ms", m.step_s * 1e3},
                   {"min_ms", m.min_s * 1e3},
                   {"tokens_per_s", tokens / m.step_s},
                   {"mfu", known(m.peak_flops > 0 ? flops / m.peak_flops : 0)},
                   {"peak_flops_per_s", known(m.peak_flops)},
                   {"peak_bytes", m.peak_bytes},
                   {"comm_ms", m.exposed_s * 1e3},
                   {"pipeline_wait_ms", m.waited_s * 1e3},
                   {"ops", rows}});
  });
}

}  // namespace

void add_bench_train(CLI::App& bench) {
  const auto o = std::make_shared<BenchTrainCommand>();
  CLI::App* c = bench.add_subcommand("train", "Whole training steps of fixed shapes, on made-up tokens");
  c->add_option(
       "--shape", o->shape,
       fmt::format("gpt, llama, tiny, which shows that all works, or a preset: {}", fmt::join(preset_names(), ", ")))
      ->capture_default_str();
  c->add_option("--precision", o->precision)
      ->capture_default_str()
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kPrecisionNames), std::end(kPrecisionNames))));
  c->add_option("--gradients", o->gradients, "Of layers' products: fp32, or bf16 beside bf16 and fp8")
      ->capture_default_str()
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kGradientNames), std::end(kGradientNames))));
  c->add_option("--optimizer", o->optimizer, "As optimizer.name of a recipe has it")->capture_default_str();
  c->add_option("--seq-len", o->seq_len, "Tokens of a row; 0: the shape's own, of presets up to 1024")
      ->check(CLI::Range(0, 1 << 24));
  c->add_option("--mesh", o->mesh, "Axes and sizes, and other keys of [mesh], as in dp=2,zero=1; default: one rank");
  c->add_option("--batch", o->batch, "Rows of a step; 0: the shape's own")->check(CLI::Range(0, 1 << 20));
  c->add_option("--micro-batches", o->micro_batches, "Of each data-parallel rank, in a step")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  c->add_option("--device", o->device, "Of every rank: cpu or cuda");
  add_threads(*c, o->threads, "Threads a rank; 0: the cores shared out");
  c->add_option("--steps", o->steps, "Timed steps; the median is shown")
      ->capture_default_str()
      ->check(CLI::Range(2, 100000));
  c->add_flag("--by-op", o->by_op, "Also each op's time, and its FLOPs as a share of the peak");
  o->output.add_option(*c);
  c->footer("Example: weft bench train --shape llama --precision bf16 --by-op");
  c->callback([o] { bench_train(*o); });
}

}  // namespace weft::app
