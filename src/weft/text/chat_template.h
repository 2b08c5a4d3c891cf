// ChatTemplate: messages to the text that a model was trained on, by the template that is published with it.
#pragma once
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/base/file.h"
#include "weft/text/jinja/template.h"

namespace weft {

using ChatVariables = std::vector<std::pair<std::string, jinja::Value>>;

// What is rendered. Make the values by jinja::Value::from_json of parse_ordered_json: templates write JSON again, and
// models saw the keys in their order.
struct ChatInput {
  jinja::Value messages;
  bool add_generation_prompt = false;  // ends where the next answer begins
  jinja::Value tools, documents;       // left undefined: None for the template
  ChatVariables variables;             // more of them, such as enable_thinking; these win over all others
  std::time_t now = std::time(nullptr);
};

// Text and where the answers of the assistant are in it, in order: what fine-tuning learns.
struct RenderedChat {
  std::string text;
  std::vector<jinja::TextSpan> answers;
};

class ChatTemplate {
 public:
  static constexpr uint64_t kMostBytes = uint64_t(1) << 20;  // of a template's text

  // A template as a model's files have it.
  struct Text {
    std::string text, source;     // source: where it is, for messages
    std::string with_tools = {};  // another one for input with tools; empty: there is none
    // bos_token and its like, as they are spelled; none: the files do not say.
    std::vector<std::pair<std::string, std::string>> tokens = {};
    bool operator==(const Text&) const = default;
  };

  // `source` names the template in messages; `tokens` are variables such as bos_token. Throws Error naming the line.
  ChatTemplate(std::string_view text, std::string source, ChatVariables tokens = {});
  explicit ChatTemplate(const Text& text);

  // Of a folder as Hugging Face lays it out: chat_template.jinja, or what tokenizer_config.json has. Where that names
  // several, "default" is used, and "tool_use" for input with tools. Nothing where the folder has none.
  static std::optional<Text> find_text(const std::string& folder, FileSystem& fs = FileSystem::real());
  // Of the text of a tokenizer_config.json; nothing where it has none. `source` names it.
  static std::optional<Text> find_text_in(std::string_view tokenizer_config, const std::string& source);

  std::string render(const ChatInput& input) const;

  // The answers are what the template marks by {% generation %}. Where it marks none, they are what each message of
  // the role "assistant" adds to the text that asks for it; Error when the template writes earlier messages otherwise
  // once others follow, so that this cannot be told.
  RenderedChat render_with_answers(const ChatInput& input) const;

 private:
  const jinja::Template& choose(const ChatInput& input) const;
  jinja::Rendered render_messages(const ChatInput& input, jinja::Value messages, bool add_generation_prompt) const;
  std::vector<jinja::TextSpan> find_answers(const ChatInput& input, const std::string& text) const;

  jinja::Template template_;
  std::optional<jinja::Template> with_tools_;
  ChatVariables tokens_;
};

}  // namespace weft
