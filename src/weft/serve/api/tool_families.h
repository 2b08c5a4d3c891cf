// Families of models by how they write tool calls: a table, of which the parser, the grammar of constrained calls and
// the recognition of templates all read.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/text/chat_template.h"
#include "weft/text/tokenizer.h"

namespace weft::api {

// In the order in which templates are asked for their signs; each has its row in the table.
enum class ToolFormat : uint8_t {
  harmony,
  deepseek_v32,
  deepseek_v3,
  deepseek_v31,
  kimi_k2,
  minimax_m2,
  seed_oss,
  glm,
  qwen3_coder,
  functionary_v31,
  functionary_v32,
  command_r,
  phi4,
  granite,
  functools,
  minimax_m1,
  hunyuan,
  nemotron,
  lfm2,
  gemma4,
  gemma,
  pythonic,
  mistral_args,
  mistral,
  hermes,
  llama,
};

// How a call is written between its opening and its close.
enum class CallStyle : uint8_t {
  object,  // {"name": NAME, "arguments": JSON}: a member of the JSON holds the name
  named,   // NAME, then the arguments as JSON
  tagged,  // NAME, then each argument between tags: texts as they are, the rest as JSON
  python,  // NAME(KEY=VALUE, ...), the values literals of Python
  marked,  // NAME{KEY:VALUE,...}: JSON with bare names, whose texts stand between two marks (marked_arguments.h)
};

// What stands where the calls would: text, or thoughts.
struct CallHeader {
  enum class Kind : uint8_t { call, text, thought };
  Kind kind = Kind::call;
  std::string name = {}, id = {};  // id: what the model calls the call; empty when it does not
};

// Up to eight texts that are constants.
class TextList {
 public:
  constexpr TextList() = default;
  constexpr TextList(std::initializer_list<const char*> texts) : size_(texts.size()) {
    std::copy(texts.begin(), texts.end(), texts_.begin());
  }
  constexpr const char* const* begin() const { return texts_.data(); }
  constexpr const char* const* end() const { return texts_.data() + size_; }
  constexpr const char* front() const { return texts_[0]; }

 private:
  std::array<const char*, 8> texts_{};
  size_t size_ = 0;
};

// An answer with calls is
//   text  mark behind  open NAME middle ARGUMENTS close  (between open NAME middle ARGUMENTS close)*  end
// spaced as templates space it. In `open` and `middle` '#' stands for a number of up to three digits.
struct ToolFamily {
  ToolFormat format;
  const char* name;  // of --tool-format
  // What a template that writes a call shows, all of it; and a token of the family's own, for templates that show
  // nothing; null: there is none.
  TextList signs;
  const char* token;
  CallStyle style;
  const char *mark, *behind, *open, *middle, *close, *between, *end;
  // Of CallStyle::tagged, around the name and the value of an argument.
  const char *key_open = "", *value_open = "", *value_close = "";
  const char* json_open = "";  // before values that are no texts, where the tags tell them apart
  // What may also be a control token of the tokenizer; the mark first where it is one.
  TextList markers = {};
  // What the parser passes over between calls, besides white space.
  TextList around = {};
  bool is_parallel = true;
  bool is_loose = false;         // ends of lines may be missing
  bool is_whole_answer = false;  // calls are the whole answer, perhaps behind a control token
  // What stands between the markers before the arguments; null: the name.
  CallHeader (*read_header)(std::string_view header) = nullptr;
  // Every answer is made of parts, each with a header from the mark to the end of `middle` that says what it is.
  bool is_framed = false;
  const char *part_begin = "", *part_end = "";  // a header may also begin so; behind this text comes the next part
};

const ToolFamily& tool_family(ToolFormat format);
std::span<const ToolFamily> tool_families();

// By its name in the table; nothing for another word.
std::optional<ToolFormat> parse_tool_format(std::string_view name);
std::string tool_format_names();  // "hermes, llama, ...", for messages

// Which of them a template writes calls in; where it writes none, whose tokens the tokenizer has; else hermes.
ToolFormat detect_tool_format(const ChatTemplate& chat_template, const Tokenizer* tokenizer = nullptr);

// How an answer begins that must call a tool; of `name` when it is not empty. To be put behind the prompt and pushed
// into the parser.
std::string forced_beginning(ToolFormat format, const std::string& name);
// What stands before the first call where its form is constrained; pushed likewise.
std::string marker_before(ToolFormat format);
// What a model that speaks so writes before the calls that it makes by itself; where calls are the whole answer it is
// their first character. Empty where the form is that of the whole answer, of which the calls are parts.
std::string call_trigger(ToolFormat format);
// The spellings of control tokens that the parser wants to see.
std::vector<std::string> tool_markers(ToolFormat format);

}  // namespace weft::api
