// Export: a configuration in another's words, then the tensors.
#include "weft/pretrained/export.h"

#include <nlohmann/json.hpp>

#include "weft/checkpoint/checkpoint_store.h"
#include "weft/formats/safetensors_shards.h"
#include "weft/models/model_json.h"
#include "weft/pretrained/assembled.h"

namespace weft {
namespace {

// What two configurations must agree in to compute the same.
ModelConfig essence(ModelConfig c) {
  const ModelConfig neutral;
  c.family = neutral.family;
  c.dropout = neutral.dropout, c.init_std = neutral.init_std;
  c.capacity_factor = neutral.capacity_factor, c.aux_loss = neutral.aux_loss, c.z_loss = neutral.z_loss;
  c.qkv_bias = c.has_qkv_bias(), c.output_bias = c.has_output_bias(), c.mlp_bias = c.has_mlp_bias();
  c.norm_bias = c.has_norm_bias(), c.bias = false;
  c.router_bias = c.has_router_bias(), c.router_bias_rate = 0;
  if (c.attention_scale == 1 / std::sqrt(float(c.head_dim))) c.attention_scale = 0;
  if (c.position == PositionKind::learned) c.rope_theta = neutral.rope_theta, c.rotary_dim = neutral.rotary_dim;
  if (c.rope_scaling.kind == RopeScaling::Kind::none) c.rope_scaling = neutral.rope_scaling;
  if (c.rope_scaling.kind == RopeScaling::Kind::longrope) c.rope_scaling.factor = 1;
  if (c.window == 0) c.first_local_layer = c.global_every = 0, c.local_rope_theta = 0;
  if (c.local_rope_theta == c.rope_theta && c.rope_scaling.kind == RopeScaling::Kind::none) c.local_rope_theta = 0;
  if (c.experts == 0) {
    c.experts_per_token = neutral.experts_per_token, c.shared_experts = neutral.shared_experts;
    c.expert_ffn = neutral.expert_ffn, c.first_dense_layers = neutral.first_dense_layers;
    c.router = neutral.router, c.router_bias = neutral.router_bias;
    c.expert_groups = neutral.expert_groups, c.groups_per_token = neutral.groups_per_token;
    c.norm_topk = neutral.norm_topk, c.routed_scale = neutral.routed_scale;
  }
  if (c.expert_groups == c.groups_per_token) c.expert_groups = c.groups_per_token = 1;
  if (c.first_dense_layers == 0 && c.experts > 0) c.ffn = 0;  // nothing has this width
  return c;
}

std::optional<std::string> text_of(const HfFamily& family, const ModelConfig& config) {
  try {
    nlohmann::json json{{"architectures", {family.architecture}}, {"model_type", family.model_type}};
    HfFields fields(json);
    ModelConfig c = config;
    family.fields(fields, c);
    const std::string text = to_json_text(json, 2);
    if (essence(parse_hf_config(text, "config.json").model) != essence(config)) return {};
    names_of(family, config);
    return text;
  } catch (const Error&) {  // it has no words for some part of the model
    return {};
  }
}

constexpr std::string_view kCopiedFiles[] = {
    "tokenizer.json",      "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json",
    "vocab.json",          "merges.txt",      "added_tokens.json",     "generation_config.json",
    "chat_template.jinja", "vocab.txt",       "spiece.model",          "chat_template.json"};

// Empty, with a note, where the model has none.
std::string tokenizer_text(const ModelSource& source, std::vector<std::string>& notes) {
  try {
    return source.tokenizer()->to_json();
  } catch (const Error& e) {
    notes.push_back(fmt::format("the tokenizer was left out: {}", e.what()));
    return "";
  }
}

void copy_tokenizer(const ModelSource& source, const std::string& folder, FileSystem& fs,
                    std::vector<std::string>& notes) {
  constexpr uint64_t kMostBytes = uint64_t(1) << 30;
  if (source.kind() == SourceKind::hugging_face) {
    for (const std::string_view name : kCopiedFiles)
      if (const std::string file = join_path(source.path(), name); exists(fs, file))
        write_file_atomically(fs, join_path(folder, name), read_file(file, kMostBytes, fs));
    return;
  }
  // A tokenizer that was read from a tokenizer.json is kept as its text.
  const std::string text = tokenizer_text(source, notes);
  if (text.empty()) return;
  const nlohmann::json json = parse_json(text, "the tokenizer", {.max_bytes = kMostBytes});
  if (json.is_object() && json.contains("model") && json.contains("added_tokens"))
    write_file_atomically(fs, join_path(folder, "tokenizer.json"), text);
  else
    notes.emplace_back("the tokenizer has no form that Hugging Face's library reads: it was left out");
}

std::string_view torch_name_of(DType dtype) {
  return dtype == DType::bf16 ? "bfloat16" : dtype == DType::f16 ? "float16" : "float32";
}

// Of a folder of the same family, what it says beside the shape stays.
std::string config_text(const ModelSource& source, const HfText& written, DType dtype, FileSystem& fs) {
  constexpr uint64_t kMostBytes = uint64_t(16) << 20;
  nlohmann::json json = parse_json(written.json, "config.json");
  if (source.kind() == SourceKind::hugging_face) {
    const std::string file = join_path(source.path(), "config.json");
    const std::string text = read_file(file, kMostBytes, fs);
    if (parse_hf_config(text, file).family == written.family) json = parse_json(text, file);
  }
  json.erase("dtype");  // what newer versions write in place of torch_dtype
  json["torch_dtype"] = torch_name_of(dtype);
  return to_json_text(json, 2) + "\n";
}

template <class T>
void write_as(SafetensorsShardsWriter& writer, std::span<const float> values) {
  std::vector<T> narrow(values.size());
  for (size_t i = 0; i < values.size(); ++i) narrow[i] = T(values[i]);
  writer.write(std::as_bytes(std::span(narrow)));
}

void write_tensors(const ModelSource& source, const std::vector<AssembledTensor>& tensors,
                   const std::vector<SafetensorsInfo>& infos, const std::string& folder, FileSystem& fs) {
  SafetensorsShardsWriter writer(fs, folder, infos);
  std::vector<float> values;
  for (size_t i = 0; i < tensors.size(); ++i) {
    values.resize(size_t(tensors[i].numel()));
    read_assembled(source, tensors[i], values);
    switch (infos[i].dtype) {
      case DType::bf16: write_as<BFloat16>(writer, values); break;
      case DType::f16: write_as<Float16>(writer, values); break;
      case DType::f64: write_as<double>(writer, values); break;
      default: writer.write(std::as_bytes(std::span(values)));
    }
  }
  writer.finish();
}

}  // namespace

HfText write_hf_config(const ModelConfig& config) {
  const HfFamily* own = nullptr;
  for (const HfFamily& family : hf_families())
    if (family.family == config.family) own = &family;
  if (own)
    if (const auto text = text_of(*own, config)) return {own, *text};
  for (const HfFamily& family : hf_families())
    if (const auto text = text_of(family, config)) return {&family, *text};
  throw Error("no family of Hugging Face's library computes what this {} model does, as its configuration says: {}",
              config.family, to_json(config));
}

Exported export_hugging_face(const ModelSource& source, const std::string& folder, const ExportOptions& options) {
  FileSystem& fs = *options.fs;
  const HfText text = write_hf_config(source.config());
  const std::vector<ParamNames> names = names_of(*text.family, source.config());
  const std::vector<AssembledTensor> tensors = assemble(names);
  make_folders(fs, folder);
  if (const std::string config = join_path(folder, "config.json"); exists(fs, config))
    throw Error("{} exists: name a new folder", config);
  std::vector<SafetensorsInfo> infos;
  for (const AssembledTensor& t : tensors) {
    const DType stored = source.dtype_of(t.parts.front().names->param).value_or(DType::f32);
    infos.push_back({t.name, options.dtype.value_or(stored), Shape(std::span<const int64_t>(t.dims))});
  }
  Exported exported{folder, {}};
  copy_tokenizer(source, folder, fs, exported.notes);
  write_tensors(source, tensors, infos, folder, fs);
  write_file_atomically(fs, join_path(folder, "config.json"), config_text(source, text, infos.front().dtype, fs));
  return exported;
}

Exported export_checkpoint(const ModelSource& source, const std::string& folder, FileSystem& fs) {
  const std::vector<ParamNames> names = names_of(source.config());
  const std::vector<AssembledTensor> tensors = assemble(names);
  std::vector<SafetensorsInfo> infos;
  uint64_t bytes = 0;
  for (const AssembledTensor& t : tensors) {
    infos.push_back({t.name, DType::f32, Shape(std::span<const int64_t>(t.dims))});
    bytes += infos.back().bytes();
  }
  make_folders(fs, folder);
  CheckpointStore store(folder, {}, fs);
  CheckpointWriter writer = store.begin(source.step(), bytes);
  writer.add_tensors("model.safetensors", infos, [&](CheckpointTensorFile& out) {
    std::vector<float> values;
    for (const AssembledTensor& t : tensors) {
      values.resize(size_t(t.numel()));
      read_assembled(source, t, values);
      out.write(std::as_bytes(std::span(values)));
    }
  });
  writer.add_file(std::string(kModelName), to_json(source.config()));
  Exported exported;
  if (const std::string text = tokenizer_text(source, exported.notes); !text.empty())
    writer.add_file(std::string(kTokenizerName), text);
  writer.add_state({.step = source.step()});
  exported.path = writer.commit();
  return exported;
}

}  // namespace weft
