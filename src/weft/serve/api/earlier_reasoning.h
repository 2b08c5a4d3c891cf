// Earlier reasoning: what clients bring back of it, in their protocols' words, as templates read it.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "weft/serve/api/reasoning_families.h"

namespace weft::api {

// Of the assistant's messages: `reasoning_content`, `reasoning`, `thinking` or parts of the content become
// `reasoning_content` and `reasoning`, which templates of most models and vLLM's read, and the family's own key.
void name_reasoning(nlohmann::ordered_json& messages, ReasoningFormat format);

// Of families whose templates read it as a part of the content, when contents are texts already.
void put_reasoning_in_contents(nlohmann::ordered_json& messages);

}  // namespace weft::api
