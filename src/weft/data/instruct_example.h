// InstructExample: one conversation of a data set, whichever of the common shapes its JSON has.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/file.h"
#include "weft/base/function_ref.h"

namespace weft {

// automatic: each example's keys say which shape it has.
//   chat         {"messages": [{"role", "content"}]}, {"conversations": [{"from", "value"}]}
//   alpaca       {"instruction", "input", "output"}, with or without "system" and "history"
//   completion   {"prompt", "completion"}: plain text, without a chat template
enum class InstructFormat : uint8_t { automatic, chat, alpaca, completion };

struct ChatMessage {
  std::string role, content;
  bool is_answer = false;  // to be learned
};

struct InstructExample {
  std::vector<ChatMessage> messages;
  bool is_plain = false;  // the messages' contents are the whole text
};

// Throws Error "SOURCE: what" for an example of another shape, one without an answer, or an unknown role.
InstructExample parse_example(const nlohmann::json& json, InstructFormat format, std::string_view source);

// What is to be answered, by somebody else: {"prompt"}, a text, which is plain, or a list of messages; or
// {"question"}, a message of the user. Throws Error as parse_example.
InstructExample parse_prompt(const nlohmann::json& json, std::string_view source);

// Calls visit(json, place) for each value of a file: JSON lines, or one JSON array; see for_each_example.
void for_each_json(FileSystem& fs, const std::string& path,
                   FunctionRef<void(const nlohmann::json& json, const std::string& place)> visit,
                   FunctionRef<void(int64_t bytes)> read);

// Calls visit(example, place) for each example of a file, "FILE, line N" or "FILE, example N": JSON lines, or one
// JSON array. An empty line is none. read: called with the bytes done.
void for_each_example(FileSystem& fs, const std::string& path, InstructFormat format,
                      FunctionRef<void(const InstructExample& example, const std::string& place)> visit,
                      FunctionRef<void(int64_t bytes)> read);

}  // namespace weft
