// Import: which program's text it is, and its table over its keys.
#include "weft/plan/imports/import.h"

#include <array>

#include "weft/base/nearest.h"
#include "weft/plan/imports/translation.h"

namespace weft::plan {
namespace {

const std::array<Format, 5>& formats() {
  static const std::array<Format, 5> all = {deepspeed_format(), megatron_format(), nanotron_format(),
                                            picotron_format(), accelerate_format()};
  return all;
}
const Format& format_of(ImportKind kind) { return formats()[size_t(kind)]; }

bool is_json(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != text.npos && text[first] == '{';
}

// Whether a line has an argument, and none begins with a key of YAML.
bool looks_like_arguments(std::string_view text) {
  bool has_argument = false;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.starts_with("#!")) return true;
    const size_t word = line.find_first_not_of(" \t\"'");
    if (word == line.npos || line[word] == '#') continue;
    const size_t colon = line.find(": ");
    const bool is_key = word == 0 && (line.ends_with(':') || colon != line.npos) && line.find(' ') >= colon;
    if (is_key) return false;
    has_argument |= line.find("--") != line.npos;
  }
  return has_argument;
}

Config read(std::string_view text, const std::string& source, bool is_script) {
  if (is_json(text)) return read_json_config(text, source);
  return is_script ? read_arguments(text, source) : read_yaml_config(text, source);
}

// By keys that only one of them has.
std::optional<ImportKind> recognised(const Config& config, bool is_script) {
  if (is_script) return ImportKind::megatron;
  const auto has = [&](std::string_view key) {
    return std::ranges::any_of(config, [&](const ConfigEntry& e) {
      return e.key == key || (e.key.starts_with(key) && e.key[key.size()] == '.');
    });
  };
  if (has("distributed_type") || has("compute_environment") || has("fsdp_config")) return ImportKind::accelerate;
  if (has("parallelism") || has("tokens") || has("data_stages")) return ImportKind::nanotron;
  if (has("distributed") && (has("training") || has("model"))) return ImportKind::picotron;
  for (const char* key : {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
                          "zero_optimization", "fp16", "bf16", "gradient_clipping", "steps_per_print"})
    if (has(key)) return ImportKind::deepspeed;
  for (const ConfigEntry& e : config)
    if (e.key.ends_with("tensor_model_parallel_size") || e.key.find("--") != e.key.npos ||
        e.key.ends_with("num_layers"))
      return ImportKind::megatron;
  return {};
}

}  // namespace

std::string_view name_of(ImportKind kind) { return format_of(kind).name; }
std::string_view title_of(ImportKind kind) { return format_of(kind).title; }
std::optional<ImportKind> import_kind(std::string_view name) {
  for (const Format& format : formats())
    if (format.name == name) return format.kind;
  return {};
}

std::string_view name_of(Fate fate) {
  constexpr std::string_view kNames[] = {"taken", "same by default", "not needed", "no counterpart",
                                         "open",  "unknown key"};
  return kNames[size_t(fate)];
}

Import import_config(std::string_view text, const std::string& source, const ImportOptions& options) {
  const bool is_script =
      !is_json(text) && looks_like_arguments(text) && (!options.kind || *options.kind == ImportKind::megatron);
  const Config config = read(text, source, is_script);
  const auto kind = options.kind ? options.kind : recognised(config, is_script);
  if (!kind) {
    std::string names;
    for (const Format& format : formats()) names += fmt::format("{}{}", names.empty() ? "" : ", ", format.name);
    throw UsageError("{}: whose configuration it is cannot be seen: write --from with one of {}", source, names);
  }
  const Format& format = format_of(*kind);
  Translation translation(config, source, options);
  translation.run(format);
  format.finish(translation);
  return std::move(translation).take(*kind);
}

}  // namespace weft::plan
