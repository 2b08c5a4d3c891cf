// SpecialIds: the tokens that a model's files name by what they are for.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

namespace weft {

class JsonView;

struct SpecialIds {
  std::optional<int32_t> begin, pad;  // stands before a text; fills up rows
  std::vector<int32_t> ends;          // each ends an answer

  bool operator==(const SpecialIds&) const = default;
};

// Adds what is not told yet, of a config.json or generation_config.json of Hugging Face's library. vocab: of the
// model. Throws Error naming an end that is no token of it; a beginning or a padding that is none, as files of small
// models may have from their class, is left out.
void add_special_ids(SpecialIds& ids, const JsonView& json, int64_t vocab);
// All three keys: of those that are not written, the library takes what a family's class says, which few
// vocabularies have.
void write_special_ids(nlohmann::json& json, const SpecialIds& ids);

}  // namespace weft
