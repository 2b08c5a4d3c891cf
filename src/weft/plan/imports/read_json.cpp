// A JSON configuration as flat entries.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/plan/imports/config_entry.h"

namespace weft::plan {
namespace {

using Json = nlohmann::ordered_json;

bool is_scalar(const Json& json) { return !json.is_structured() && !json.is_null(); }

Toml::Scalar scalar_of_json(const Json& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t(INT64_MAX)) return json.get<double>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  return json.get<std::string>();
}

void flatten(const Json& json, const std::string& key, const std::string& source, Config& out) {
  if (json.is_object() && !json.empty()) {
    for (const auto& [name, value] : json.items()) flatten(value, key_below(key, name, source), source, out);
    return;
  }
  ConfigEntry entry{.key = key,
                    .value = {},
                    .text = json.is_null() ? "null" : json.dump(-1, ' ', false, Json::error_handler_t::replace)};
  if (json.is_array() && std::ranges::all_of(json, is_scalar)) {
    std::vector<Toml::Scalar> items;
    for (const Json& item : json) items.push_back(scalar_of_json(item));
    entry.value = std::move(items);
  } else if (json.is_array()) {
    for (size_t i = 0; i < json.size(); ++i) flatten(json[i], fmt::format("{}.{}", key, i), source, out);
    return;
  } else if (is_scalar(json)) {
    const Toml::Scalar scalar = scalar_of_json(json);
    entry.value = std::visit([](const auto& x) -> Toml::Value { return x; }, scalar);
    if (json.is_string()) entry.text = json.get<std::string>();
  }
  out.push_back(std::move(entry));
}

}  // namespace

Config read_json_config(std::string_view text, const std::string& source) {
  const JsonLimits limits{
      .max_bytes = kMostConfigBytes, .max_depth = kMostConfigDepth, .max_values = kMostConfigValues};
  Json json;
  try {
    json = parse_ordered_json(text, source, limits);
  } catch (const Error& e) {
    throw UsageError("{}", e.what());
  }
  if (!json.is_object() || json.empty()) throw UsageError("{}: write one object with keys, as in {{...}}", source);
  Config config;
  flatten(json, "", source, config);
  return config;
}

}  // namespace weft::plan
