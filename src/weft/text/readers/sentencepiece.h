// Tokenizers of SentencePiece models.
#pragma once
#include <memory>

#include "weft/base/json.h"
#include "weft/text/pipeline/added_tokens.h"
#include "weft/text/readers/sentencepiece_model.h"
#include "weft/text/tokenizer.h"

namespace weft {

// What a model file leaves to those who use it.
struct SentencePieceUse {
  bool add_begin = true, add_end = false;  // put around a text by EncodeOptions::add_special
  // User-defined pieces divide a text like control tokens do, so that what follows one is like a text of its own.
  bool user_defined_divide = false;
  std::vector<AddedToken> added;  // beside the model's pieces
};

// What goes around a text unless somebody says otherwise: BPE models were made for decoders, which want a beginning,
// unigram models for encoders, which want an end.
SentencePieceUse usual_use(const SentencePieceModel& model);

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const SentencePieceModel& model, const SentencePieceUse& use,
                                                        std::string_view origin);
// From to_json() of such a tokenizer.
std::unique_ptr<Tokenizer> parse_sentencepiece_tokenizer(const JsonView& json, std::string_view origin);

}  // namespace weft
