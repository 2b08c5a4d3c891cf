// InspectModel: configuration and tensors.
#include "inspect_model.h"

#include "weft/base/file.h"
#include "weft/models/model_json.h"
#include "weft/pretrained/encoders/encoders.h"
#include "weft/pretrained/gguf_model.h"
#include "weft/pretrained/model_source.h"
#include "weft/pretrained/random_model.h"

namespace weft::app {
namespace {

bool is_weights_file(const std::string& path) {
  return path.ends_with(".safetensors") || path.ends_with(".bin") || path.ends_with(".pt");
}

nlohmann::json list_of(const StoredTensors& stored) {
  nlohmann::json tensors = nlohmann::json::array();
  for (const StoredInfo& t : stored.all())
    tensors.push_back({{"name", t.name}, {"dtype", t.dtype_name}, {"shape", t.dims}});
  return tensors;
}

int64_t num_elements(const StoredTensors& stored) {
  int64_t sum = 0;
  for (const StoredInfo& t : stored.all()) sum += t.numel();
  return sum;
}

void print(const Output& output, nlohmann::json about, const StoredTensors& stored) {
  about["path"] = stored.path();
  about["num_elements"] = num_elements(stored);
  about["tensors"] = list_of(stored);
  output.json(about);
  if (output.is_json()) return;
  for (const StoredInfo& t : stored.all())
    output.text(fmt::format("  {:<56} {:<6} [{}]", t.name, t.dtype_name, fmt::join(t.dims, ", ")));
}

std::string summary(const std::string& path, const ModelConfig& c) {
  return fmt::format("{}: {}, {} parameters: {} layers, {} wide, {} heads ({} of keys), vocabulary {}, context {}{}",
                     path, c.family, c.num_params(), c.layers, c.hidden, c.heads, c.kv_heads, c.vocab, c.context,
                     c.scores_texts() ? fmt::format(", scores of {} label(s)", c.labels) : "");
}

nlohmann::json about_model(const ModelConfig& c, std::string_view form) {
  return {{"kind", "model"},
          {"form", form},
          {"num_params", c.num_params()},
          {"model", nlohmann::json::parse(to_json(c))}};
}

void inspect_decoder(const std::string& path, const Output& output) {
  const std::unique_ptr<ModelSource> source = open_model(path);
  const ModelConfig& c = source->config();
  if (!output.is_json()) output.text(summary(path, c));
  print(output, about_model(c, source->kind() == SourceKind::gguf ? "gguf" : "hugging-face"), source->tensors());
}

// A preset has no file: its parameters have weft's own names.
void inspect_preset(const std::string& path, const Output& output) {
  const ModelConfig c = model_config_of(path);
  nlohmann::json about = about_model(c, "random");
  about["path"] = path;
  const std::vector<ParamNames> params = names_of(c);
  for (const ParamNames& names : params)
    about["tensors"].push_back({{"name", names.param}, {"shape", names.shape.dims()}});
  output.json(about);
  if (output.is_json()) return;
  output.text(summary(path, c));
  for (const ParamNames& names : params) output.text(fmt::format("  {:<56} {}", names.param, names.shape));
}

bool is_preset(const std::string& path) { return path.starts_with(kRandomModelPrefix); }

}  // namespace

bool is_saved_model(const std::string& path) {
  return is_preset(path) || is_hugging_face_folder(path) ||
         (exists(FileSystem::real(), path) && (is_weights_file(path) || path.ends_with(".gguf")));
}

void inspect_model(const std::string& path, const Output& output) {
  if (is_preset(path)) return inspect_preset(path, output);
  if (is_weights_file(path)) return print(output, {{"kind", "weights"}}, *open_weights(path));
  if (encoder_kind(path))
    return print(output, {{"kind", "model"}, {"form", is_gguf(path) ? "gguf" : "hugging-face"}},
                 is_gguf(path) ? *open_gguf_tensors(path) : *open_weights(path));
  inspect_decoder(path, output);
}

}  // namespace weft::app
