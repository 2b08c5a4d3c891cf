// Chat prompts: conversations, as clients write them, to the tokens after which the model answers.
#pragma once
#include <nlohmann/json.hpp>

#include "weft/serve/api/parameters.h"
#include "weft/serve/api/thinking_choice.h"

namespace weft::api {

// In OpenAI's form; keys keep their order, since models saw them so.
struct Conversation {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  nlohmann::ordered_json tools;               // null: none
  nlohmann::ordered_json template_variables;  // an object, or null
  nlohmann::ordered_json documents;           // that answers draw on, where the template knows such; null: none
  ThinkingChoice thinking = {};
  bool asks_for_answer = true;  // the prompt ends where the next answer begins
  bool continues_last = false;  // it ends within the last message, which is the assistant's, and the answer goes on
};

// messages, tools, chat_template_kwargs, documents, what says how to think, and as vLLM has them
// continue_final_message and add_generation_prompt, which exclude each other. `request` is the body's text. Throws
// ApiError.
Conversation read_conversation(const JsonView& body, std::string_view request, const ApiLimits& limits);

// Contents become plain text, arguments of tool calls objects, "developer" "system". Throws ApiError naming the
// message.
void normalize(nlohmann::ordered_json& messages);

// What the client lets the model do about tools: "none", "auto", "required", or a function's name.
struct ToolChoice {
  enum class Kind : uint8_t { none, automatic, required, named };
  Kind kind = Kind::automatic;
  std::string name;
  bool is_parallel = true;  // several calls in one answer
};

// Sets the plan's one prompt, and how its answers are read: what the model thinks, then calls when there are tools.
// Where the model has constraints, a call that is demanded is one of these tools with arguments of its schema; as
// every form, behind what the model thinks. Throws Error when the model has no
// chat template, or the template refuses the conversation.
void plan_chat(Conversation conversation, const ToolChoice& choice, const ApiLimits& limits, Plan& plan);

}  // namespace weft::api
