// Cutting a text into words where the model does so by itself, which makes long texts fast and lets them be divided.
#pragma once
#include <memory>

#include "weft/text/pipeline/normalizer.h"
#include "weft/text/pipeline/pre_tokenizer.h"
#include "weft/text/pipeline/subword_model.h"

namespace weft {

// `pre_tokenizer` (null: none), with a step behind it that cuts before spaces, when the normalizer (may be null)
// writes these as U+2581 and no token holds that mark behind something else: then no token and no merge reaches
// across. `keeps_whole_pieces`: a piece that is a token stays one, so pieces must not change.
std::unique_ptr<PreTokenizer> with_word_starts(std::unique_ptr<PreTokenizer> pre_tokenizer,
                                               const Normalizer* normalizer, const SubwordModel& model,
                                               bool keeps_whole_pieces);

}  // namespace weft
