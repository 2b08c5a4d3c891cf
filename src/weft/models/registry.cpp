// The families and presets that weft knows, by name.
#include "weft/base/nearest.h"
#include "weft/models/gpt2.h"
#include "weft/models/hybrids.h"
#include "weft/models/layer_norm_families.h"
#include "weft/models/llama.h"
#include "weft/models/variants.h"

namespace weft {
namespace {

std::vector<const Family*> families() {
  std::vector<const Family*> all{&gpt2_family()};
  for (const auto* some : {&llama_families(), &variant_families(), &layer_norm_families(), &hybrid_families()})
    for (const Family& f : *some) all.push_back(&f);
  return all;
}

[[noreturn]] void refuse(const char* key, const std::string& name, const std::vector<std::string>& known) {
  throw UsageError("model.{} = \"{}\" is not known: there are {}{}", key, name, fmt::join(known, ", "),
                   did_you_mean(name, known));
}

}  // namespace

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const Family* f : families()) names.push_back(f->defaults.family);
  return names;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Family* f : families())
    for (const auto& [name, config] : f->presets) names.push_back(name);
  return names;
}

ModelConfig family_defaults(const std::string& family) {
  for (const Family* f : families())
    if (f->defaults.family == family) return f->defaults;
  refuse("family", family, family_names());
}

ModelConfig preset(const std::string& name) {
  for (const Family* f : families())
    for (const auto& [known, config] : f->presets)
      if (known == name) return config;
  refuse("preset", name, preset_names());
}

}  // namespace weft
