// EncoderLogits: what `weft logits` prints of models that are no decoders.
#pragma once
#include <string>

#include "command.h"
#include "forward_ranks.h"

namespace weft::app {

struct EncoderInputs {
  std::string ids;          // of a text, as in 1,2,3
  std::string decoder_ids;  // T5: of the text that is written
  std::string pixels_file;  // JSON, numbers in lists of any depth: [channels, rows, columns]
};

// Throws UsageError naming the option that the model needs.
void print_encoder_logits(EncoderKind kind, const ForwardOptions& options, const EncoderInputs& inputs,
                          const Output& output);

}  // namespace weft::app
