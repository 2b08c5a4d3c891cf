// ModelUse: gathered from an opened model, and written as two files.
#include "weft/pretrained/model_use.h"

#include <nlohmann/json.hpp>

#include "weft/base/json.h"

namespace weft {
namespace {

constexpr const char* kTemplateKey = "chat_template";

bool has_tokenizer(const ModelSource& source, const Tokenizer& tokenizer) {
  try {
    return source.tokenizer()->to_json() == tokenizer.to_json();
  } catch (const Error&) {  // it has none that weft reads
    return false;
  }
}

nlohmann::json tokenizer_config(const ChatTemplate::Text& chat) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [name, token] : chat.tokens) json[name] = token;
  if (chat.text.empty()) return json;
  if (chat.with_tools.empty())
    json[kTemplateKey] = chat.text;
  else
    json[kTemplateKey] = nlohmann::json::array(
        {{{"name", "default"}, {"template", chat.text}}, {{"name", "tool_use"}, {"template", chat.with_tools}}});
  return json;
}

}  // namespace

ModelUse use_of(const ModelSource& source) {
  return {.chat_template = source.chat_template().value_or(ChatTemplate::Text()),
          .ids = source.special_ids(),
          .sampling = source.sampling_defaults()};
}

ModelUse use_after_training(const ModelSource* start, const Tokenizer& tokenizer, ChatTemplate::Text chat_template) {
  ModelUse use{.chat_template = std::move(chat_template)};
  if (!start) return use;
  use.sampling = start->sampling_defaults();
  if (has_tokenizer(*start, tokenizer))
    use.ids = start->special_ids();
  else
    use.chat_template.tokens.clear();
  return use;
}

std::vector<std::pair<std::string, std::string>> files_of(const ModelUse& use) {
  std::vector<std::pair<std::string, std::string>> files;
  if (const nlohmann::json json = tokenizer_config(use.chat_template); !json.empty())
    files.emplace_back(kTokenizerConfigName, to_json_text(json, 2) + "\n");
  nlohmann::json generation = nlohmann::json::object();
  if (use.ids != SpecialIds()) write_special_ids(generation, use.ids);
  write_sampling_defaults(generation, use.sampling);
  if (!generation.empty()) files.emplace_back(kGenerationConfigName, to_json_text(generation, 2) + "\n");
  return files;
}

}  // namespace weft
