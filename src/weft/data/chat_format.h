// ChatFormat: conversations as the text that a model is trained on, in parts of which some are answers.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/data/instruct_example.h"
#include "weft/text/jinja/template.h"
#include "weft/text/tokenizer.h"

namespace weft {

// A part of a text. Parts are encoded one by one, as a prompt and its answer are in generation.
struct ChatPart {
  std::string text;
  bool is_answer = false;
};

class ChatFormat {
 public:
  // Of a model's chat template, in Jinja; an empty one stands for the plain format "### User:\n...". `source` names
  // it in messages. bos, eos: what the template finds under bos_token and eos_token.
  ChatFormat(std::string_view chat_template, const std::string& source, std::string bos, std::string eos);

  // Answers are what the template marks by {% generation %}; without such marks, what an answer adds to the text of
  // the conversation before it with the generation prompt. Throws Error when a template gives no such thing.
  std::vector<ChatPart> render(const InstructExample& example) const;
  // Whether an answer's text ends without a token that says so.
  bool needs_end_token(const InstructExample& example) const { return !template_ || example.is_plain; }

 private:
  jinja::Rendered render(std::span<const ChatMessage> messages, bool add_generation_prompt) const;
  std::vector<ChatPart> by_marks(const InstructExample& example) const;
  std::vector<ChatPart> by_prefixes(const InstructExample& example) const;

  std::unique_ptr<jinja::Template> template_;
  std::string bos_, eos_;
};

}  // namespace weft
