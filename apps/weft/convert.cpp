// weft convert: a model from one form to another.
#include "command.h"
#include "mesh_options.h"
#include "rank_resources.h"
#include "weft/pretrained/export_gguf.h"
#include "weft/pretrained/gguf_family.h"
#include "weft/pretrained/held_blocks.h"
#include "weft/pretrained/merged_source.h"
#include "weft/pretrained/peft.h"
#include "weft/pretrained/random_model.h"
#include "weft/train/recipe.h"

namespace weft::app {
namespace {

struct ConvertCommand {
  std::string source, adapter, target, form, dtype, mesh;
  Output output;
};

constexpr std::string_view kHuggingFace = "hugging-face", kCheckpoint = "checkpoint", kGguf = "gguf";

std::string form_of(const ConvertCommand& o) {
  const bool is_file = o.target.ends_with(".gguf");  // by which models are opened again
  const std::string form = !o.form.empty() ? o.form : std::string(is_file ? kGguf : kHuggingFace);
  if (form != kHuggingFace && form != kCheckpoint && form != kGguf)
    throw UsageError("--to {}: write hugging-face, checkpoint or gguf", form);
  if (is_file != (form == kGguf)) throw UsageError("--to {}: DST must end in .gguf for gguf, and only then", form);
  return form;
}

ExportOptions hugging_face_options(const std::string& dtype) {
  if (dtype.empty()) return {};
  if (dtype == "int8" || dtype == "fp8" || dtype == "nf4" || dtype == "mxfp4")
    return {.codes = block_type_named(dtype)};
  if (const auto floats = dtype_named(dtype)) return {.dtype = floats};
  throw UsageError("--dtype {}: a Hugging Face folder is written in fp32, bf16, fp16, int8, fp8, nf4 or mxfp4",
                   dtype);
}

Exported export_as(const std::string& form, const ModelSource& source, const ConvertCommand& o) {
  if (form == kGguf) {
    GgufExportOptions options;
    if (!o.dtype.empty()) options.type = parse_ggml_type("--dtype", o.dtype);
    return export_gguf(source, o.target, options);
  }
  if (form == kHuggingFace) return export_hugging_face(source, o.target, hugging_face_options(o.dtype));
  if (!o.dtype.empty() && dtype_named(o.dtype) != DType::f32)
    throw UsageError("--dtype {}: checkpoints hold fp32 weights: leave --dtype out", o.dtype);
  return export_checkpoint(source, o.target);
}

bool can_write(const std::string& form, const ModelConfig& config) {
  if (form == kCheckpoint) return true;
  try {
    form == kGguf ? void(describe(config)) : void(write_hf_config(config));
    return true;
  } catch (const Error&) {
    return false;
  }
}

// With the part that predicts a token further on, where it and the form have one.
std::unique_ptr<ModelSource> open_whole(const ConvertCommand& o, const std::string& form, bool& leaves_part) {
  const bool is_random = o.source.starts_with(kRandomModelPrefix);
  std::unique_ptr<ModelSource> source =
      open_model(o.source, Checkpoint::Check::all_bytes, is_random ? WithMtp::no : WithMtp::yes);
  leaves_part = source->config().mtp_layers > 0 && !can_write(form, source->config());
  return leaves_part ? open_model(o.source) : std::move(source);
}

void convert(const ConvertCommand& o) {
  Toml mesh;
  MeshOptions::apply_spec(mesh, o.mesh);
  read_mesh(mesh);
  mesh.reject_unknown();
  const std::string form = form_of(o);
  bool leaves_part = false;
  std::unique_ptr<ModelSource> source = open_whole(o, form, leaves_part);
  if (!o.adapter.empty()) source = open_adapted(std::move(source), o.adapter);
  const bool is_merged = source->config().lora.rank > 0;
  if (is_merged) source = merge_adapters(std::move(source));
  Exported exported = export_as(form, *source, o);
  if (is_merged) exported.notes.emplace_back("the adapters are part of the weights now");
  if (leaves_part)
    exported.notes.emplace_back(
        "the part that predicts a token further on was left out: this form has no place for it");
  o.output.json({{"source", source->path()},
                 {"path", exported.path},
                 {"form", form},
                 {"num_params", source->config().num_params()},
                 {"notes", exported.notes}});
  if (o.output.is_json()) return;
  for (const std::string& note : exported.notes) o.output.text(note);
  o.output.text(
      fmt::format("{} parameters of {} are now in {}", source->config().num_params(), source->path(), exported.path));
}

}  // namespace

void add_convert(CLI::App& program) {
  const auto o = std::make_shared<ConvertCommand>();
  CLI::App* c =
      program.add_subcommand("convert", "A model as a Hugging Face folder, a GGUF file or a weft checkpoint");
  c->add_option("SRC", o->source, "A Hugging Face folder, a weft checkpoint or run folder, or a .gguf file")
      ->required();
  c->add_option("DST", o->target, "A new folder or .gguf file; of checkpoints, the folder that holds them")
      ->required();
  c->add_option("--adapter", o->adapter, "A PEFT folder, to merge; adapters of SRC itself are merged always");
  c->add_option("--to", o->form, "hugging-face, checkpoint or gguf; default: what DST looks like");
  c->add_option("--dtype", o->dtype,
                "Of the weights: fp32, bf16 or fp16; of a Hugging Face folder also int8, fp8, nf4 and, of gpt-oss, "
                "mxfp4; of GGUF also q8_0, q4_0, q4_1, q5_0, q5_1, q2_k to q6_k, iq4_nl, iq4_xs and, of experts, "
                "mxfp4; default: as they are stored");
  c->add_option("--mesh", o->mesh, "Any: what is written holds whole tensors, which every mesh reads");
  o->output.add_option(*c);
  c->footer(
      "Example: weft convert runs/mine models/mine --dtype bf16\n         weft convert runs/mine mine.gguf --dtype "
      "q4_k");
  c->callback([o] { convert(*o); });
}

}  // namespace weft::app
