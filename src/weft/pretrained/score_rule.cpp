// ScoreRule: id2label and problem_type.
#include "weft/pretrained/score_rule.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "weft/base/file.h"
#include "weft/pretrained/hf_family.h"

namespace weft {
namespace {

constexpr std::string_view kScoreClass = "ForSequenceClassification";
constexpr const char* kNames = "id2label";
constexpr const char *kLibrary = "sentence_transformers", *kActivation = "activation_fn";
constexpr uint64_t kMostFileBytes = uint64_t(1) << 20;
constexpr int64_t kMostLabels = int64_t(1) << 20;

std::string default_name(int64_t label) { return fmt::format("LABEL_{}", label); }

}  // namespace

ScoreRule default_score_rule(int64_t labels) {
  ScoreRule rule;
  for (int64_t i = 0; i < labels; ++i) rule.labels.push_back(default_name(i));
  if (labels == 1) rule.activation = ScoreRule::Activation::sigmoid;
  return rule;
}

void activate(ScoreRule::Activation activation, std::vector<float>& scores) {
  if (activation == ScoreRule::Activation::none || scores.empty()) return;
  if (activation == ScoreRule::Activation::sigmoid) {
    for (float& s : scores) s = float(1 / (1 + std::exp(-double(s))));
    return;
  }
  const double most = double(*std::ranges::max_element(scores));
  double sum = 0;
  for (const float s : scores) sum += std::exp(double(s) - most);
  for (float& s : scores) s = float(std::exp(double(s) - most) / sum);
}

bool scores_texts(const JsonView& config) {
  const JsonView classes = config["architectures"];
  return classes.is_array() && classes.size() > 0 && classes.at(int64_t(0)).is_string() &&
         classes.at(int64_t(0)).string().ends_with(kScoreClass);
}

int64_t num_labels_of(const JsonView& config) {
  constexpr int64_t kOtherwise = 2;  // what the library takes where a file says nothing
  if (!config.has(kNames)) return config.integer_or("num_labels", kOtherwise, 1, kMostLabels);
  const JsonView names = config[kNames];
  const int64_t count = names.size();
  if (!names.is_object() || count < 1 || count > kMostLabels)
    throw Error("{}: {} must name the labels by their numbers", config.source(), kNames);
  for (int64_t i = 0; i < count; ++i)
    if (!names.has(std::to_string(i)))
      throw Error("{}: {} has {} labels, and none of them is number {}", config.source(), kNames, count, i);
  return count;
}

ScoreRule read_score_rule(const JsonView& config) {
  ScoreRule rule = default_score_rule(num_labels_of(config));
  if (config.has(kNames))
    for (size_t i = 0; i < rule.labels.size(); ++i)
      rule.labels[i] = config[kNames].at(std::to_string(i).c_str()).string();
  const std::string problem = config.string_or("problem_type", "");
  if (problem == "regression") rule.activation = ScoreRule::Activation::none;
  if (problem == "multi_label_classification") rule.activation = ScoreRule::Activation::sigmoid;
  return rule;
}

// Versions of the library have it in config.json, under two keys, or in a file of its own: a class of torch's, as
// "torch.nn.modules.linear.Identity".
ScoreRule read_score_rule(const std::string& folder) {
  const JsonDocument document = read_config_json(folder);
  const JsonView config = document.root();
  ScoreRule rule = read_score_rule(config);
  std::string written = config.string_or("sbert_ce_default_activation_function", "");
  if (config.has(kLibrary)) written = config[kLibrary].string_or(kActivation, written);
  if (const std::string file = join_path(folder, "config_sentence_transformers.json");
      exists(FileSystem::real(), file))
    written = JsonDocument::parse(read_file(file, kMostFileBytes), file).root().string_or(kActivation, written);
  if (written.ends_with(".Identity")) rule.activation = ScoreRule::Activation::none;
  if (written.ends_with(".Sigmoid")) rule.activation = ScoreRule::Activation::sigmoid;
  return rule;
}

std::string score_class_of(std::string_view architecture) {
  for (const std::string_view writes : {"ForCausalLM", "LMHeadModel"})
    if (architecture.ends_with(writes)) architecture.remove_suffix(writes.size());
  return fmt::format("{}{}", architecture, kScoreClass);
}

void write_labels(nlohmann::json& config, int64_t labels) {
  nlohmann::json names = nlohmann::json::object(), numbers = nlohmann::json::object();
  for (int64_t i = 0; i < labels; ++i) names[std::to_string(i)] = default_name(i), numbers[default_name(i)] = i;
  config[kNames] = names, config["label2id"] = numbers;
}

}  // namespace weft
