// An AddedToken as JSON.
#include "weft/text/readers/added_token_json.h"

#include "weft/text/limits.h"

namespace weft {

AddedToken parse_added_token(const JsonView& json, int32_t otherwise) {
  const bool special = json.boolean_or("special", false);
  const int32_t id = otherwise >= 0 ? otherwise : int32_t(json.at("id").integer(0, kMostTokens - 1));
  return {.content = json.at("content").string(),
          .id = id,
          .special = special,
          .single_word = json.boolean_or("single_word", false),
          .lstrip = json.boolean_or("lstrip", false),
          .rstrip = json.boolean_or("rstrip", false),
          .normalized = json.boolean_or("normalized", !special)};
}

nlohmann::json to_json(const AddedToken& t) {
  return {{"content", t.content}, {"id", t.id},         {"special", t.special},      {"single_word", t.single_word},
          {"lstrip", t.lstrip},   {"rstrip", t.rstrip}, {"normalized", t.normalized}};
}

}  // namespace weft
