// SpecialIds: one, several or none under each key.
#include "weft/pretrained/special_ids.h"

#include <nlohmann/json.hpp>

#include "weft/base/json.h"

namespace weft {
namespace {

constexpr const char *kBegin = "bos_token_id", *kEnd = "eos_token_id", *kPad = "pad_token_id";

std::optional<int32_t> id_in(const JsonView& json, int64_t vocab) {
  if (!json.is_number()) return {};
  const double id = json.number();
  return id >= 0 && id < double(vocab) && id == double(int32_t(id)) ? std::optional(int32_t(id)) : std::nullopt;
}

std::vector<int32_t> ids_in(const JsonView& json, int64_t vocab) {
  std::vector<int32_t> ids;
  if (json.is_number()) ids.push_back(int32_t(json.integer(0, vocab - 1)));
  if (!json.is_array()) return ids;
  for (int64_t i = 0; i < json.size(); ++i) ids.push_back(int32_t(json.at(i).integer(0, vocab - 1)));
  return ids;
}

}  // namespace

void add_special_ids(SpecialIds& ids, const JsonView& json, int64_t vocab) {
  if (!ids.begin) ids.begin = id_in(json[kBegin], vocab);
  if (!ids.pad) ids.pad = id_in(json[kPad], vocab);
  if (ids.ends.empty()) ids.ends = ids_in(json[kEnd], vocab);
}

void write_special_ids(nlohmann::json& json, const SpecialIds& ids) {
  const auto set = [&](const char* key, std::optional<int32_t> id) {
    json[key] = id ? nlohmann::json(*id) : nlohmann::json();
  };
  set(kBegin, ids.begin), set(kPad, ids.pad);
  if (ids.ends.size() > 1)
    json[kEnd] = ids.ends;
  else
    set(kEnd, ids.ends.empty() ? std::nullopt : std::optional(ids.ends.front()));
}

}  // namespace weft
