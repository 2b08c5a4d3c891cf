// write_examples: conversations of JSON files as a token file of examples.
#pragma once
#include "weft/data/chat_format.h"
#include "weft/data/text_files.h"
#include "weft/data/token_file_writer.h"

namespace weft {

// How the first token of an example is marked, which nothing predicts.
enum class FirstToken : uint8_t { as_the_rest, learned, not_learned };

// Appends one example as a document of its own, of which the answers are to be learned.
void write_example(const InstructExample& example, const ChatFormat& chat, const Tokenizer& tokenizer,
                   TokenFileWriter& writer, FirstToken first = FirstToken::as_the_rest);

// Appends the text of an example, of which nothing is to be learned but a label (ModelConfig::labels) behind its last
// token, where the next token would stand. ends: whether plain text has a token behind it that says so.
void write_scored(const InstructExample& example, int32_t label, const ChatFormat& chat, const Tokenizer& tokenizer,
                  TokenFileWriter& writer, bool ends);

// Appends every example of the files as a document of its own, of which the answers are to be learned. read: called
// with the bytes done. Throws Error naming file and line of an example that cannot be read, rendered or encoded.
void write_examples(FileSystem& fs, const TextFiles& sources, InstructFormat format, const ChatFormat& chat,
                    const Tokenizer& tokenizer, TokenFileWriter& writer, FunctionRef<void(int64_t bytes)> read);

}  // namespace weft
