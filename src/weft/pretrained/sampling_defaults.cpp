// SamplingDefaults: one table of the names that two kinds of files have for them.
#include "weft/pretrained/sampling_defaults.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "weft/base/json.h"
#include "weft/formats/gguf.h"
#include "weft/formats/gguf_writer.h"

namespace weft {
namespace {

struct Number {
  const char *name, *gguf;
  std::optional<double> SamplingDefaults::*value;
};
constexpr Number kNumbers[] = {
    {"temperature", "general.sampling.temp", &SamplingDefaults::temperature},
    {"top_p", "general.sampling.top_p", &SamplingDefaults::top_p},
    {"min_p", "general.sampling.min_p", &SamplingDefaults::min_p},
    {"repetition_penalty", "general.sampling.penalty_repeat", &SamplingDefaults::repetition_penalty},
};
constexpr const char *kTopK = "top_k", *kGgufTopK = "general.sampling.top_k";

// What was meant by a float: 0.95, where the nearest float is 0.949999988.
double shortest(double value) {
  const std::string text = fmt::format("{}", float(value));
  double meant = value;
  std::from_chars(text.data(), text.data() + text.size(), meant);
  return meant;
}

int64_t all_or_some(int64_t top_k) { return std::max<int64_t>(top_k, 0); }  // some write -1 for all

}  // namespace

std::string to_text(const SamplingDefaults& defaults) {
  std::vector<std::string> parts;
  for (const Number& n : kNumbers)
    if (const auto& value = defaults.*n.value) parts.push_back(fmt::format("{} {}", n.name, *value));
  if (defaults.top_k) parts.push_back(fmt::format("{} {}", kTopK, *defaults.top_k));
  return fmt::format("{}", fmt::join(parts, ", "));
}

SamplingDefaults read_sampling_defaults(const JsonView& json) {
  SamplingDefaults defaults;
  for (const Number& n : kNumbers)
    if (json.has(n.name)) defaults.*n.value = json[n.name].number();
  if (json.has(kTopK)) defaults.top_k = all_or_some(json[kTopK].integer());
  return defaults;
}

void write_sampling_defaults(nlohmann::json& json, const SamplingDefaults& defaults) {
  for (const Number& n : kNumbers)
    if (const auto& value = defaults.*n.value) json[n.name] = *value;
  if (defaults.top_k) json[kTopK] = *defaults.top_k;
  if (!defaults.is_empty()) json["do_sample"] = true;
}

SamplingDefaults read_gguf_sampling_defaults(const GgufFile& file) {
  SamplingDefaults defaults;
  for (const Number& n : kNumbers)
    if (file.has(n.gguf)) defaults.*n.value = shortest(file.at(n.gguf).number());
  if (file.has(kGgufTopK)) defaults.top_k = all_or_some(file.at(kGgufTopK).integer());
  return defaults;
}

void write_gguf_sampling_defaults(GgufMetadata& metadata, const SamplingDefaults& defaults) {
  for (const Number& n : kNumbers)
    if (const auto& value = defaults.*n.value) metadata.set<float>(n.gguf, float(*value));
  if (defaults.top_k) metadata.set<int32_t>(kGgufTopK, int32_t(std::min<int64_t>(*defaults.top_k, INT32_MAX)));
}

}  // namespace weft
