// Encoders: which one a folder holds.
#include "weft/pretrained/encoders/encoders.h"

#include <filesystem>

#include "weft/base/file.h"
#include "weft/pretrained/encoders/bert_files.h"
#include "weft/pretrained/encoders/load_encoder.h"
#include "weft/pretrained/gguf_model.h"
#include "weft/pretrained/hf_family.h"

namespace weft {

std::optional<EncoderKind> encoder_kind(const std::string& path) {
  if (is_gguf(path)) {
    std::error_code none;
    const bool is_there = std::filesystem::is_regular_file(path, none);
    return is_there && is_bert(GgufFile(path)) ? std::optional(EncoderKind::bert) : std::nullopt;
  }
  if (!exists(FileSystem::real(), join_path(path, "config.json"))) return {};
  const JsonDocument config = read_config_json(path);
  if (!config.root().is_object()) return {};
  const std::string type = config.root().string_or("model_type", "");
  if (is_bert(config.root())) return EncoderKind::bert;
  if (type == "t5") return EncoderKind::t5;
  if (type == "vit") return EncoderKind::vit;
  if (type == "clip") return EncoderKind::clip;
  return {};
}

BertFiles open_bert_files(const std::string& path) {
  return is_gguf(path) ? open_gguf_bert(path) : open_hf_bert(path);
}

std::unique_ptr<Bert> open_bert(Context& context, const std::string& path, const EncoderUse& use) {
  const BertFiles files = open_bert_files(path);
  const EncoderShape& s = files.config.encoder;
  return load_encoder<Bert>(context, *files.stored, *files.names, files.config,
                            {.layers = s.layers, .heads = s.heads}, use);
}

std::vector<int32_t> encode_for_t5(const Tokenizer& tokenizer, const T5Config& config, std::string_view text) {
  std::vector<int32_t> ids = tokenizer.encode(text, {.add_special = true});
  if (ids.empty() || ids.back() != config.end_token) ids.push_back(config.end_token);
  for (const int32_t id : ids)
    if (id >= config.vocab)
      throw Error("the tokenizer gives token {}, and the model knows those from 0 to {}", id, config.vocab - 1);
  return ids;
}

}  // namespace weft
