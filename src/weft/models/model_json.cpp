// ModelConfig as JSON, both ways.
#include "weft/models/model_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "weft/base/json.h"
#include "weft/models/model_fields.h"

namespace weft {
namespace {

constexpr int64_t kMostOfAnything = int64_t(1) << 24;

class Writer {
 public:
  explicit Writer(nlohmann::json& json) : json_(json) {}
  void number(const char* key, const auto& value) { put(key, value); }
  void flag(const char* key, bool value) { put(key, value); }
  void choice(const char* key, std::span<const std::string_view> names, int index) { put(key, names[size_t(index)]); }
  void list(const char* key, const std::vector<double>& values) {
    if (!values.empty()) put(key, values);
  }
  void begin_group(const char*, bool is_on) { is_on_ = is_on; }
  void end_group() { is_on_ = true; }

 private:
  void put(const char* key, const auto& value) {
    if (is_on_) json_[key] = value;
  }
  nlohmann::json& json_;
  bool is_on_ = true;
};

// A key that is absent keeps its value: files of older versions have fewer.
class Reader {
 public:
  explicit Reader(const JsonView& json) : json_(json) {}
  void number(const char* key, int64_t& value) {
    if (json_.has(key)) value = json_.at(key).integer(0, kMostOfAnything);
  }
  void number(const char* key, float& value) {
    if (json_.has(key)) value = float(json_.at(key).number());
  }
  void number(const char* key, double& value) {
    if (json_.has(key)) value = json_.at(key).number();
  }
  void flag(const char* key, bool& value) {
    if (json_.has(key)) value = json_.at(key).boolean();
  }
  void choice(const char* key, std::span<const std::string_view> names, int& index) {
    if (!json_.has(key)) return;
    const auto found = std::ranges::find(names, json_.at(key).string());
    if (found == names.end())
      throw Error("{}: {} = \"{}\" is not one of {}", json_.source(), key, json_.at(key).string(),
                  fmt::join(names, ", "));
    index = int(found - names.begin());
  }
  void list(const char* key, std::vector<double>& values) {
    if (!json_.has(key)) return;
    const JsonView array = json_.at(key);
    values.clear();
    for (int64_t i = 0; i < array.size(); ++i) values.push_back(array.at(i).number());
  }
  void begin_group(const char*, bool) {}
  void end_group() {}

 private:
  const JsonView& json_;
};

LoraConfig parse_lora(const JsonView& json) {
  std::vector<std::string> targets;
  const JsonView names = json.at("targets");
  for (int64_t i = 0; i < names.size(); ++i) targets.push_back(names.at(i).string());
  return {.rank = json.at("rank").integer(1, kMostLoraRank),
          .alpha = float(json.at("alpha").number()),
          .dropout = float(json.at("dropout").number()),
          .targets = lora_targets(targets),
          .is_dora = json.boolean_or("dora", false)};
}

}  // namespace

std::string to_json(const ModelConfig& config) {
  nlohmann::json json{{"family", config.family}};
  ModelConfig c = config;
  Writer writer(json);
  visit_model_fields(writer, c);
  if (c.lora.rank > 0)
    json["lora"] = {{"rank", c.lora.rank},
                    {"alpha", c.lora.alpha},
                    {"dropout", c.lora.dropout},
                    {"targets", lora_target_names(c.lora)},
                    {"dora", c.lora.is_dora}};
  return to_json_text(json, 2);
}

ModelConfig parse_model_json(std::string_view text, const std::string& source) {
  const JsonDocument document = JsonDocument::parse(text, source);
  const JsonView json = document.root();
  try {
    ModelConfig c;
    c.family = family_defaults(json.at("family").string()).family;
    for (const char* key : {"layers", "hidden", "heads", "vocab", "context", "norm", "activation", "position"})
      json.at(key);
    Reader reader(json);
    visit_model_fields(reader, c);
    if (json.has("lora")) c.lora = parse_lora(json.at("lora"));
    complete(c);
    return c;
  } catch (const UsageError& e) {
    throw Error("{}: {}", source, e.what());
  }
}

}  // namespace weft
