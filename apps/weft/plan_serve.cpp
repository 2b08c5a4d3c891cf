// weft plan MODEL --for serve: search or one layout, in figures.
#include "plan_serve.h"

#include <filesystem>

#include "kv_dtype.h"
#include "mesh_options.h"
#include "rank_resources.h"
#include "serve_engine.h"
#include "weft/base/units.h"
#include "weft/pretrained/model_source.h"
#include "weft/train/recipe.h"

namespace weft::app {
namespace {

using namespace plan;

// What is planned, with the files that say which weights are in blocks; a preset and a configuration alone have none.
struct Opened {
  std::unique_ptr<ModelSource> source;
  ServedModel model;
};

bool has_weights(const std::string& path) {
  if (!std::filesystem::is_directory(path) || !is_hugging_face_folder(path)) return true;
  for (const auto& file : std::filesystem::directory_iterator(path)) {
    const auto kind = file.path().extension();
    if (kind == ".safetensors" || kind == ".bin") return true;
  }
  return false;
}

Opened open(const std::string& name, DType dtype, WithMtp mtp = WithMtp::no) {
  Opened o;
  if (!std::filesystem::exists(name)) {
    o.model.config = preset(name);  // which has no part that drafts
  } else if (has_weights(name)) {
    o.source = open_model(name, Checkpoint::Check::sizes, mtp);
    o.model.config = o.source->config();
  } else {
    o.model.config = model_config_of(name);
  }
  complete(o.model.config);
  if (o.model.config.bidirectional) require_writing(o.model.config, name);
  o.model.source = o.source.get(), o.model.dtype = dtype;
  return o;
}

nlohmann::json to_json(const ServeTime& t) {
  nlohmann::json parts = nlohmann::json::object();
  for (const auto& [name, seconds] : t.parts())
    if (seconds > 0) parts[name] = seconds;
  return {{"step_s", t.step_s}, {"parts_s", parts}, {"bound", t.bound()}};
}

nlohmann::json to_json(const ServePlan& p) {
  nlohmann::json stages = nlohmann::json::array(), batches = nlohmann::json::array(),
                 speculation = nlohmann::json::array();
  for (const ServedMemory& m : p.stages)
    stages.push_back({{"weights_bytes", m.weights},
                      {"kv_cache_bytes", m.cache},
                      {"state_bytes", m.states},
                      {"step_bytes", m.step}});
  for (const ServeBatch& b : p.batches)
    batches.push_back({{"batch", b.batch},
                       {"tpot_s", b.step.step_s},
                       {"tokens_per_s", b.tokens_per_s},
                       {"user_tokens_per_s", b.user_tokens_per_s},
                       {"step", to_json(b.step)},
                       {"loaded",
                        {{"batch", b.loaded_batch},
                         {"tpot_s", b.loaded.step_s},
                         {"tokens_per_s", b.loaded_tokens_per_s},
                         {"step", to_json(b.loaded)}}}});
  for (const Speculation& s : p.speculation)
    speculation.push_back({{"batch", s.batch},
                           {"draft_s", s.draft_s},
                           {"verify_s", s.verify_s},
                           {"tokens_per_step", s.tokens_per_step},
                           {"gain", s.gain}});
  nlohmann::json json = {{"layout", describe_layout(p)},
                         {"mesh", {{"tp", p.mesh.tp}, {"pp", p.mesh.pp}, {"cp", p.mesh.cp}, {"ep", p.mesh.ep}}},
                         {"replicas", p.replicas},
                         {"fits", p.fits()},
                         {"missing_bytes", p.missing_bytes},
                         {"capacity_bytes", p.capacity_bytes},
                         {"stages", stages},
                         {"fullest_stage", p.fullest},
                         {"kv_bytes_per_token", p.cache_bytes_per_token},
                         {"kv_tokens", p.cache_tokens},
                         {"sequences", p.sequences}};
  if (!p.fits()) return json;
  json["ttft_s"] = p.ttft_s, json["prefill"] = to_json(p.prefill), json["batches"] = batches;
  const ServeBatch& most = p.saturated();
  json["saturated"] = {{"batch", most.loaded_batch}, {"tokens_per_s", most.loaded_tokens_per_s}};
  if (!speculation.empty()) json["speculation"] = speculation;
  return json;
}

nlohmann::json to_json(const ServeCandidate& c) {
  nlohmann::json json = to_json(c.plan);
  json["quantize"] = c.quantize, json["loses"] = c.loses;
  if (c.plan.fits()) json["batch"] = c.batch().batch;
  return json;
}

std::string weights_of(const ServeCandidate& c, const ServePlanOptions& o) {
  return c.quantize == "auto" || c.quantize == "none" ? o.dtype : c.quantize;
}

void show_memory(const ServePlan& p, const Output& output) {
  const ServedMemory& m = p.stages[size_t(p.fullest)];
  output.text(
      fmt::format("  memory  {:.2f} of {:.2f} GiB on stage {}: weights {:.2f}, keys and values {:.2f}, a step {:.2f}",
                  gib(m.total()), gib(p.capacity_bytes), p.fullest, gib(m.weights), gib(m.cache), gib(m.step)));
  if (m.states > 0) output.text(fmt::format("          and the states of answers {:.2f}", gib(m.states)));
  output.text(fmt::format("  cache   {} bytes a token of a replica; room for {} tokens, {} answers at a time",
                          p.cache_bytes_per_token, p.cache_tokens, p.sequences));
}

void show(const ServeCandidate& c, const ServePlanOptions& o, const Output& output) {
  const ServePlan& p = c.plan;
  output.text(fmt::format("{}, weights {}", describe_layout(p), weights_of(c, o)));
  show_memory(p, output);
  if (!p.fits()) return;
  output.text(fmt::format("  prompt  {:.4g} ms to the first token of {} ({})", 1e3 * p.ttft_s, o.input_len,
                          p.prefill.bound()));
  output.text(
      "          answers       TPOT    tokens/s   of a user | with prompts: answers    TPOT    tokens/s | bound");
  for (const ServeBatch& b : p.batches)
    output.text(fmt::format("          {:>7} {:>7.2f} ms {:>11.1f} {:>11.1f} | {:>21.1f} {:>7.2f} {:>11.1f} | {}",
                            b.batch, 1e3 * b.step.step_s, b.tokens_per_s, b.user_tokens_per_s, b.loaded_batch,
                            1e3 * b.loaded.step_s, b.loaded_tokens_per_s, b.step.bound()));
  const ServeBatch& most = p.saturated();
  output.text(fmt::format("  at most {:.0f} tokens/s of answers, with {:.4g} under way on each replica; {}",
                          most.loaded_tokens_per_s, most.loaded_batch, most.loaded.bound()));
  for (const Speculation& s : p.speculation)
    output.text(fmt::format(
        "  drafts for {} answers: {:.2f} tokens a step of {:.2f} + {:.2f} ms: {:.2f} times as fast as without",
        s.batch, s.tokens_per_step, 1e3 * s.draft_s, 1e3 * s.verify_s, s.gain));
}

std::string command_of(const ServeCandidate& c, const ServePlanOptions& o) {
  const MeshShape& s = c.plan.mesh;
  std::string mesh;
  for (const auto& [axis, size] : {std::pair("tp", s.tp), {"pp", s.pp}, {"cp", s.cp}, {"ep", s.ep}})
    if (size > 1) mesh += fmt::format("{}{}={}", mesh.empty() ? " --mesh " : ",", axis, size);
  std::string text = fmt::format("weft serve {}{} --dtype {}", o.model, mesh, o.dtype);
  if (c.quantize != "auto") text += " --quantize " + c.quantize;
  if (o.kv_format) text += " --kv-dtype " + kv_dtype_name(*o.kv_format);
  text += fmt::format(" --tokens-per-step {} --max-running {}", o.tokens_per_step, o.max_running);
  if (!o.draft.empty()) text += fmt::format(" --draft {} --speculate {}", o.draft, o.speculate);
  return text;
}

// One line beside the choice.
std::string line_of(const ServeCandidate& c, const ServePlanOptions& o) {
  const ServeBatch& b = c.batch();
  return fmt::format("  {:<24} {:<6} {:>8.2f} ms TTFT {:>8.2f} ms TPOT {:>10.1f} tokens/s at most  {}",
                     describe_layout(c.plan), weights_of(c, o), 1e3 * c.plan.ttft_s, 1e3 * b.step.step_s,
                     c.plan.saturated().loaded_tokens_per_s, c.loses);
}

std::string remedy(const ServeSearchResult& found) {
  std::string text;
  if (!found.quantize_that_fits.empty()) text += fmt::format("; --quantize {} fits", found.quantize_that_fits);
  if (found.devices_that_fit > 0)
    text += fmt::format("{} {} devices would do", text.empty() ? ";" : ", or", found.devices_that_fit);
  return text.empty() ? "; not even 16 times as many devices would do" : text;
}

[[noreturn]] void refuse(const ServeSearchRequest& q, const ServeSearchResult& found, const Output& output) {
  if (found.too_slow) {
    output.json({{"fits", true}, {"keeps_limits", false}, {"nearest", to_json(*found.too_slow)}});
    const ServePlan& p = found.too_slow->plan;
    throw Error(
        "no layout of {} x {} keeps the limits: the nearest, {}, takes {:.4g} ms to the first token and "
        "{:.4g} ms to each further one; use more devices, a smaller model or fewer bits (--quantize)",
        q.serve.cluster.num_devices, q.serve.cluster.hardware.name, describe_layout(p), 1e3 * p.ttft_s,
        1e3 * p.batches.front().loaded.step_s);
  }
  const ServePlan& p = found.nearest->plan;
  output.json({{"fits", false},
               {"missing_bytes", p.missing_bytes},
               {"nearest", to_json(*found.nearest)},
               {"devices_that_fit", found.devices_that_fit}});
  throw Error("no layout of {} x {} fits: the nearest, {}, misses {:.2f} GiB on a device{}",
              q.serve.cluster.num_devices, q.serve.cluster.hardware.name, describe_layout(p), gib(p.missing_bytes),
              remedy(found));
}

void search(const ServePlanOptions& o, const ServeSearchRequest& q, const Output& output) {
  const ServeSearchResult found = search_serving(q);
  if (found.ranked.empty()) refuse(q, found, output);
  nlohmann::json ranked = nlohmann::json::array(), rounded = nlohmann::json::array();
  for (const ServeCandidate& c : found.ranked) ranked.push_back(to_json(c));
  for (const ServeCandidate& c : found.more_rounded) rounded.push_back(to_json(c));
  const ServeCandidate& choice = found.ranked.front();
  nlohmann::json json = {{"fits", true},
                         {"target", o.target},
                         {"num_layouts", found.num_layouts},
                         {"input_len", o.input_len},
                         {"output_len", o.output_len},
                         {"command", command_of(choice, o)},
                         {"ranked", ranked},
                         {"more_rounded", rounded}};
  if (found.nearest)
    json["does_not_fit"] = {{"quantize", found.nearest->quantize},
                            {"nearest", to_json(*found.nearest)},
                            {"devices_that_fit", found.devices_that_fit}};
  output.json(json);
  if (output.is_json()) return;
  output.text(fmt::format("{} layouts of {} x {}, for {}:", found.num_layouts, q.serve.cluster.num_devices,
                          q.serve.cluster.hardware.name, o.target));
  if (found.nearest)
    output.text(fmt::format("weights {} do not fit: the nearest layout, {}, misses {:.2f} GiB on a device{}",
                            weights_of(*found.nearest, o), describe_layout(found.nearest->plan),
                            gib(found.nearest->plan.missing_bytes), remedy(found)));
  show(choice, o, output);
  if (found.ranked.size() > 1) output.text("others, and what they lose on:");
  for (size_t i = 1; i < found.ranked.size() && int(i) < o.top; ++i) output.text(line_of(found.ranked[i], o));
  if (!found.more_rounded.empty()) output.text("with fewer digits in the weights:");
  for (const ServeCandidate& c : found.more_rounded) output.text(line_of(c, o));
  output.text("to serve: " + command_of(choice, o));
}

// The one layout that was asked for.
void plan_one(const ServePlanOptions& o, const ServeSearchRequest& q, const Output& output) {
  Toml toml;
  MeshOptions::apply_spec(toml, o.mesh);
  MeshShape shape = read_mesh(toml).shape;
  toml.reject_unknown();
  const int replicas = shape.dp();
  shape.replicate = 1, shape.shard = shape.ep;
  if (shape.size() * replicas != q.serve.cluster.num_devices)
    throw UsageError("--mesh {}: {} replicas of {} devices are not the {} of --cluster", o.mesh, replicas,
                     shape.size(), q.serve.cluster.num_devices);
  ServeCandidate c{.quantize = q.quantize.front()};
  ServeRequest request = q.serve;
  request.set_blocks(parse_block_choice(c.quantize));
  c.plan = plan_serving(request, shape, replicas);
  output.json(to_json(c));
  if (!output.is_json()) show(c, o, output);
  if (!c.plan.fits())
    throw Error(
        "it does not fit: {:.2f} GiB are missing on stage {}; use fewer bits (--quantize), more devices, or a "
        "smaller --tokens-per-step (weft plan without --mesh searches)",
        gib(c.plan.missing_bytes), c.plan.fullest);
}

}  // namespace

void plan_service(const ServePlanOptions& o, const Output& output) {
  const DType dtype = parse_dtype(o.dtype);
  const bool drafts_itself = o.draft == kOwnDraft;
  const Opened model = open(o.model, dtype, drafts_itself ? WithMtp::yes : WithMtp::no);
  if (drafts_itself) require_own_draft(model.model.config, o.model);
  ServeSearchRequest q;
  q.serve = {.model = model.model,
             .cluster = parse_cluster(o.cluster),
             .stack = {.has_fp8 = o.has_fp8},
             .input_len = o.input_len,
             .output_len = o.output_len,
             .block_tokens = o.block_tokens,
             .kv_format = o.kv_format,
             .tokens_per_step = o.tokens_per_step,
             .max_running = o.max_running};
  Opened draft;
  if (!o.draft.empty()) {
    q.serve.draft = {.model = {}, .draft_tokens = o.speculate, .acceptance = o.acceptance};
    if (!drafts_itself) draft = open(o.draft, dtype), q.serve.draft->model = draft.model;
  }
  if (!o.quantize.empty()) q.quantize = o.quantize;
  for (const std::string& one : q.quantize) parse_block_choice(one);
  q.target = o.target == "throughput" ? ServeTarget::throughput : ServeTarget::latency;
  q.ttft_limit_s = o.ttft_ms / 1e3, q.tpot_limit_s = o.tpot_ms / 1e3;
  if (o.mesh.empty())
    search(o, q, output);
  else
    plan_one(o, q, output);
}

}  // namespace weft::app
