// write_pairs, write_labelled, write_classes: answers and their comparisons from JSON files, as the token files of
// PairBatches, and texts of classes.
#pragma once
#include "weft/data/chat_format.h"
#include "weft/data/text_files.h"
#include "weft/data/token_file_writer.h"

namespace weft {

// What is to be learned of pairs: their answers, or a score of each text as a whole (write_scored), its first label.
enum class PairTargets : uint8_t { answers, scores };

// {"prompt", "chosen", "rejected"}; see pair_example.h. read: called with the bytes done. Throw Error naming file and
// line of an example that cannot be read, rendered or encoded.
void write_pairs(FileSystem& fs, const TextFiles& sources, const ChatFormat& chat, const Tokenizer& tokenizer,
                 PairTargets targets, TokenFileWriter& writer, FunctionRef<void(int64_t bytes)> read);
// {"prompt", "completion", "label"}; an example is compared with its prompt and the answer of the one before it, the
// first with that of the last.
void write_labelled(FileSystem& fs, const TextFiles& sources, const ChatFormat& chat, const Tokenizer& tokenizer,
                    TokenFileWriter& writer, FunctionRef<void(int64_t bytes)> read);
// {"text", "label"} or {"messages", "label"}, with labels below num_labels; documents as write_scored has them.
void write_classes(FileSystem& fs, const TextFiles& sources, const ChatFormat& chat, const Tokenizer& tokenizer,
                   int64_t num_labels, TokenFileWriter& writer, FunctionRef<void(int64_t bytes)> read);

}  // namespace weft
