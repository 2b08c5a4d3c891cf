// validate: rows of published runs as recipes, and their errors.
#include "weft/plan/validate.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "weft/plan/published_program.h"
#include "weft/plan/search.h"
#include "weft/train/recipe_names.h"

namespace weft::plan {
namespace {

struct Named {
  std::string_view column, hardware;
};
constexpr Named kDevices[] = {
    {"V100-SXM", "v100-sxm"}, {"V100-32", "v100-sxm"}, {"A100-40", "a100-40"},
    {"A100-80", "a100-80"},   {"A800-80", "a800-80"},  {"H100-SXM", "h100-sxm"},
    {"H800", "h800"},         {"H200", "h200"},        {"B200", "b200"},
    {"GB200", "gb200"},       {"GB300", "gb300"},      {"MI300X", "mi300x"},
    {"L40S", "l40s"},         {"RTX4090", "rtx4090"},  {"H100-96GB-HBM2e-500W", "h100-96gb-500w"}};

ModelConfig model_of(const PublishedRow& f, int64_t seq) {
  const bool is_gated = f.integer("gated_mlp", 1) != 0;
  ModelConfig m = family_defaults(is_gated ? "llama" : "gpt2");
  m.layers = f.integer("layers", 0), m.hidden = f.integer("hidden", 0), m.heads = f.integer("heads", 0);
  m.kv_heads = f.integer("kv_heads", m.heads), m.ffn = f.integer("ffn", 4 * m.hidden);
  constexpr int64_t kUsualVocab = 50304;
  m.vocab = f.integer("vocab", kUsualVocab);
  m.context = seq;
  m.head_dim = 0;
  m.dropout = 0;
  m.tie_embeddings = !is_gated;
  m.experts = f.integer("experts", 0);
  if (m.experts > 0) m.experts_per_token = f.integer("topk", 2), m.capacity_factor = 1;
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
  if (const double tokens = f.number("measured_tokens_per_s_per_gpu", 0); tokens > 0)
    return double(t.global_batch * t.seq_len) / (tokens * devices);
  const double flops = double(t.global_batch) * paper_flops(run.recipe.model, t.seq_len);
  if (const double tflops = f.number("measured_tflops_per_gpu", 0); tflops > 0) {
    if (const auto ratio = f.noted("tflops_vs_6N+12Lhs=")) return flops * *ratio / (tflops * 1e12 * devices);
    if (f.note("HARDWARE FLOPs") || (f.note("HFU-type") && f.text("recompute") == "full"))
      return flops * 4 / 3 / (tflops * 1e12 * devices);
    return 0;
  }
  if (const double mfu = f.number("measured_mfu_pct", 0); mfu > 0) {
    const double peak = run.cluster.hardware.peak(MatmulType::bf16);
    return flops * f.noted("mfu_vs_6N+12Lhs=").value_or(1) / (mfu / 100 * peak * devices);
  }
  return 0;
}

// "4x100G RoCE/node", "8xHDR200", "1600 Gbps node-node": what a device has of its node's ports.
void set_network(const PublishedRow& f, Hardware& h) {
  double gbit = 0;
  const std::string& notes = f.text("notes");
  for (size_t x = notes.find('x'); x != std::string::npos && gbit == 0; x = notes.find('x', x + 1)) {
    if (x == 0 || !std::isdigit(static_cast<unsigned char>(notes[x - 1]))) continue;
    char* end = nullptr;
    const double each = std::strtod(notes.c_str() + x + 1, &end);
    if (each >= 10 && *end == 'G') gbit = (notes[x - 1] - '0') * each;
  }
  if (const size_t at = notes.find(" Gbps node"); at != std::string::npos)
    gbit = std::strtod(notes.c_str() + notes.rfind(' ', at - 1), nullptr);
  if (gbit == 0) return;
  const double bytes_per_s = gbit * 1e9 / 8 / h.devices_per_node;
  h.network.half_bytes *= bytes_per_s / h.network.bytes_per_s;  // latency takes as long
  h.network.bytes_per_s = bytes_per_s;
}

void set_mesh(const PublishedRow& f, Recipe& r) {
  MeshConfig& m = r.mesh;
  m.shape = {.pp = int(f.integer("pp", 1)),
             .shard = int(f.integer("dp", 1)),
             .cp = int(f.integer("cp", 1)),
             .tp = int(f.integer("tp", 1)),
             .ep = int(f.integer("ep", 1))};
  if (const auto within = f.noted("zero1 within "); within && *within > 0 && m.shape.shard % int(*within) == 0)
    m.shape.replicate = m.shape.shard / int(*within), m.shape.shard = int(*within);
  m.zero = Zero(std::clamp<int64_t>(f.integer("zero", 0), 0, 3));
  m.sequence_parallel = m.shape.tp > 1 && f.integer("sequence_parallel", 0) == 1;
  if (m.shape.cp > 1) m.cp_mode = ContextMode::ring;
  if (m.shape.pp == 1) return;
  // FSDP of PyTorch keeps weights between the micro-batches of a pipeline.
  if (m.zero == Zero::parameters) m.zero = Zero::gradients;
  m.virtual_stages = int(f.integer("vpp", 1));
  m.schedule = m.virtual_stages > 1 ? ScheduleKind::interleaved : ScheduleKind::one_f_one_b;
  if (f.note("schedule ZB-1p")) m.schedule = ScheduleKind::zb_h1;
  if (f.note("schedule ZB-2p")) m.schedule = ScheduleKind::zbv, m.virtual_stages = 2;
}

MeasuredRun run_of(const PublishedRow& f) {
  MeasuredRun run;
  run.id = f.text("id");
  run.source = run.id.substr(0, run.id.rfind('-'));
  const auto device = std::ranges::find(kDevices, f.text("gpu"), &Named::column);
  if (device == std::end(kDevices)) throw UsageError("gpu \"{}\" is not in the catalogue", f.text("gpu"));
  run.cluster.hardware = find_hardware(std::string(device->hardware));
  // Nodes that share a switch of links are one: "node" of the catalogue is what the links reach.
  constexpr int kLinksOfOneNode = 8;
  int& per_node = run.cluster.hardware.devices_per_node;
  if (per_node <= kLinksOfOneNode) per_node = int(f.integer("gpus_per_node", per_node));
  run.cluster.num_devices = int(f.integer("n_gpus", 0));
  Recipe& r = run.recipe;
  TrainConfig& t = r.train;
  t.seq_len = f.integer("seq", 0), t.global_batch = f.integer("global_batch", 0);
  t.micro_batch = f.integer("micro_batch", 0);
  if (t.micro_batch == 0) {  // not printed: what is usual with a pipeline, or without
    const int64_t rows = t.global_batch / std::max<int64_t>(f.integer("dp", 1), 1);
    for (t.micro_batch = f.integer("pp", 1) > 1 ? 1 : 4; t.micro_batch > 1 && rows % t.micro_batch != 0;)
      t.micro_batch /= 2;
  }
  if (t.seq_len == 0) throw UsageError("seq is not known");
  if (t.global_batch == 0) throw UsageError("global_batch is not known");
  if (f.integer("heads", 0) == 0) throw UsageError("heads are not known");
  const std::string& precision = f.text("precision");
  t.precision = precision == "fp16" ? Precision::fp16 : precision == "fp32" ? Precision::fp32 : Precision::bf16;
  if (f.text("recompute") == "full") t.recompute.what = RecomputePolicy::What::block;
  // PyTorch and XLA with FSDP recompute every second product and what lies between; Megatron only attention's scores.
  const bool is_fsdp = f.integer("zero", 0) == 3;
  if (f.text("recompute") == "selective" && is_fsdp) t.recompute.what = RecomputePolicy::What::mlp;
  set_mesh(f, r);
  const MeshShape& shape = r.mesh.shape;
  if (shape.size() != run.cluster.num_devices)
    throw UsageError("the mesh has {} ranks, the run {}", shape.size(), run.cluster.num_devices);
  r.model = model_of(f, t.seq_len);
  set_network(f, run.cluster.hardware);
  run.stack = stack_of_program(f, r, run.cluster.hardware);
  if (r.model.experts > 0 && (shape.shard * shape.cp) % shape.ep != 0) throw UsageError("ep does not divide dp x cp");
  t.accumulation = t.global_batch / (t.micro_batch * shape.dp());
  if (t.accumulation * t.micro_batch * shape.dp() != t.global_batch)
    throw UsageError("global_batch {} is not a multiple of micro_batch {} x dp {}", t.global_batch, t.micro_batch,
                     shape.dp());
  run.measured_s = measured_seconds(f, run);
  if (run.measured_s <= 0) throw UsageError("no time, or a rate of which it is not known what it counts");
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
