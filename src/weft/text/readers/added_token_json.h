// An AddedToken as an object of JSON, with the keys of tokenizer.json.
#pragma once
#include <nlohmann/json.hpp>

#include "weft/base/json.h"
#include "weft/text/pipeline/added_tokens.h"

namespace weft {

// "id" may be left out where it stands elsewhere: then it is `otherwise`.
AddedToken parse_added_token(const JsonView& json, int32_t otherwise = -1);
nlohmann::json to_json(const AddedToken& token);

}  // namespace weft
