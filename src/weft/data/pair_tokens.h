// write_pairs, write_labelled: answers and their comparisons from JSON files, as the token files of PairBatches.
#pragma once
#include "weft/data/chat_format.h"
#include "weft/data/text_files.h"
#include "weft/data/token_file_writer.h"

namespace weft {

// {"prompt", "chosen", "rejected"}; see pair_example.h. read: called with the bytes done. Throw Error naming file and
// line of an example that cannot be read, rendered or encoded.
void write_pairs(FileSystem& fs, const TextFiles& sources, const ChatFormat& chat, const Tokenizer& tokenizer,
                 TokenFileWriter& writer, FunctionRef<void(int64_t bytes)> read);
// {"prompt", "completion", "label"}; an example is compared with its prompt and the answer of the one before it, the
// first with that of the last.
void write_labelled(FileSystem& fs, const TextFiles& sources, const ChatFormat& chat, const Tokenizer& tokenizer,
                    TokenFileWriter& writer, FunctionRef<void(int64_t bytes)> read);

}  // namespace weft
