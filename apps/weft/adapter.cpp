// weft adapter: the adapters of a fine-tuned model as a PEFT folder.
#include "command.h"
#include "weft/base/toml.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/pretrained/peft.h"

namespace weft::app {
namespace {

struct AdapterCommand {
  std::string model, folder, base;
  Output output;
};

// What the run of a checkpoint started from.
std::string base_of(const ModelSource& model) {
  if (model.kind() != SourceKind::checkpoint) return "";
  const Checkpoint checkpoint = Checkpoint::open(model.path(), Checkpoint::Check::sizes);
  return Toml::parse(checkpoint.read(kRecipeName), model.path()).find<std::string>("model.path").value_or("");
}

void adapter(const AdapterCommand& o) {
  const std::unique_ptr<ModelSource> model = open_model(o.model);
  const std::string base = o.base.empty() ? base_of(*model) : o.base;
  write_peft(*model, base, o.folder);
  o.output.json({{"path", o.folder}, {"base", base}, {"num_params", model->config().num_adapter_params()}});
  if (!o.output.is_json())
    o.output.text(fmt::format("{} parameters of adapters for {} in {}", model->config().num_adapter_params(),
                              base.empty() ? "a model that is not named" : base, o.folder));
}

}  // namespace

void add_adapter(CLI::App& program) {
  const auto o = std::make_shared<AdapterCommand>();
  CLI::App* c = program.add_subcommand("adapter", "Write the adapters of a fine-tuned model as a PEFT folder");
  c->add_option("MODEL", o->model, "A checkpoint or run folder of training with [lora]")->required();
  c->add_option("DIR", o->folder, "A new folder")->required();
  c->add_option("--base", o->base, "The model that they are for; left out: what the run started from");
  o->output.add_option(*c);
  c->footer("Example: weft adapter runs/sft-lora adapters/chat");
  c->callback([o] { adapter(*o); });
}

}  // namespace weft::app
