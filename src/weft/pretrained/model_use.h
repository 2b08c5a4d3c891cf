// ModelUse: what a model's makers say of its use beside weights and tokenizer: how conversations are written, which
// tokens are special, how tokens are chosen. A checkpoint keeps it.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "weft/pretrained/model_source.h"

namespace weft {

inline constexpr std::string_view kTokenizerConfigName = "tokenizer_config.json";

struct ModelUse {
  ChatTemplate::Text chat_template;  // no text: there is none
  SpecialIds ids;
  SamplingDefaults sampling;

  bool operator==(const ModelUse&) const = default;
};

ModelUse use_of(const ModelSource& source);
// Of a model that was trained from `start` with this tokenizer and that template, if any: ids and spellings of
// another tokenizer say nothing of it.
ModelUse use_after_training(const ModelSource* start, const Tokenizer& tokenizer, ChatTemplate::Text chat_template);

// The files that say it, as Hugging Face's library lays them out, by name: tokenizer_config.json and
// generation_config.json, each where there is something to say.
std::vector<std::pair<std::string, std::string>> files_of(const ModelUse& use);

}  // namespace weft
