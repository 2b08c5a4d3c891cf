// weft convert: a model from one form to another.
#include "command.h"
#include "mesh_options.h"
#include "rank_resources.h"
#include "weft/pretrained/export.h"
#include "weft/pretrained/merged_source.h"
#include "weft/pretrained/peft.h"
#include "weft/train/recipe.h"

namespace weft::app {
namespace {

struct Options {
  std::string source, adapter, folder, form = "hugging-face", dtype, mesh;
  Output output;
};

void convert(const Options& o) {
  Toml mesh;
  MeshOptions::apply_spec(mesh, o.mesh);
  read_mesh(mesh);
  mesh.reject_unknown();
  ExportOptions options;
  if (!o.dtype.empty()) options.dtype = parse_dtype(o.dtype);
  const bool is_checkpoint = o.form == "checkpoint";
  if (!is_checkpoint && o.form != "hugging-face")
    throw UsageError("--to {}: write hugging-face or checkpoint", o.form);
  if (is_checkpoint && options.dtype && *options.dtype != DType::f32)
    throw UsageError("--dtype {}: checkpoints hold fp32 weights: leave --dtype out", o.dtype);
  std::unique_ptr<ModelSource> source = open_model(o.source);
  if (!o.adapter.empty()) source = open_adapted(std::move(source), o.adapter);
  const bool is_merged = source->config().lora.rank > 0;
  if (is_merged) source = merge_adapters(std::move(source));
  Exported exported =
      is_checkpoint ? export_checkpoint(*source, o.folder) : export_hugging_face(*source, o.folder, options);
  if (is_merged) exported.notes.emplace_back("the adapters are part of the weights now");
  o.output.json({{"source", source->path()},
                 {"path", exported.path},
                 {"form", o.form},
                 {"num_params", source->config().num_params()},
                 {"notes", exported.notes}});
  if (o.output.is_json()) return;
  for (const std::string& note : exported.notes) o.output.text(note);
  o.output.text(
      fmt::format("{} parameters of {} are now in {}", source->config().num_params(), source->path(), exported.path));
}

}  // namespace

void add_convert(CLI::App& program) {
  const auto o = std::make_shared<Options>();
  CLI::App* c = program.add_subcommand("convert", "A model as a Hugging Face folder, or as a weft checkpoint");
  c->add_option("SRC", o->source, "A Hugging Face folder, a weft checkpoint or run folder, or a .gguf file")
      ->required();
  c->add_option("DST", o->folder, "A new folder; of checkpoints, the folder that holds them")->required();
  c->add_option("--adapter", o->adapter, "A PEFT folder, to merge; adapters of SRC itself are merged always");
  c->add_option("--to", o->form, "hugging-face or checkpoint")->capture_default_str();
  c->add_option("--dtype", o->dtype, "Of the weights: fp32, bf16 or fp16; default: as they are stored");
  c->add_option("--mesh", o->mesh, "Any: what is written holds whole tensors, which every mesh reads");
  o->output.add_option(*c);
  c->footer("Example: weft convert runs/mine models/mine --dtype bf16");
  c->callback([o] { convert(*o); });
}

}  // namespace weft::app
