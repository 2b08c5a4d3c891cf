// Families of models by the marks between which they write what they think: a table, of which the parser, the grammar
// of forms behind it and the recognition of templates all read.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/serve/api/tool_families.h"

namespace weft::api {

// In the order in which templates are asked for their marks; each but `none` has its row in the table.
enum class ReasoningFormat : uint8_t { none, harmony, mistral, seed_oss, command, granite, gemma4, think };

// An answer is  open REASONING close behind CONTENT,  or CONTENT alone; many templates write `open` themselves.
struct ReasoningFamily {
  ReasoningFormat format;
  const char* name;  // of --reasoning-format
  const char *open, *close;
  const char* behind = "";       // may come before the content
  const char* token = nullptr;   // of the family's own, for templates that show nothing
  const char* message_key = "";  // where templates read earlier reasoning, besides reasoning_content
  bool has_blocks = false;       // or as a part of the content
};

// The row of `none` and harmony have no marks: that has none, and of harmony's parts the parser of calls tells which
// are thoughts.
const ReasoningFamily& reasoning_family(ReasoningFormat format);
std::span<const ReasoningFamily> reasoning_families();

// By its name in the table, "none" too; nothing for another word.
std::optional<ReasoningFormat> parse_reasoning_format(std::string_view name);
std::string reasoning_format_names();  // "harmony, think, ...", for messages

// Whose marks a template writes; where it writes none, whose tokens the tokenizer has. `tools`: of the same model.
ReasoningFormat detect_reasoning_format(const ChatTemplate& chat_template, const Tokenizer* tokenizer,
                                        ToolFormat tools);

// Where an answer begins that follows a prompt.
enum class ReasoningPlace : uint8_t {
  outside,  // the model does not think, or no more
  before,   // it may begin with the mark
  inside,   // the prompt ends with the mark
};
ReasoningPlace reasoning_place(ReasoningFormat format, std::string_view prompt);

}  // namespace weft::api
