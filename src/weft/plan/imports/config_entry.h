// ConfigEntry: a key of another program's configuration, whichever format it was written in.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/toml.h"

namespace weft::plan {

struct ConfigEntry {
  std::string key;                   // "zero_optimization.stage"; of a list of sections "data_stages.0.name"
  std::optional<Toml::Value> value;  // none: null, or a section without keys
  std::string text;                  // the value as people wrote it
  int line = 0;                      // 0: the format does not say
  int times = 1;                     // how often an argument is given; the last value counts
  bool is_resolved = true;           // false: a variable of the shell whose value is not in the file
};

// In the order of the file; every key once.
using Config = std::vector<ConfigEntry>;

// Configurations come from outside (docs/adr/0013): what is larger or deeper is refused.
inline constexpr uint64_t kMostConfigBytes = 1 << 20;
inline constexpr int kMostConfigDepth = 16;
inline constexpr int64_t kMostConfigValues = 1 << 12;

// Each throws UsageError "SOURCE, line L ...: what is wrong" for text that is not of its format.
Config read_json_config(std::string_view text, const std::string& source);
// YAML 1.1, one document of mappings, lists and scalars; anchors, aliases and tags are refused.
Config read_yaml_config(std::string_view text, const std::string& source);
// The --arguments of a command: a file of them, or the shell script that starts it. Variables that the script assigns
// are put in; conditions are not followed, so that an argument of any branch counts.
Config read_arguments(std::string_view text, const std::string& source);

// "section.name"; throws UsageError where a key is too long to be one.
std::string key_below(const std::string& section, std::string_view name, const std::string& source);

// Of a scalar. A number may be written as text: PyYAML reads 1e-5 so.
std::optional<double> number_of(const ConfigEntry& entry);
std::optional<bool> flag_of(const ConfigEntry& entry);
std::optional<std::string> text_of(const ConfigEntry& entry);

// What a scalar's text means as JSON and YAML agree on it: a number, or text.
Toml::Scalar scalar_of(std::string_view text);
std::string shown(const Toml::Value& value);

}  // namespace weft::plan
