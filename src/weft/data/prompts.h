// read_prompts: questions from JSON files, as tokens, with what their answers are scored by.
#pragma once
#include <string>
#include <vector>

#include "weft/data/chat_format.h"
#include "weft/data/text_files.h"
#include "weft/text/tokenizer.h"

namespace weft {

struct Prompt {
  std::vector<int32_t> ids;  // at least one
  std::string answer;        // that an answer is compared with; empty where the example has none
  std::string example;       // the whole example as JSON, in one line
};

// {"prompt"} or {"question"} as parse_prompt reads them, and {"answer"} or {"solution"}: a text, or a number. Read
// whole; `read` is called with the bytes done. key: the config key that names the files. Throw Error naming file and
// line of an example that cannot be read, rendered or encoded.
std::vector<Prompt> read_prompts(FileSystem& fs, const TextFiles& sources, const ChatFormat& chat,
                                 const Tokenizer& tokenizer, std::string_view key,
                                 FunctionRef<void(int64_t bytes)> read);

}  // namespace weft
