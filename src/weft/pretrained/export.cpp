// Export: a configuration in another's words, then the tensors.
#include "weft/pretrained/export.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "weft/base/new_folder.h"
#include "weft/checkpoint/checkpoint_store.h"
#include "weft/formats/safetensors_shards.h"
#include "weft/models/model_json.h"
#include "weft/pretrained/assembled.h"
#include "weft/pretrained/config_essence.h"
#include "weft/pretrained/export_codes.h"
#include "weft/pretrained/model_use.h"
#include "weft/pretrained/python_json.h"
#include "weft/pretrained/score_rule.h"
#include "weft/text/readers/hf_tokenizer.h"

namespace weft {
namespace {

std::optional<std::string> text_of(const HfFamily& family, const ModelConfig& config) {
  try {
    nlohmann::json json{{"architectures", {family.architecture}}, {"model_type", family.model_type}};
    HfFields fields(json);
    ModelConfig c = config;
    family.fields(fields, c);
    if (config.mtp_layers > 0) json[family.mtp_key] = config.mtp_layers;
    if (config.scores_texts()) {
      json["architectures"] = {score_class_of(family.architecture)};
      write_labels(json, config.labels);
    }
    const auto read_again = [&] { return parse_hf_config(to_json_text(json, 2), "config.json").model; };
    ModelConfig read = read_again();
    if (config.bidirectional && !read.bidirectional) json["is_causal"] = false, read = read_again();
    read.mtp_layers = config.mtp_layers, read.has_head = config.has_head;  // tensors say so
    if (essence(read) != essence(config)) return {};
    names_of(family, config);
    return to_json_text(json, 2);
  } catch (const Error&) {  // it has no words for some part of the model
    return {};
  }
}

constexpr std::string_view kConfigName = "config.json";
constexpr std::string_view kCopiedFiles[] = {
    "tokenizer.json",      "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json",
    "vocab.json",          "merges.txt",      "added_tokens.json",     kGenerationConfigName,
    "chat_template.jinja", "vocab.txt",       "spiece.model",          "chat_template.json"};

// Null, with a note, where the model has none.
std::unique_ptr<Tokenizer> tokenizer_of(const ModelSource& source, std::vector<std::string>& notes) {
  try {
    return source.tokenizer();
  } catch (const Error& e) {
    notes.push_back(fmt::format("the tokenizer was left out: {}", e.what()));
    return nullptr;
  }
}

// With what the tokenizer says where the model's files say nothing.
ModelUse use_of(const ModelSource& source, const Tokenizer* tokenizer) {
  ModelUse use = use_of(source);
  if (!tokenizer) return use;
  const std::optional<int32_t> begin = tokenizer->begin_of_document(), end = tokenizer->end_of_document();
  if (!use.ids.begin) use.ids.begin = begin;
  use.ids.ends = stop_tokens(source, *tokenizer);
  auto& tokens = use.chat_template.tokens;
  const auto spell = [&](const char* name, std::optional<int32_t> id) {
    const auto has_name = [&](const auto& token) { return token.first == name; };
    if (id && std::ranges::none_of(tokens, has_name)) tokens.emplace_back(name, tokenizer->spelling(*id));
  };
  spell("bos_token", begin), spell("eos_token", end);
  return use;
}

void copy_files(const ModelSource& source, const std::string& folder, FileSystem& fs) {
  constexpr uint64_t kMostBytes = uint64_t(1) << 30;
  for (const std::string_view name : kCopiedFiles)
    if (const std::string file = join_path(source.path(), name); exists(fs, file))
      write_file_atomically(fs, join_path(folder, name), read_file(file, kMostBytes, fs));
}

// The tokenizer and what the model's makers say of its use, which is the result.
ModelUse write_use(const ModelSource& source, const std::string& folder, FileSystem& fs,
                   std::vector<std::string>& notes) {
  if (source.kind() == SourceKind::hugging_face) {
    copy_files(source, folder, fs);
    return use_of(source);
  }
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(source, notes);
  // A tokenizer that was read from a tokenizer.json is kept as its text.
  const auto text = tokenizer ? hf_tokenizer_file(*tokenizer) : std::nullopt;
  if (text)
    write_file_atomically(fs, join_path(folder, "tokenizer.json"), *text);
  else if (tokenizer)
    notes.emplace_back("the tokenizer has no form that Hugging Face's library reads: it was left out");
  const ModelUse use = use_of(source, tokenizer.get());
  for (const auto& [name, content] : files_of(use)) write_file_atomically(fs, join_path(folder, name), content);
  return use;
}

std::string_view torch_name_of(DType dtype) {
  return dtype == DType::bf16 ? "bfloat16" : dtype == DType::f16 ? "float16" : "float32";
}

// Of a folder of the same family, what it says beside the shape stays. folder: as notes name it.
std::string config_text(const ModelSource& source, const HfText& written, DType dtype, const CodedWeights* codes,
                        const SpecialIds& ids, const std::string& folder, std::vector<std::string>& notes,
                        FileSystem& fs) {
  constexpr uint64_t kMostBytes = uint64_t(16) << 20;
  nlohmann::json json = parse_json(written.json, "config.json");
  write_special_ids(json, ids);
  if (source.kind() == SourceKind::hugging_face) {
    const std::string file = join_path(source.path(), kConfigName);
    const std::string text = read_file(file, kMostBytes, fs);
    const HfConfig read = parse_hf_config(text, file);
    if (read.is_part) notes.push_back(fmt::format("{} is the decoder of {} alone", folder, source.path()));
    const bool has_other_head = read.model.labels != source.config().labels;  // an adapter's
    if (read.family == written.family && !read.is_part && !has_other_head)
      json = parse_json(without_python_numbers(text), file);
  }
  json.erase("dtype");                // what newer versions write in place of torch_dtype
  json.erase("quantization_config");  // what was codes is written as floats
  json["torch_dtype"] = torch_name_of(dtype);
  // Of a part that predicts a token further on and is left out, other programs would look for the tensors.
  if (const char* const key = written.family->mtp_key; source.config().mtp_layers == 0 && json.contains(key))
    json[key] = 0;
  if (codes) json["quantization_config"] = codes->quantization_config();
  return to_json_text(json, 2) + "\n";
}

template <class T>
void write_as(SafetensorsShardsWriter& writer, std::span<const float> values) {
  std::vector<T> narrow(values.size());
  for (size_t i = 0; i < values.size(); ++i) narrow[i] = T(values[i]);
  writer.write(std::as_bytes(std::span(narrow)));
}

void write_floats(SafetensorsShardsWriter& writer, DType dtype, std::span<const float> values) {
  switch (dtype) {
    case DType::bf16: return write_as<BFloat16>(writer, values);
    case DType::f16: return write_as<Float16>(writer, values);
    case DType::f64: return write_as<double>(writer, values);
    default: return writer.write(std::as_bytes(values));
  }
}

// Of all layers.
std::vector<std::pair<std::string, float>> constants_of(const HfFamily& family, const ModelConfig& config) {
  std::vector<std::pair<std::string, float>> all;
  for (int64_t i = 0; i < config.layers; ++i)
    for (const HfConstant& c : family.constants) {
      const size_t mark = c.name.find('#');
      all.emplace_back(fmt::format("{}{}{}", c.name.substr(0, mark), i, c.name.substr(mark + 1)), c.value);
    }
  return all;
}

// codes: null, or of some of the tensors. dtypes: of the others; constants have the first.
void write_tensors(const ModelSource& source, const HfFamily& family, const std::vector<AssembledTensor>& tensors,
                   const std::vector<DType>& dtypes, CodedWeights* codes, const std::string& folder, FileSystem& fs) {
  const auto constants = constants_of(family, source.config());
  std::vector<SafetensorsInfo> infos;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (codes && codes->has(i))
      std::ranges::move(codes->infos_of(i), std::back_inserter(infos));
    else
      infos.push_back({tensors[i].name, dtypes[i], Shape(std::span<const int64_t>(tensors[i].dims))});
  }
  for (const auto& constant : constants) infos.push_back({constant.first, dtypes.front(), Shape()});
  SafetensorsShardsWriter writer(fs, folder, infos);
  std::vector<float> values;
  for (size_t i = 0; i < tensors.size(); ++i) {
    values.resize(size_t(tensors[i].numel()));
    read_assembled(source, tensors[i], values);
    if (codes && codes->has(i))
      codes->encode(i, values, [&](Bytes bytes) { writer.write(bytes); });
    else
      write_floats(writer, dtypes[i], values);
  }
  for (const auto& constant : constants) write_floats(writer, dtypes.front(), {&constant.second, 1});
  writer.finish();
}

}  // namespace

HfText write_hf_config(const ModelConfig& config) {
  const auto own = std::ranges::find(hf_families(), config.family, &HfFamily::family);
  if (own != hf_families().end())
    if (const auto text = text_of(*own, config)) return {&*own, *text};
  for (const HfFamily& family : hf_families())
    if (const auto text = text_of(family, config)) return {&family, *text};
  throw Error("no family of Hugging Face's library computes what this {} model does, as its configuration says: {}",
              config.family, to_json(config));
}

Exported export_hugging_face(const ModelSource& source, const std::string& folder, const ExportOptions& options) {
  FileSystem& fs = *options.fs;
  const HfText text = write_hf_config(source.config());
  const std::vector<ParamNames> names = names_of(*text.family, source.config(), options.codes == BlockType::mxfp4);
  const std::vector<AssembledTensor> tensors = assemble(names);
  NewFolder made(fs, folder);  // beside a run's files a config.json would hide the run
  std::optional<CodedWeights> coded;
  if (options.codes) coded.emplace(*options.codes, source.config(), tensors);
  CodedWeights* const codes = coded ? &*coded : nullptr;
  std::vector<DType> dtypes;
  for (const AssembledTensor& t : tensors) {
    const DType stored = source.dtype_of(t.parts.front().names->param).value_or(DType::f32);
    dtypes.push_back(options.dtype.value_or(stored));
  }
  Exported exported{folder, codes ? codes->notes() : std::vector<std::string>{}};
  const ModelUse use = write_use(source, made.path(), fs, exported.notes);
  const EmbeddingRule rule = source.embedding_rule();
  if (!rule.unknown.empty())
    exported.notes.push_back(fmt::format("what makes vectors of texts was left out: {}", rule.unknown));
  write_embedding_rule(rule, source.config().hidden, made.path(), fs, usual_pooling(source.config()));
  write_tensors(source, *text.family, tensors, dtypes, codes, made.path(), fs);
  write_file_atomically(fs, join_path(made.path(), kConfigName),
                        config_text(source, text, dtypes.front(), codes, use.ids, folder, exported.notes, fs));
  made.commit(kConfigName);
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
  if (const auto tokenizer = tokenizer_of(source, exported.notes))
    writer.add_file(std::string(kTokenizerName), tokenizer->to_json());
  for (const auto& [name, content] : files_of(use_of(source))) writer.add_file(name, content);
  writer.add_state({.step = source.step()});
  exported.path = writer.commit();
  return exported;
}

}  // namespace weft
