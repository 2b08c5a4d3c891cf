// ThinkingChoice: the later of these fields wins; what a client gives to the template itself wins over all.
#include "weft/serve/api/thinking_choice.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "weft/base/excerpt.h"
#include "weft/serve/api/api_error.h"

namespace weft::api {
namespace {

constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
// Qwen, GLM, Hunyuan, Nemotron and SmolLM; DeepSeek and Granite; Command.
constexpr std::array kSwitches{"enable_thinking", "thinking", "reasoning"};

void set_effort(const JsonView& value, const char* field, ThinkingChoice& choice) {
  const std::string effort = value.string();
  if (std::find(std::begin(kEfforts), std::end(kEfforts), effort) == std::end(kEfforts))
    throw ApiError(400,
                   fmt::format("{}: there is no effort '{}'; write none, minimal, low, medium, high, xhigh or max",
                               field, excerpt(effort, 40)),
                   {}, field);
  choice.is_on = effort != "none";
  if (*choice.is_on) choice.effort = effort;
}

void set_budget(const JsonView& value, ThinkingChoice& choice) {
  choice.budget = value.integer(0, INT32_MAX);
  choice.is_on = *choice.budget > 0;
}

}  // namespace

ThinkingChoice read_thinking(const JsonView& body) {
  ThinkingChoice choice;
  choice.is_told = body.boolean_or("include_reasoning", true);
  if (body.has("enable_thinking")) choice.is_on = body["enable_thinking"].boolean();
  if (body["thinking"].is_object()) {
    const JsonView thinking = body["thinking"];
    const std::string type = thinking.string_or("type", "enabled");
    if (type != "enabled" && type != "disabled" && type != "adaptive" && type != "auto")
      throw ApiError(400, "thinking.type: write enabled, disabled or adaptive", {}, "thinking");
    if (thinking.has("budget_tokens")) set_budget(thinking["budget_tokens"], choice);
    if (type == "enabled") choice.is_on = true;
    if (type == "disabled") choice.is_on = false;
  }
  if (body.has("reasoning_effort")) set_effort(body["reasoning_effort"], "reasoning_effort", choice);
  if (body["reasoning"].is_object()) {
    const JsonView reasoning = body["reasoning"];
    if (reasoning.has("max_tokens")) set_budget(reasoning["max_tokens"], choice);
    if (reasoning.has("effort")) set_effort(reasoning["effort"], "reasoning.effort", choice);
    if (reasoning.has("enabled")) choice.is_on = reasoning["enabled"].boolean();
    if (reasoning.boolean_or("exclude", false)) choice.is_told = false;
  }
  return choice;
}

ChatVariables thinking_variables(const ThinkingChoice& choice, ReasoningFormat format) {
  ChatVariables variables;
  const auto add = [&](const char* name, const nlohmann::ordered_json& value) {
    variables.emplace_back(name, jinja::Value::from_json(value));
  };
  if (choice.is_on) {
    for (const char* name : kSwitches) add(name, *choice.is_on);
  }
  if (choice.effort) {
    // Harmony knows three.
    std::string effort = *choice.effort;
    if (format == ReasoningFormat::harmony && effort == "minimal") effort = "low";
    if (format == ReasoningFormat::harmony && (effort == "xhigh" || effort == "max")) effort = "high";
    add("reasoning_effort", effort);
  }
  if (choice.is_on == false)
    add("thinking_budget", 0);  // of Seed-OSS, which has no other switch
  else if (choice.budget)
    add("thinking_budget", *choice.budget);
  return variables;
}

bool turn_off_thinking(const nlohmann::ordered_json& template_variables) {
  return std::any_of(kSwitches.begin(), kSwitches.end(), [&](const char* name) {
    return template_variables.is_object() && template_variables.contains(name) && template_variables[name] == false;
  });
}

}  // namespace weft::api
