// find_chat_template: the template that a conversation with a model is written by.
#pragma once
#include <optional>

#include "weft/pretrained/model_source.h"
#include "weft/text/chat_template.h"

namespace weft::app {

// That of `file`; without one, what the model's files bring. Nothing where there is none.
std::optional<ChatTemplate> find_chat_template(const std::string& file, const ModelSource& source,
                                               const Tokenizer& tokenizer);

}  // namespace weft::app
