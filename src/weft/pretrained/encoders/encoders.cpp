// Encoders: which one a folder holds.
#include "weft/pretrained/encoders/encoders.h"

#include "weft/base/file.h"

namespace weft {

JsonDocument read_config_json(const std::string& folder) {
  constexpr uint64_t kMostBytes = uint64_t(16) << 20;
  const std::string file = join_path(folder, "config.json");
  return JsonDocument::parse(read_file(file, kMostBytes), file);
}

std::optional<EncoderKind> encoder_kind(const std::string& folder) {
  if (!exists(FileSystem::real(), join_path(folder, "config.json"))) return {};
  const JsonDocument config = read_config_json(folder);
  if (!config.root().is_object()) return {};
  const std::string type = config.root().string_or("model_type", "");
  if (type == "bert") return EncoderKind::bert;
  if (type == "t5") return EncoderKind::t5;
  if (type == "vit") return EncoderKind::vit;
  if (type == "clip") return EncoderKind::clip;
  return {};
}

}  // namespace weft
