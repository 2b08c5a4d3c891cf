// predicted_bytes: the text that the targets of an evaluation stand for.
#pragma once
#include "weft/data/batches.h"
#include "weft/text/tokenizer.h"

namespace weft {

// Of an evaluation over a whole file: of a text all but what the first token says, which nothing predicts, nor, where
// documents are apart, the first of each; of examples what is learned of them. Control tokens say nothing.
int64_t predicted_bytes(const std::shared_ptr<const TokenFile>& file, const Tokenizer& tokenizer,
                        const BatchOptions& options);

}  // namespace weft
