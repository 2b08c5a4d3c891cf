// weft plan --import FILE: a row for every key, and the recipe.
#include "plan_import.h"

#include "weft/base/error.h"
#include "weft/base/file.h"
#include "weft/plan/hardware.h"
#include "weft/plan/imports/config_entry.h"
#include "weft/plan/imports/import.h"

namespace weft::app {
namespace {

using plan::Import;

nlohmann::json to_json(const Import& import) {
  nlohmann::json keys = nlohmann::json::array(), implied = nlohmann::json::array(), open = nlohmann::json::array();
  for (const plan::ImportedKey& k : import.keys) {
    nlohmann::json row = {{"key", k.key}, {"value", k.value}, {"fate", name_of(k.fate)}, {"says", k.says}};
    if (k.line > 0) row["line"] = k.line;
    keys.push_back(std::move(row));
  }
  for (const plan::ImpliedKey& k : import.implied)
    implied.push_back({{"key", k.key}, {"value", k.value}, {"says", k.says}});
  for (const plan::OpenKey& k : import.open) open.push_back({{"key", k.key}, {"says", k.says}});
  nlohmann::json json = {{"from", name_of(import.kind)},
                         {"keys", keys},
                         {"implied", implied},
                         {"open", open},
                         {"recipe", import.recipe}};
  if (!import.refusal.empty()) json["refusal"] = import.refusal;
  return json;
}

void show(const Import& import, const Output& output) {
  constexpr size_t kWidestKey = 56, kWidestValue = 24;
  size_t key_width = 3, value_width = 5;
  for (const plan::ImportedKey& k : import.keys) {
    key_width = std::max(key_width, std::min(k.key.size(), kWidestKey));
    value_width = std::max(value_width, std::min(k.value.size(), kWidestValue));
  }
  const auto row = [&](std::string_view key, std::string_view value, std::string_view what) {
    output.text(fmt::format("{:<{}}  {:<{}}  {}", key, key_width, value, value_width, what));
  };
  output.text(fmt::format("A configuration of {}, {} keys:", title_of(import.kind), import.keys.size()));
  row("key", "value", "what weft does with it");
  for (const plan::ImportedKey& k : import.keys) {
    const bool is_taken = k.fate == plan::Fate::taken;
    const std::string_view fate = name_of(k.fate);
    row(k.key, k.value, is_taken ? k.says : k.says.empty() ? std::string(fate) : fmt::format("{}: {}", fate, k.says));
  }
  if (!import.implied.empty()) output.text("\nNot in the file, and written into the recipe:");
  for (const plan::ImpliedKey& k : import.implied) output.text(fmt::format("{} = {}: {}", k.key, k.value, k.says));
  output.text("\nThe recipe:\n" + import.recipe);
}

}  // namespace

void plan_import(const ImportPlanOptions& o, const Output& output) {
  plan::ImportOptions options{.kind = plan::import_kind(o.from), .model = o.model, .data = o.data};
  if (!o.cluster.empty()) options.num_devices = plan::parse_cluster(o.cluster).num_devices;
  const Import import = plan::import_config(read_file(o.file, plan::kMostConfigBytes), o.file, options);
  output.json(to_json(import));
  if (!output.is_json()) show(import, output);
  if (!import.refusal.empty()) throw UsageError("weft train would not take the recipe yet: {}", import.refusal);
  if (!o.recipe.empty()) write_file_atomically(FileSystem::real(), o.recipe, import.recipe);
}

}  // namespace weft::app
