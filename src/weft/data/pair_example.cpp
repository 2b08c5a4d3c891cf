// PairExample: shapes of JSON.
#include "weft/data/pair_example.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"

namespace weft {
namespace {

using Json = nlohmann::json;

const Json& need(const Json& object, const char* key, std::string_view source) {
  if (!object.is_object()) throw Error("{}: an example must be an object", source);
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) throw Error("{}: \"{}\" is missing", source, key);
  return *found;
}

// A prompt and an answer, both texts or both lists of messages; of the answer's messages those of the assistant are
// learned, and of no other.
InstructExample example_of(const Json& prompt, const Json& answer, const char* key, std::string_view source) {
  if (prompt.is_string() && answer.is_string())
    return parse_example({{"prompt", prompt}, {"completion", answer}}, InstructFormat::completion, source);
  if (!prompt.is_array() || !answer.is_array())
    throw Error("{}: \"prompt\" and \"{}\" must both be texts or both be lists of messages", source, key);
  Json messages = prompt;
  messages.insert(messages.end(), answer.begin(), answer.end());
  InstructExample example = parse_example({{"messages", messages}}, InstructFormat::chat, source);
  for (size_t i = 0; i < prompt.size(); ++i) example.messages[i].is_answer = false;
  if (std::ranges::none_of(example.messages, &ChatMessage::is_answer))
    throw Error("{}: \"{}\" has no answer", source, key);
  return example;
}

// What two conversations have in common at their beginning.
Json common_prompt(const Json& chosen, const Json& rejected, std::string_view source) {
  if (!chosen.is_array() || !rejected.is_array())
    throw Error("{}: \"prompt\" is missing, and \"chosen\" and \"rejected\" are no conversations that contain it",
                source);
  size_t same = 0;
  while (same < chosen.size() && same < rejected.size() && chosen[same] == rejected[same]) ++same;
  if (same == 0 || same == chosen.size() || same == rejected.size())
    throw Error("{}: \"chosen\" and \"rejected\" must begin with the same prompt and end with different answers",
                source);
  return Json(chosen.begin(), chosen.begin() + int64_t(same));
}

Json rest_of(const Json& conversation, size_t begin) {
  Json rest = Json::array();
  for (size_t i = begin; i < conversation.size(); ++i) rest.push_back(conversation[i]);
  return rest;
}

// Whoever speaks last.
InstructExample conversation(const Json& messages, std::string_view source) {
  const Json* const last = messages.is_array() && !messages.empty() ? &messages.back() : nullptr;
  const bool is_answered = last && last->is_object() && last->value("role", Json()) == "assistant";
  return is_answered ? parse_example({{"messages", messages}}, InstructFormat::chat, source)
                     : parse_prompt({{"prompt", messages}}, source);
}

}  // namespace

PairExample parse_pair(const Json& json, std::string_view source) {
  const Json& chosen = need(json, "chosen", source);
  const Json& rejected = need(json, "rejected", source);
  if (const auto prompt = json.find("prompt"); prompt != json.end() && !prompt->is_null())
    return {example_of(*prompt, chosen, "chosen", source), example_of(*prompt, rejected, "rejected", source)};
  const Json prompt = common_prompt(chosen, rejected, source);
  return {example_of(prompt, rest_of(chosen, prompt.size()), "chosen", source),
          example_of(prompt, rest_of(rejected, prompt.size()), "rejected", source)};
}

LabelledExample parse_labelled(const Json& json, std::string_view source) {
  const Json& label = need(json, "label", source);
  if (!label.is_boolean()) throw Error("{}: \"label\" must be true or false", source);
  return {example_of(need(json, "prompt", source), need(json, "completion", source), "completion", source),
          label.get<bool>()};
}

ClassExample parse_class(const Json& json, int64_t num_labels, std::string_view source) {
  const Json& label = need(json, "label", source);
  if (!label.is_number_integer() || label < 0 || label >= num_labels)
    throw Error("{}: \"label\" must be a whole number from 0 to {}, as model.labels = {} says", source,
                num_labels - 1, num_labels);
  ClassExample found{.example = {}, .label = label.get<int32_t>()};
  if (const auto text = json.find("text"); text != json.end() && text->is_string())
    found.example = {.messages = {{.role = "", .content = text->get<std::string>()}}, .is_plain = true};
  else
    found.example = conversation(need(json, "messages", source), source);
  return found;
}

InstructExample with_answer_of(const InstructExample& prompt, const InstructExample& answer) {
  InstructExample mixed{.messages = {}, .is_plain = prompt.is_plain && answer.is_plain};
  const auto first_answer = [](const InstructExample& e) {
    return std::ranges::find_if(e.messages, &ChatMessage::is_answer);
  };
  mixed.messages.assign(prompt.messages.begin(), first_answer(prompt));
  mixed.messages.insert(mixed.messages.end(), first_answer(answer), answer.messages.end());
  return mixed;
}

}  // namespace weft
