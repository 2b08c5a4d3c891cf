// PairExample: two answers to a prompt, of which one is preferred; or one answer and whether it is desirable; or a
// text and the class that it is of.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "weft/data/instruct_example.h"

namespace weft {

// {"prompt", "chosen", "rejected"}: texts, or lists of messages; without "prompt", conversations that begin alike.
struct PairExample {
  InstructExample chosen, rejected;
};
// {"prompt", "completion", "label"}: texts or lists of messages, and true or false.
struct LabelledExample {
  InstructExample example;
  bool is_desirable = false;
};

// {"text", "label"} or {"messages", "label"}: a text, or a conversation, and a number.
struct ClassExample {
  InstructExample example;
  int32_t label = 0;
};

// Throw Error "SOURCE: what".
PairExample parse_pair(const nlohmann::json& json, std::string_view source);
LabelledExample parse_labelled(const nlohmann::json& json, std::string_view source);
ClassExample parse_class(const nlohmann::json& json, int64_t num_labels, std::string_view source);

// The prompt of one example with the answer of another.
InstructExample with_answer_of(const InstructExample& prompt, const InstructExample& answer);

}  // namespace weft
