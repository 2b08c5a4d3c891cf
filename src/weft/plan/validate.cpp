// validate: rows of published runs as recipes, and their errors.
#include "weft/plan/validate.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "weft/base/excerpt.h"
#include "weft/base/nearest.h"
#include "weft/plan/continued_step.h"
#include "weft/plan/published_program.h"
#include "weft/plan/search.h"
#include "weft/train/recipe_names.h"

namespace weft::plan {
namespace {

// What a row may hold: several times what was ever published. More is a mistake of the table, and would be simulated
// for hours or overflow.
constexpr int64_t kMostDevices = 1 << 16, kMostLayers = 1024, kMostExperts = 1024, kMostRows = 1024;
constexpr int64_t kMostOfSize = int64_t(1) << 24;  // as of a recipe
constexpr int64_t kMostTokens = int64_t(1) << 22;  // of a micro-batch
constexpr double kMostBlocks = 1 << 17;            // played in a step, those of ring attention's rounds for each
constexpr double kMostParams = 1e15, kMostValues = 1e13;  // of the model; of a micro-batch, between its layers

// What tables call some devices beside the catalogue's own names.
struct OtherName {
  std::string_view in_table, in_catalogue;
};
constexpr OtherName kOtherNames[] = {{"v100-32", "v100-sxm"}, {"h100-96gb-hbm2e-500w", "h100-96gb-500w"}};

Hardware device_of(const PublishedRow& f) {
  std::string name = f.text("gpu");
  for (char& c : name)
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  for (const OtherName& other : kOtherNames)
    if (name == other.in_table) name = other.in_catalogue;
  const std::vector<std::string> names = hardware_names();
  if (std::ranges::find(names, name) == names.end())
    throw UsageError("gpu = \"{}\" is not in the catalogue: write one of {}{}", excerpt(f.text("gpu")),
                     fmt::join(names, ", "), did_you_mean(name, names));
  return find_hardware(name);
}

ModelConfig model_of(const PublishedRow& f, int64_t seq) {
  const bool is_gated = f.integer("gated_mlp", 1, 0, 1) != 0;
  ModelConfig m = family_defaults(is_gated ? "llama" : "gpt2");
  m.layers = f.size("layers", kMostLayers), m.hidden = f.size("hidden", kMostOfSize);
  m.heads = f.size("heads", kMostOfSize), m.kv_heads = f.integer("kv_heads", m.heads, 1, m.heads);
  m.ffn = f.integer("ffn", 4 * m.hidden, 1, kMostOfSize);
  constexpr int64_t kUsualVocab = 50304;
  m.vocab = f.integer("vocab", kUsualVocab, 1, kMostOfSize);
  m.context = seq;
  m.head_dim = 0;
  m.dropout = 0;
  m.tie_embeddings = !is_gated;
  m.experts = f.integer("experts", 0, 0, kMostExperts);
  if (m.experts > 0) m.experts_per_token = f.integer("topk", 2, 1, m.experts), m.capacity_factor = 1;
  if (f.note("LoRA")) m.lora = {.rank = 16, .alpha = 32, .targets = lora_targets({"q", "k", "v", "o"})};
  complete(m);
  return m;
}

// FLOPs of a sequence as papers count them: no halving of causal attention. Source: Korthikanti et al., 2022.
double paper_flops(const ModelConfig& m, int64_t seq) {
  const double h = double(m.hidden), mats = 2 * h * double(m.heads * m.head_dim) +
                                            2 * h * double(m.kv_heads * m.head_dim) +
                                            (m.is_gated ? 3 : 2) * h * double(m.ffn);
  const double s = double(seq), layers = double(m.layers);
  return 6 * s * (layers * mats + double(m.vocab) * h) + 12 * layers * h * s * s;
}

// Seconds of a step, from whichever figure was printed.
double measured_seconds(const PublishedRow& f, const MeasuredRun& run) {
  if (const double s = f.number("measured_step_s", 0); s > 0) return s;
  const auto& t = run.recipe.train;
  const double devices = run.recipe.mesh.size();
  constexpr double kLeastRatio = 0.01, kMostRatio = 100;
  if (const double tokens = f.number("measured_tokens_per_s_per_gpu", 0); tokens > 0)
    return double(t.global_batch * t.seq_len) / (tokens * devices);
  const double flops = double(t.global_batch) * paper_flops(run.recipe.model, t.seq_len);
  if (const double tflops = f.number("measured_tflops_per_gpu", 0); tflops > 0) {
    if (const auto ratio = f.noted("tflops_vs_6N+12Lhs=", kLeastRatio, kMostRatio))
      return flops * *ratio / (tflops * 1e12 * devices);
    if (f.note("HARDWARE FLOPs") || (f.note("HFU-type") && f.text("recompute") == "full"))
      return flops * 4 / 3 / (tflops * 1e12 * devices);
    return 0;
  }
  if (const double mfu = f.number("measured_mfu_pct", 0); mfu > 0) {
    const double peak = run.cluster.hardware.peak(MatmulType::bf16);
    return flops * f.noted("mfu_vs_6N+12Lhs=", kLeastRatio, kMostRatio).value_or(1) / (mfu / 100 * peak * devices);
  }
  return 0;
}

// "4x100G RoCE/node", "8xHDR200", "1600 Gbps node-node": what a device has of its node's ports.
void set_network(const PublishedRow& f, Hardware& h) {
  constexpr double kMostGbit = 1e5;
  double gbit = 0;
  const std::string& notes = f.text("notes");
  for (size_t x = notes.find('x'); x != std::string::npos && gbit == 0; x = notes.find('x', x + 1)) {
    if (x == 0 || !std::isdigit(static_cast<unsigned char>(notes[x - 1]))) continue;
    char* end = nullptr;
    const double each = std::strtod(notes.c_str() + x + 1, &end);
    if (each >= 10 && each <= kMostGbit && *end == 'G') gbit = (notes[x - 1] - '0') * each;
  }
  if (const size_t at = notes.find(" Gbps node"); at != std::string::npos) {
    const std::string before = notes.substr(0, at);
    gbit = std::strtod(before.c_str() + before.rfind(' ') + 1, nullptr);  // npos + 1 == 0
    if (!(gbit >= 1 && gbit <= kMostGbit))
      throw UsageError("notes = \"{}\": write a number from 1 to {} before \"Gbps node\"", excerpt(notes), kMostGbit);
  }
  if (gbit == 0) return;
  const double bytes_per_s = gbit * 1e9 / 8 / h.devices_per_node;
  h.network.half_bytes *= bytes_per_s / h.network.bytes_per_s;  // latency takes as long
  h.network.bytes_per_s = bytes_per_s;
}

MeshShape shape_of(const PublishedRow& f, int num_devices) {
  const auto axis = [&](const char* key) { return int(f.integer(key, 1, 1, kMostDevices)); };
  MeshShape s = {.pp = axis("pp"), .shard = axis("dp"), .cp = axis("cp"), .tp = axis("tp"), .ep = axis("ep")};
  const double ranks = double(s.pp) * s.shard * s.cp * s.tp;
  if (ranks != num_devices) throw UsageError("the mesh has {:.0f} ranks, the run {}", ranks, num_devices);
  constexpr std::string_view kWithin = "zero1 within ";
  if (const auto within = f.noted(kWithin, 1, double(kMostDevices))) {
    if (*within != std::floor(*within))
      throw UsageError("notes: {}{}: write a whole number of devices", kWithin, *within);
    if (s.shard % int(*within) == 0) s.replicate = s.shard / int(*within), s.shard = int(*within);
  }
  if (s.shard * s.cp % s.ep != 0) throw UsageError("ep {} does not divide dp x cp = {}", s.ep, s.shard * s.cp);
  return s;
}

void set_mesh(const PublishedRow& f, int num_devices, Recipe& r) {
  MeshConfig& m = r.mesh;
  m.shape = shape_of(f, num_devices);
  m.zero = Zero(f.integer("zero", 0, 0, 3));
  m.sequence_parallel = f.integer("sequence_parallel", 0, 0, 1) == 1 && m.shape.tp > 1;
  if (m.shape.cp > 1) m.cp_mode = ContextMode::ring;
  if (m.shape.pp == 1) return;
  // FSDP of PyTorch keeps weights between the micro-batches of a pipeline.
  if (m.zero == Zero::parameters) m.zero = Zero::gradients;
  constexpr int kMostVirtualStages = 64;  // as of a recipe
  m.virtual_stages = int(f.integer("vpp", 1, 1, kMostVirtualStages));
  m.schedule = m.virtual_stages > 1 ? ScheduleKind::interleaved : ScheduleKind::one_f_one_b;
  if (f.note("schedule ZB-1p")) m.schedule = ScheduleKind::zb_h1;
  if (f.note("schedule ZB-2p")) m.schedule = ScheduleKind::zbv, m.virtual_stages = 2;
}

// Not printed: what is usual with a pipeline, or without.
int64_t usual_micro_batch(const MeshShape& shape, int64_t global_batch) {
  const int64_t rows = global_batch / shape.dp();
  int64_t micro_batch = shape.pp > 1 ? 1 : 4;
  while (micro_batch > 1 && rows % micro_batch != 0) micro_batch /= 2;
  return micro_batch;
}

// Throws where a step would be simulated for minutes, or has more bytes than 64 bits count.
void check_size(const Recipe& r) {
  const ModelConfig& m = r.model;
  const TrainConfig& t = r.train;
  const MeshShape& shape = r.mesh.shape;
  if (int64_t(shape.pp) * r.mesh.virtual_stages > m.layers + 2)  // the embedding and the head may have stages too
    throw UsageError("pp {} x vpp {} are more stages than the {} layers fill", shape.pp, r.mesh.virtual_stages,
                     m.layers);
  const double blocks = double(m.layers) * shape.cp * double(ContinuedStep(r).later);
  const double values = double(t.micro_batch * t.seq_len) * double(m.layers) * double(m.hidden + m.ffn);
  if (t.micro_batch * t.seq_len > kMostTokens || blocks > kMostBlocks || values > kMostValues ||
      double(m.num_params()) > kMostParams)
    throw UsageError(
        "{} layers of hidden {} and ffn {}, {} micro-batches of {} x {} tokens and cp {} are together more than is "
        "simulated for a row: correct it or leave it out",
        m.layers, m.hidden, m.ffn, t.accumulation, t.micro_batch, t.seq_len, shape.cp);
}

void set_precision(const PublishedRow& f, TrainConfig& t) {
  const std::string& precision = f.text("precision");
  t.precision = precision == "fp16" ? Precision::fp16 : precision == "fp32" ? Precision::fp32 : Precision::bf16;
  if (f.text("recompute") == "full") t.recompute.what = RecomputePolicy::What::block;
  // PyTorch and XLA with FSDP recompute every second product and what lies between; Megatron only attention's scores.
  const bool is_fsdp = f.integer("zero", 0, 0, 3) == 3;
  if (f.text("recompute") == "selective" && is_fsdp) t.recompute.what = RecomputePolicy::What::mlp;
}

MeasuredRun run_of(const PublishedRow& f) {
  MeasuredRun run;
  run.id = f.text("id");
  run.source = run.id.substr(0, run.id.rfind('-'));
  run.cluster.hardware = device_of(f);
  // Nodes that share a switch of links are one: "node" of the catalogue is what the links reach.
  constexpr int kLinksOfOneNode = 8, kMostOfNode = 1 << 12;
  int& per_node = run.cluster.hardware.devices_per_node;
  if (per_node <= kLinksOfOneNode) per_node = int(f.integer("gpus_per_node", per_node, 1, kMostOfNode));
  run.cluster.num_devices = int(f.size("n_gpus", kMostDevices));
  Recipe& r = run.recipe;
  TrainConfig& t = r.train;
  t.seq_len = f.size("seq", kMostTokens), t.global_batch = f.size("global_batch", kMostOfSize);
  set_precision(f, t);
  set_mesh(f, run.cluster.num_devices, r);
  const MeshShape& shape = r.mesh.shape;
  t.micro_batch = f.integer("micro_batch", usual_micro_batch(shape, t.global_batch), 1, kMostRows);
  r.model = model_of(f, t.seq_len);
  set_network(f, run.cluster.hardware);
  run.stack = stack_of_program(f, r, run.cluster.hardware);
  t.accumulation = t.global_batch / (t.micro_batch * shape.dp());
  if (t.accumulation * t.micro_batch * shape.dp() != t.global_batch)
    throw UsageError("global_batch {} is not a multiple of micro_batch {} x dp {}", t.global_batch, t.micro_batch,
                     shape.dp());
  check_size(r);
  run.measured_s = measured_seconds(f, run);
  if (run.measured_s <= 0) throw UsageError("no time, or a rate of which it is not known what it counts");
  constexpr double kLeast = 1e-6, kMost = 1e9;
  if (!(run.measured_s >= kLeast && run.measured_s <= kMost))
    throw UsageError("a step of {:.3g} s: only times from {} to {:.0g} s are compared", run.measured_s, kLeast,
                     kMost);
  return run;
}

std::string task_of(const MeasuredRun& run) {
  const ModelConfig& m = run.recipe.model;
  const TrainConfig& t = run.recipe.train;
  const std::string experts = m.experts > 0 ? fmt::format(" experts {} of {}", m.experts_per_token, m.experts) : "";
  return fmt::format("{}: {} layers of {}, {} heads, ffn {}{}, {} x {} tokens in {} on {} x {}", run.source, m.layers,
                     m.hidden, m.heads, m.ffn, experts, t.global_batch, t.seq_len,
                     run.stack.has_fp8 ? "fp8" : kPrecisionNames[size_t(t.precision)], run.cluster.num_devices,
                     run.cluster.hardware.name);
}

double quantile(std::vector<double> values, double q) {
  std::ranges::sort(values);
  const double at = q * double(values.size() - 1);
  const auto low = size_t(at);
  const double above = values[std::min(low + 1, values.size() - 1)];
  return values[low] + (above - values[low]) * (at - double(low));
}

}  // namespace

ReadRun read_run(const CsvRow& row) {
  const PublishedRow fields{row};
  ReadRun read{.run = {}, .id = fields.text("id"), .why_not = {}};
  try {
    read.run = run_of(fields);
  } catch (const Error& e) {
    read.why_not = e.what();
  }
  return read;
}

ErrorSummary summarise(const std::vector<ValidatedRun>& runs, std::string_view source) {
  std::vector<double> errors, sizes;
  for (const ValidatedRun& r : runs)
    if (source.empty() || r.source == source) errors.push_back(r.error()), sizes.push_back(std::abs(r.error()));
  ErrorSummary s{.count = int(errors.size())};
  if (errors.empty()) return s;
  for (const double e : sizes) s.mean += e / double(sizes.size());
  s.median = quantile(sizes, 0.5), s.p90 = quantile(sizes, 0.9), s.bias = quantile(errors, 0.5);
  return s;
}

std::vector<std::string> Validation::sources() const {
  std::vector<std::string> all;
  for (const ValidatedRun& r : runs)
    if (std::ranges::find(all, r.source) == all.end()) all.push_back(r.source);
  return all;
}

Validation validate(const std::vector<CsvRow>& rows) {
  Validation v;
  for (const CsvRow& row : rows) {
    ReadRun read = read_run(row);
    if (read.run) {
      const MeasuredRun& run = *read.run;
      try {
        const StepPlan plan = plan_step(run.recipe, run.cluster, {.stack = run.stack});
        v.runs.push_back(
            {run.id, run.source, run.measured_s, plan.step_s, plan.time, task_of(run), describe_layout(run.recipe)});
        continue;
      } catch (const Error& e) {  // weft does not run this
        read.why_not = e.what();
      }
    }
    v.left_out.push_back(std::move(read));
  }
  return v;
}

}  // namespace weft::plan
