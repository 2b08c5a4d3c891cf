// Prompts: as an answer finds them when a model is served.
#include "weft/data/prompts.h"

#include <nlohmann/json.hpp>

#include "weft/base/error.h"

namespace weft {
namespace {

std::string answer_of(const nlohmann::json& json, const std::string& place) {
  for (const char* key : {"answer", "solution"}) {
    const auto found = json.find(key);
    if (found == json.end() || found->is_null()) continue;
    if (found->is_string()) return found->get<std::string>();
    if (found->is_number()) return found->dump();
    throw Error("{}: \"{}\" must be a text or a number", place, key);
  }
  return {};
}

Prompt read_prompt(const nlohmann::json& json, const std::string& place, const ChatFormat& chat,
                   const Tokenizer& tokenizer) {
  const InstructExample example = parse_prompt(json, place);
  Prompt prompt;
  const bool is_ours = chat.needs_end_token(example);  // a template writes control tokens itself
  if (const auto before = tokenizer.before_text(); is_ours) prompt.ids.assign(before.begin(), before.end());
  try {
    tokenizer.encode(chat.render_prompt(example), {.parse_special = !is_ours}, prompt.ids);
  } catch (const Error& error) {
    throw Error("{}: {}", place, error.what());
  }
  if (prompt.ids.empty()) throw Error("{}: the prompt is empty, and at least one token is needed", place);
  prompt.answer = answer_of(json, place);
  prompt.example = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return prompt;
}

}  // namespace

std::vector<Prompt> read_prompts(FileSystem& fs, const TextFiles& sources, const ChatFormat& chat,
                                 const Tokenizer& tokenizer, std::string_view key,
                                 FunctionRef<void(int64_t bytes)> read) {
  std::vector<Prompt> all;
  for (const TextFile& source : sources.files)
    for_each_json(
        fs, source.path,
        [&](const nlohmann::json& json, const std::string& place) {
          all.push_back(read_prompt(json, place, chat, tokenizer));
        },
        read);
  if (all.empty()) throw UsageError("{}: its {} files hold no example", key, sources.files.size());
  return all;
}

}  // namespace weft
