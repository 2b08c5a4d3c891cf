// Encoders: which one a folder holds.
#include "weft/pretrained/encoders/encoders.h"

#include "weft/base/file.h"

namespace weft {

void check_ranks(const EncoderUse& use, int64_t heads) {
  if (use.partition.tensor.size() > heads)
    throw UsageError("--mesh tp={}: the model has {} attention heads: write at most that",
                     use.partition.tensor.size(), heads);
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
