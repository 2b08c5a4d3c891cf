// Encoders: which one a folder holds.
#include "weft/pretrained/encoders/encoders.h"

#include "weft/base/file.h"
#include "weft/pretrained/hf_family.h"

namespace weft {

std::optional<EncoderKind> encoder_kind(const std::string& folder) {
  if (!exists(FileSystem::real(), join_path(folder, "config.json"))) return {};
  const JsonDocument config = read_config_json(folder);
  if (!config.root().is_object()) return {};
  const std::string type = config.root().string_or("model_type", "");
  if (is_bert(config.root())) return EncoderKind::bert;
  if (type == "t5") return EncoderKind::t5;
  if (type == "vit") return EncoderKind::vit;
  if (type == "clip") return EncoderKind::clip;
  return {};
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
