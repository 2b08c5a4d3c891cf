// ChatFormat: conversations as the text that a model is trained on, in parts of which some are answers.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "weft/data/instruct_example.h"
#include "weft/text/chat_template.h"
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
  ChatFormat(std::string_view chat_template, const std::string& source, const std::string& bos,
             const std::string& eos);
  // With the tokenizer's own, as it spells them.
  ChatFormat(std::string_view chat_template, const std::string& source, const Tokenizer& tokenizer);
  // Of a template with its tokens; nothing stands for the plain format.
  ChatFormat(std::optional<ChatTemplate> chat_template, std::string source)
      : template_(std::move(chat_template)), source_(std::move(source)) {}

  // Throws Error when the template does not say where answers are; see ChatTemplate::render_with_answers.
  std::vector<ChatPart> render(const InstructExample& example) const;
  // Its text up to where the next answer begins.
  std::string render_prompt(const InstructExample& example) const;
  // Whether an answer's text ends without a token that says so.
  bool needs_end_token(const InstructExample& example) const { return !template_ || example.is_plain; }

 private:
  std::optional<ChatTemplate> template_;
  std::string source_;
};

}  // namespace weft
