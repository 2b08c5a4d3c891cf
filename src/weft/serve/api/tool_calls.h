// Tool calls: how the common chat templates write them, parsed out of an answer while it comes.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/text/chat_template.h"
#include "weft/text/tokenizer.h"

namespace weft::api {

// hermes: <tool_call>{"name": ..., "arguments": {...}}</tool_call>, as of Qwen.
// llama: the whole answer is {"name": ..., "parameters": {...}}, perhaps behind <|python_tag|>.
// mistral: [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...], or [TOOL_CALLS]NAME[ARGS]{...} in later ones.
enum class ToolFormat : uint8_t { hermes, llama, mistral };

// "hermes", "llama", "mistral"; nothing for another word.
std::optional<ToolFormat> parse_tool_format(std::string_view name);
// Which of them a template writes calls in.
ToolFormat detect_tool_format(const ChatTemplate& chat_template);

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON
};

// How an answer begins that must call a tool; of `name` when it is not empty. To be put behind the prompt and pushed
// into the parser.
std::string forced_beginning(ToolFormat format, const std::string& name);
// The beginning of a call of `name`, up to its arguments.
std::string call_beginning(ToolFormat format, const std::string& name);
// What stands before the first call, outside of its JSON; pushed likewise where the rest is constrained.
std::string marker_before(ToolFormat format);
// What a model that speaks so writes before the JSON of calls that it makes by itself; of Llama's it is their first
// character, and of the answer. Empty where that is not sure before the call is there: later models of Mistral write
// [ARGS], which is a token of theirs.
std::string call_trigger(ToolFormat format, const Tokenizer& tokenizer);
// Whether calls are the whole answer, perhaps behind a control token.
bool is_whole_answer(ToolFormat format);
// The spellings of control tokens that the parser wants to see.
std::vector<std::string> tool_markers(ToolFormat format);

class ToolCallParser {
 public:
  explicit ToolCallParser(ToolFormat format) : format_(format) {}

  struct Output {
    std::string content;  // text for people
    std::vector<ToolCall> calls;
  };
  Output push(std::string_view text);
  Output finish();  // what looked like a call and is none becomes content

 private:
  struct Split {
    size_t content_bytes = 0;
    bool is_call = false;  // what follows them
  };
  Split split_llama(bool is_last) const;
  Split split_mistral(bool is_last) const;
  void take_hermes(Output& output, bool is_last);
  void take_whole(Output& output, bool is_last);
  bool take_llama(std::string_view text, Output& output) const;
  bool take_mistral(std::string_view text, Output& output) const;

  ToolFormat format_;
  std::string held_;
  bool is_inside_ = false;  // of a call
  bool has_content_ = false, has_calls_ = false;
};

}  // namespace weft::api
