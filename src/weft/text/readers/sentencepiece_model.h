// SentencePieceModel: what a SentencePiece .model file holds, as plain data; read and written.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/text/pipeline/sentencepiece_normalizer.h"

namespace weft {

struct SentencePieceModel {
  enum class Kind { unigram = 1, bpe = 2, word = 3, character = 4 };  // TrainerSpec.ModelType
  enum class Type { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::normal;
  };

  std::vector<Piece> pieces;  // by id
  Kind kind = Kind::unigram;
  bool byte_fallback = false;
  int32_t unknown = 0, begin = 1, end = 2;      // ids; -1: there is none
  std::string unknown_text = " \xE2\x81\x87 ";  // what the unknown piece is decoded to
  SentencePieceNormalizing normalizing;
  std::string character_map;  // empty: characters stay as they are
  std::string file;           // the bytes it was read from; empty: it was made in memory
};

// `origin` is the file that errors name.
SentencePieceModel parse_sentencepiece_model(std::string_view bytes, std::string_view origin);
std::string serialize(const SentencePieceModel& model);

}  // namespace weft
