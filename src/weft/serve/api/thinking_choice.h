// What a client asks of a model's thinking, in the words of several protocols.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "weft/base/json.h"
#include "weft/serve/api/reasoning_families.h"
#include "weft/text/chat_template.h"

namespace weft::api {

struct ThinkingChoice {
  std::optional<bool> is_on;  // without it as the template has it
  std::optional<std::string> effort;
  std::optional<int64_t> budget;  // tokens, for templates that know of it
  bool is_told = true;            // false: the model may think, and nobody is shown it
};

// reasoning_effort (OpenAI), reasoning: {effort, enabled, max_tokens, exclude} (OpenAI's responses, OpenRouter),
// thinking: {type, budget_tokens} (Anthropic, DeepSeek, GLM), enable_thinking (Qwen), include_reasoning (vLLM).
// Throws Error naming the field.
ThinkingChoice read_thinking(const JsonView& body);

// As variables of templates, under every name that published ones read.
ChatVariables thinking_variables(const ThinkingChoice& choice, ReasoningFormat format);

// Whether variables of the client's own turn thinking off.
bool turn_off_thinking(const nlohmann::ordered_json& template_variables);

}  // namespace weft::api
