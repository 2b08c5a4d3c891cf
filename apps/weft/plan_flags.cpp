// refuse_idle_options: a table of what each use of weft plan takes.
#include "plan_flags.h"

#include <algorithm>

#include "weft/base/error.h"

namespace weft::app {
namespace {

struct PlanUse {
  std::string_view name;
  std::string_view options;  // between blanks, without --json, which all take

  bool takes(const std::string& option) const {
    return option == name || options.find(" " + option + " ") != options.npos;
  }
};

constexpr PlanUse kPlanUses[] = {
    {"--for train",
     " model --for --cluster --seq-len --global-batch --precision --gradients --fp8 --expert-load --rank-by --top "
     "--recipe --data --timeline --report --svg --beside --scaling-time --mesh --zero --hsdp --schedule "
     "--virtual-stages --sequence-parallel --cp-mode --recompute --device --timeout "},
    {"--for serve",
     " model --for --cluster --precision --fp8 --top --mesh --target --input-len --output-len --ttft-ms --tpot-ms "
     "--quantize --kv-dtype --tokens-per-step --max-running --block-tokens --draft --speculate --acceptance "},
    {"--show-schedule",
     " --mesh --zero --hsdp --schedule --virtual-stages --sequence-parallel --cp-mode --recompute --device --timeout "
     "--micro-batches --costs "},
    {"--import", " model --from --cluster --data --recipe "},
    {"--view", " --report --svg "},
    {"--measure", " --out "},
    {"--show-hardware", ""},
    {"--validate", ""}};

}  // namespace

void refuse_idle_options(const CLI::App& command, std::string_view use) {
  const PlanUse& asked = *std::ranges::find(kPlanUses, use, &PlanUse::name);
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || name == "--json" || asked.takes(name)) continue;
    const std::string shown = name == "model" ? "MODEL" : name;
    const PlanUse* const owner = std::ranges::find_if(kPlanUses, [&](const PlanUse& u) { return u.takes(name); });
    if (owner == std::end(kPlanUses) || owner->name == name)
      throw UsageError("{} counts for nothing with {}: leave one of them out", shown, use);
    throw UsageError("{} belongs to {} and counts for nothing with {}: leave it out", shown, owner->name, use);
  }
  if (command.count("--mesh") == 0) return;
  for (const char* const name : {"--rank-by", "--top"})
    if (command.count(name) > 0)
      throw UsageError("{} is of layouts that are compared, and --mesh names one: leave one of them out", name);
}

}  // namespace weft::app
