// find_chat_template: where the files do not say how special tokens are spelled, the tokenizer does.
#include "find_chat_template.h"

#include "weft/base/file.h"

namespace weft::app {
namespace {

std::vector<std::pair<std::string, std::string>> tokens_of(const Tokenizer& tokenizer) {
  std::vector<std::pair<std::string, std::string>> tokens;
  if (const auto begin = tokenizer.begin_of_document()) tokens.emplace_back("bos_token", tokenizer.spelling(*begin));
  if (const auto end = tokenizer.end_of_document()) tokens.emplace_back("eos_token", tokenizer.spelling(*end));
  return tokens;
}

}  // namespace

std::optional<ChatTemplate> find_chat_template(const std::string& file, const ModelSource& source,
                                               const Tokenizer& tokenizer) {
  std::optional<ChatTemplate::Text> found;
  if (!file.empty())
    found = {.text = read_file(file, ChatTemplate::kMostBytes), .source = file_name_of(file)};
  else
    found = source.chat_template();
  if (!found) return {};
  if (found->tokens.empty()) found->tokens = tokens_of(tokenizer);
  return ChatTemplate(*found);
}

}  // namespace weft::app
