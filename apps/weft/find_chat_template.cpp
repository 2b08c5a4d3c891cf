// find_chat_template: a folder's template knows the folder's tokens; others are told the tokenizer's.
#include "find_chat_template.h"

#include "weft/base/file.h"

namespace weft::app {
namespace {

constexpr uint64_t kMostTemplateBytes = uint64_t(1) << 20;

ChatVariables tokens_of(const Tokenizer& tokenizer) {
  ChatVariables tokens;
  if (const auto begin = tokenizer.begin_of_document()) tokens.emplace_back("bos_token", tokenizer.spelling(*begin));
  if (const auto end = tokenizer.end_of_document()) tokens.emplace_back("eos_token", tokenizer.spelling(*end));
  return tokens;
}

}  // namespace

std::optional<ChatTemplate> find_chat_template(const std::string& file, const ModelSource& source,
                                               const Tokenizer& tokenizer) {
  if (!file.empty())
    return ChatTemplate(read_file(file, kMostTemplateBytes), file_name_of(file), tokens_of(tokenizer));
  if (ChatTemplate::exists_in(source.path())) return ChatTemplate::load(source.path());
  if (const auto text = source.chat_template())
    return ChatTemplate(*text, file_name_of(source.path()), tokens_of(tokenizer));
  return {};
}

}  // namespace weft::app
