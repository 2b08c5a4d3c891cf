// EmbeddingRule: the files of sentence-transformers, and a key of GGUF's.
#include "weft/pretrained/embedding_rule.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <ranges>
#include <vector>

#include "weft/base/file.h"
#include "weft/base/json.h"
#include "weft/formats/gguf.h"
#include "weft/formats/gguf_writer.h"
#include "weft/formats/safetensors_shards.h"

namespace weft {
namespace {

constexpr std::string_view kPoolings[] = {"last", "first", "mean", "weighted_mean"};

// What a folder's files call them: with a flag to each, and by a name alone in later versions.
struct Mode {
  std::string_view flag, name;
  Pooling pooling;
};
constexpr Mode kModes[] = {{"pooling_mode_lasttoken", "lasttoken", Pooling::last},
                           {"pooling_mode_cls_token", "cls", Pooling::first},
                           {"pooling_mode_mean_tokens", "mean", Pooling::mean},
                           {"pooling_mode_weightedmean_tokens", "weightedmean", Pooling::weighted_mean}};

constexpr const char *kModules = "modules.json", *kPrompts = "config_sentence_transformers.json";
constexpr const char *kPromptsKey = "prompts", *kDefaultPrompt = "default_prompt_name", *kMode = "pooling_mode";
constexpr std::string_view kPoolingFolder = "1_Pooling";
constexpr const char* kPrefix = "sentence_transformers.models.";
constexpr const char* kVector = "sentence_embedding";
constexpr uint64_t kMostModuleBytes = uint64_t(1) << 20;

JsonDocument read_json(const std::string& file) {
  return JsonDocument::parse(read_file(file, kMostModuleBytes), file);
}

std::string folder_of(const JsonView& module, const std::string& folder) {
  const std::string name = module.string_or("path", "");
  if (name == ".." || name.find('/') != name.npos)
    throw Error("{}: the module's path \"{}\" is no folder beside it", module.source(), name);
  return name.empty() ? folder : join_path(folder, name);
}

void read_pooling(const JsonView& json, EmbeddingRule& rule) {
  std::vector<std::string> modes;
  if (json[kMode].is_string()) modes.push_back(json[kMode].string());
  for (const std::string& key : json.keys())
    if (key.starts_with("pooling_mode_") && json[key].is_bool() && json[key].boolean()) modes.push_back(key);
  const auto* const mode = std::ranges::find_if(
      kModes, [&](const Mode& m) { return modes.size() == 1 && (m.flag == modes[0] || m.name == modes[0]); });
  if (mode != std::end(kModes))
    rule.pooling = mode->pooling;
  else
    rule.unknown = fmt::format("pooling by {}", fmt::join(modes, " and "));
  if (!json.boolean_or("include_prompt", true)) rule.unknown = "pooling without the prompt (include_prompt)";
}

// The folder of a layer; what of it weft does not do.
std::string read_dense(const std::string& folder, const JsonView& json, std::vector<DenseLayer>& layers) {
  constexpr int64_t kMost = int64_t(1) << 16;
  constexpr const char *kInput = "module_input_name", *kResidual = "use_residual",
                       *kActivation = "activation_function";
  const std::string activation = json.string_or(kActivation, "torch.nn.modules.activation.Tanh");
  const std::optional<Activation> known = torch_activation(activation);
  if (!known) return fmt::format("a module Dense with {} = {}", kActivation, activation);
  if (const std::string input = json.string_or(kInput, kVector); input != kVector)
    return fmt::format("a module Dense of {}", input);
  if (json.boolean_or(kResidual, false)) return fmt::format("a module Dense with {}", kResidual);
  layers.push_back({.file = folder,
                    .weight = "linear.weight",
                    .bias = json.boolean_or("bias", true) ? "linear.bias" : "",
                    .in = json.at("in_features").integer(1, kMost),
                    .out = json.at("out_features").integer(1, kMost),
                    .activation = *known});
  return {};
}

void read_prompts(const JsonView& json, EmbeddingRule& rule) {
  if (json.has(kPromptsKey))
    for (const std::string& name : json[kPromptsKey].keys())
      if (json[kPromptsKey].has(name)) rule.prompts[name] = json[kPromptsKey][name].string();
  rule.default_prompt = json.string_or(kDefaultPrompt, "");
  if (!rule.default_prompt.empty() && !rule.prompts.contains(rule.default_prompt))
    throw Error("{}: {} is \"{}\", which is none of its prompts", json.source(), kDefaultPrompt, rule.default_prompt);
}

}  // namespace

std::string_view name_of(Pooling pooling) { return kPoolings[size_t(pooling)]; }

Pooling parse_pooling(std::string_view option, std::string_view name) {
  const auto* const found = std::ranges::find(kPoolings, name);
  if (found == std::end(kPoolings)) throw UsageError("{} {}: write {}", option, name, fmt::join(kPoolings, ", "));
  return Pooling(found - std::begin(kPoolings));
}

std::string prompt_names(const EmbeddingRule& rule) {
  return fmt::format("{}", fmt::join(std::views::keys(rule.prompts), ", "));
}

std::string to_text(const EmbeddingRule& rule) {
  if (!rule.unknown.empty()) return fmt::format("no vectors of texts, which its files make by {}", rule.unknown);
  constexpr std::string_view kAre[] = {"the last hidden state", "the first hidden state", "means of hidden states",
                                       "means of hidden states, later ones weighing more"};
  std::string text = fmt::format("vectors of texts are {}", kAre[size_t(rule.pooling)]);
  if (!rule.dense.empty())
    text += fmt::format(", through {} projection(s) to {} elements", rule.dense.size(), rule.dense.back().out);
  if (rule.normalises) text += ", of length 1";
  if (!rule.prompts.empty()) text += fmt::format(", with prompts {}", prompt_names(rule));
  return text;
}

EmbeddingRule read_embedding_rule(const std::string& folder, Pooling otherwise) {
  EmbeddingRule rule{.pooling = otherwise};
  const std::string modules = join_path(folder, kModules), prompts = join_path(folder, kPrompts);
  if (!exists(FileSystem::real(), modules)) return rule;
  rule.normalises = false;
  const JsonDocument document = read_json(modules);
  for (int64_t i = 0; i < document.root().size(); ++i) {
    const JsonView module = document.root().at(i);
    const std::string type = module.at("type").string(), kind = type.substr(type.rfind('.') + 1);
    if (kind == "Pooling")
      read_pooling(read_json(join_path(folder_of(module, folder), "config.json")).root(), rule);
    else if (kind == "Normalize")
      rule.normalises = true;
    else if (kind == "Dense" && !rule.normalises) {
      const std::string layer = folder_of(module, folder);
      const std::string unknown = read_dense(layer, read_json(join_path(layer, "config.json")).root(), rule.dense);
      if (!unknown.empty()) rule.unknown = unknown;
    } else if (kind != "Transformer")
      rule.unknown = fmt::format("a module {}{}", kind, kind == "Dense" ? " behind Normalize" : "");
  }
  if (exists(FileSystem::real(), prompts)) read_prompts(read_json(prompts).root(), rule);
  return rule;
}

namespace {

void write_dense(const DenseLayers::Layer& layer, const std::string& folder, FileSystem& fs) {
  const DenseLayer& shape = layer.shape;
  const bool has_bias = !layer.bias.empty();
  const nlohmann::json config{{"in_features", shape.in},
                              {"out_features", shape.out},
                              {"bias", has_bias},
                              {"activation_function", torch_name_of(shape.activation)}};
  write_file_atomically(fs, join_path(folder, "config.json"), to_json_text(config, 2) + "\n");
  std::vector<SafetensorsInfo> infos{{"linear.weight", DType::f32, Shape{shape.out, shape.in}}};
  if (has_bias) infos.push_back({"linear.bias", DType::f32, Shape{shape.out}});
  SafetensorsShardsWriter writer(fs, folder, infos);
  writer.write(std::as_bytes(std::span(layer.weight)));
  if (has_bias) writer.write(std::as_bytes(std::span(layer.bias)));
  writer.finish();
}

}  // namespace

void write_embedding_rule(const EmbeddingRule& rule, int64_t hidden, const std::string& folder, FileSystem& fs,
                          Pooling otherwise) {
  if (rule == EmbeddingRule{.pooling = otherwise} || !rule.unknown.empty()) return;
  using nlohmann::json;
  json modules = json::array();
  const auto add = [&](std::string_view path, const char* kind) {
    const auto index = modules.size();
    modules.push_back({{"idx", index},
                       {"name", std::to_string(index)},
                       {"path", path},
                       {"type", fmt::format("{}{}", kPrefix, kind)}});
    if (!path.empty()) make_folders(fs, join_path(folder, path));
  };
  add("", "Transformer");
  add(kPoolingFolder, "Pooling");
  const auto folder_of_next = [&](const char* kind) { return fmt::format("{}_{}", modules.size(), kind); };
  const DenseLayers dense(rule.dense, hidden);
  for (const DenseLayers::Layer& layer : dense.all()) {
    const std::string path = folder_of_next("Dense");
    add(path, "Dense");
    write_dense(layer, join_path(folder, path), fs);
  }
  if (rule.normalises) add(folder_of_next("Normalize"), "Normalize");
  json pooling{{"word_embedding_dimension", hidden}, {"include_prompt", true}};
  for (const char* flag : {"max_tokens", "mean_sqrt_len_tokens"})
    pooling[fmt::format("pooling_mode_{}", flag)] = false;
  for (const Mode& mode : kModes) pooling[mode.flag] = mode.pooling == rule.pooling;
  const auto write = [&](const std::string& name, const json& what) {
    write_file_atomically(fs, join_path(folder, name), to_json_text(what, 2) + "\n");
  };
  write(join_path(kPoolingFolder, "config.json"), pooling);
  write(kPrompts, {{kPromptsKey, rule.prompts},
                   {kDefaultPrompt, rule.default_prompt.empty() ? json(nullptr) : json(rule.default_prompt)},
                   {"similarity_fn_name", "cosine"}});
  write(kModules, modules);
}

namespace {

// llama.cpp's numbers.
constexpr int64_t kGgufNone = 0, kGgufMean = 1, kGgufFirst = 2, kGgufLast = 3;
constexpr std::array<std::string_view, 5> kGgufNames = {"none", "mean", "cls", "last", "rank"};

std::string pooling_key(std::string_view architecture) { return fmt::format("{}.pooling_type", architecture); }

}  // namespace

EmbeddingRule read_gguf_embedding_rule(const GgufFile& file, Pooling otherwise) {
  EmbeddingRule rule{.pooling = otherwise};
  const std::string key = pooling_key(file.at("general.architecture").string());
  const int64_t type = file.has(key) ? file.at(key).integer() : kGgufNone;
  if (type == kGgufMean)
    rule.pooling = Pooling::mean;
  else if (type == kGgufFirst)
    rule.pooling = Pooling::first;
  else if (type == kGgufLast)
    rule.pooling = Pooling::last;
  else if (type != kGgufNone)
    rule.unknown = type > 0 && size_t(type) < kGgufNames.size()
                       ? fmt::format("pooling by {}", kGgufNames[size_t(type)])
                       : fmt::format("pooling of type {}", type);
  for (const std::string_view name : kGgufDense) {
    const GgufTensor* const tensor = file.find_tensor(name);
    if (!tensor) continue;
    if (tensor->dims.size() != 2) throw Error("{}: tensor {} must be a matrix", file.path(), name);
    rule.dense.push_back({.file = file.path(),
                          .weight = std::string(name),
                          .bias = {},
                          .in = tensor->dims[0],
                          .out = tensor->dims[1]});
  }
  return rule;
}

bool write_gguf_embedding_rule(GgufMetadata& metadata, std::string_view architecture, const EmbeddingRule& rule,
                               Pooling otherwise) {
  if (rule == EmbeddingRule{.pooling = otherwise}) return true;
  if (rule.pooling == Pooling::weighted_mean || !rule.unknown.empty()) return false;
  const int64_t type = rule.pooling == Pooling::mean    ? kGgufMean
                       : rule.pooling == Pooling::first ? kGgufFirst
                                                        : kGgufLast;
  metadata.set<uint32_t>(pooling_key(architecture), uint32_t(type));
  const std::vector<std::string> names = gguf_dense_names(architecture, rule.dense);
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string key = fmt::format("{}.{}", architecture, names[i].substr(0, names[i].find('.')));
    metadata.set<uint32_t>(key + "_feat_in", uint32_t(rule.dense[i].in));
    metadata.set<uint32_t>(key + "_feat_out", uint32_t(rule.dense[i].out));
  }
  return names.size() == rule.dense.size() && rule == EmbeddingRule{.pooling = rule.pooling, .dense = rule.dense};
}

std::vector<std::string> gguf_dense_names(std::string_view architecture, std::span<const DenseLayer> layers) {
  const auto is_plain = [](const DenseLayer& l) { return l.bias.empty() && l.activation == Activation::identity; };
  if (architecture != "gemma-embedding" || layers.size() > std::size(kGgufDense) ||
      !std::ranges::all_of(layers, is_plain))
    return {};
  return {kGgufDense, kGgufDense + layers.size()};
}

}  // namespace weft
