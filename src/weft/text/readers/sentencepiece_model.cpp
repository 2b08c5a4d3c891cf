// SentencePieceModel: the few fields of sentencepiece_model.proto that change how a text is cut.
#include "weft/text/readers/sentencepiece_model.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>

#include <cmath>

#include "weft/base/bytes.h"
#include "weft/base/error.h"
#include "weft/text/limits.h"

namespace weft {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

// Field numbers of sentencepiece_model.proto.
struct ModelField {
  static constexpr int kPieces = 1, kTrainer = 2, kNormalizer = 3;
};
struct PieceField {
  static constexpr int kText = 1, kScore = 2, kType = 3;
};
struct TrainerField {
  static constexpr int kKind = 3, kWhitespaceAsSuffix = 24, kByteFallback = 35, kUnknown = 40, kBegin = 41, kEnd = 42,
                       kUnknownText = 44;
};
struct NormalizerField {
  static constexpr int kCharacterMap = 2, kDummyPrefix = 3, kRemoveExtra = 4, kEscape = 5;
};

// One message's fields in turn; what the caller does not read is skipped.
class Fields {
 public:
  Fields(std::string_view bytes, std::string_view origin)
      : in_(reinterpret_cast<const uint8_t*>(bytes.data()), int(bytes.size())), origin_(origin) {}

  bool next() {
    if (tag_ != 0 && !is_read_ && !WireFormatLite::SkipField(&in_, tag_)) fail();
    tag_ = in_.ReadTag();
    is_read_ = false;
    if (tag_ == 0 && !in_.ConsumedEntireMessage()) fail();
    return tag_ != 0;
  }
  int number() const { return WireFormatLite::GetTagFieldNumber(tag_); }

  std::string bytes() {
    std::string value;
    expect(WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
    if (!WireFormatLite::ReadBytes(&in_, &value)) fail();
    return value;
  }
  uint64_t integer() {
    uint64_t value = 0;
    expect(WireFormatLite::WIRETYPE_VARINT);
    if (!in_.ReadVarint64(&value)) fail();
    return value;
  }
  float number32() {
    float value = 0;
    expect(WireFormatLite::WIRETYPE_FIXED32);
    if (!WireFormatLite::ReadPrimitive<float, WireFormatLite::TYPE_FLOAT>(&in_, &value) || !std::isfinite(value))
      fail();
    return value;
  }

 private:
  void expect(WireFormatLite::WireType type) {
    if (WireFormatLite::GetTagWireType(tag_) != type) fail();
    is_read_ = true;
  }
  [[noreturn]] void fail() const {
    throw Error("{}: this is not a SentencePiece model, or it is damaged near byte {} of a message", origin_,
                in_.CurrentPosition());
  }

  CodedInputStream in_;
  std::string_view origin_;
  uint32_t tag_ = 0;
  bool is_read_ = false;
};

SentencePieceModel::Piece parse_piece(std::string_view bytes, std::string_view origin) {
  SentencePieceModel::Piece piece;
  Fields fields(bytes, origin);
  while (fields.next()) {
    if (fields.number() == PieceField::kText) piece.text = fields.bytes();
    if (fields.number() == PieceField::kScore) piece.score = fields.number32();
    if (fields.number() == PieceField::kType) {
      const uint64_t type = fields.integer();
      if (type < 1 || type > 6)
        throw Error("{}: the piece \"{}\" is of type {}, which weft does not know", origin, piece.text, type);
      piece.type = SentencePieceModel::Type(type);
    }
  }
  return piece;
}

int32_t id_of(uint64_t varint) {
  const int64_t value = int64_t(varint);
  return value < 0 || value >= kMostTokens ? -1 : int32_t(value);
}

void parse_trainer(std::string_view bytes, std::string_view origin, SentencePieceModel& model) {
  Fields fields(bytes, origin);
  while (fields.next()) {
    switch (fields.number()) {
      case TrainerField::kKind: {
        const uint64_t kind = fields.integer();
        if (kind < 1 || kind > 4)
          throw Error("{}: this SentencePiece model is of kind {}, which weft does not know", origin, kind);
        model.kind = SentencePieceModel::Kind(kind);
        break;
      }
      case TrainerField::kWhitespaceAsSuffix:
        model.normalizing.treat_whitespace_as_suffix = fields.integer() != 0;
        break;
      case TrainerField::kByteFallback: model.byte_fallback = fields.integer() != 0; break;
      case TrainerField::kUnknown: model.unknown = id_of(fields.integer()); break;
      case TrainerField::kBegin: model.begin = id_of(fields.integer()); break;
      case TrainerField::kEnd: model.end = id_of(fields.integer()); break;
      case TrainerField::kUnknownText: model.unknown_text = fields.bytes(); break;
    }
  }
}

void parse_normalizer(std::string_view bytes, std::string_view origin, SentencePieceModel& model) {
  Fields fields(bytes, origin);
  while (fields.next()) {
    switch (fields.number()) {
      case NormalizerField::kCharacterMap: model.character_map = fields.bytes(); break;
      case NormalizerField::kDummyPrefix: model.normalizing.add_dummy_prefix = fields.integer() != 0; break;
      case NormalizerField::kRemoveExtra: model.normalizing.remove_extra_whitespaces = fields.integer() != 0; break;
      case NormalizerField::kEscape: model.normalizing.escape_whitespaces = fields.integer() != 0; break;
    }
  }
}

template <class Fill>
std::string message(Fill fill) {
  std::string bytes;
  google::protobuf::io::StringOutputStream text(&bytes);
  CodedOutputStream out(&text);
  fill(out);
  out.Trim();
  return bytes;
}

}  // namespace

SentencePieceModel parse_sentencepiece_model(std::string_view bytes, std::string_view origin) {
  if (bytes.size() > kMostTokenizerFileBytes)
    throw Error("{}: {} bytes are more than the {} allowed of a tokenizer", origin, bytes.size(),
                kMostTokenizerFileBytes);
  SentencePieceModel model;
  model.file = bytes;
  Fields fields(bytes, origin);
  while (fields.next()) {
    switch (fields.number()) {
      case ModelField::kPieces:
        if (model.pieces.size() == size_t(kMostTokens)) throw Error("{}: more than {} pieces", origin, kMostTokens);
        model.pieces.push_back(parse_piece(fields.bytes(), origin));
        break;
      case ModelField::kTrainer: parse_trainer(fields.bytes(), origin, model); break;
      case ModelField::kNormalizer: parse_normalizer(fields.bytes(), origin, model); break;
    }
  }
  if (model.pieces.empty()) throw Error("{}: this is not a SentencePiece model: it has no pieces", origin);
  return model;
}

std::string serialize(const SentencePieceModel& model) {
  return message([&](CodedOutputStream& out) {
    for (const SentencePieceModel::Piece& piece : model.pieces) {
      const std::string bytes = message([&](CodedOutputStream& inner) {
        WireFormatLite::WriteBytes(PieceField::kText, piece.text, &inner);
        WireFormatLite::WriteFloat(PieceField::kScore, piece.score, &inner);
        WireFormatLite::WriteEnum(PieceField::kType, int(piece.type), &inner);
      });
      WireFormatLite::WriteBytes(ModelField::kPieces, bytes, &out);
    }
    const std::string trainer = message([&](CodedOutputStream& inner) {
      WireFormatLite::WriteEnum(TrainerField::kKind, int(model.kind), &inner);
      WireFormatLite::WriteBool(TrainerField::kWhitespaceAsSuffix, model.normalizing.treat_whitespace_as_suffix,
                                &inner);
      WireFormatLite::WriteBool(TrainerField::kByteFallback, model.byte_fallback, &inner);
      WireFormatLite::WriteInt32(TrainerField::kUnknown, model.unknown, &inner);
      WireFormatLite::WriteInt32(TrainerField::kBegin, model.begin, &inner);
      WireFormatLite::WriteInt32(TrainerField::kEnd, model.end, &inner);
      WireFormatLite::WriteBytes(TrainerField::kUnknownText, model.unknown_text, &inner);
    });
    WireFormatLite::WriteBytes(ModelField::kTrainer, trainer, &out);
    const std::string normalizer = message([&](CodedOutputStream& inner) {
      WireFormatLite::WriteBytes(NormalizerField::kCharacterMap, model.character_map, &inner);
      WireFormatLite::WriteBool(NormalizerField::kDummyPrefix, model.normalizing.add_dummy_prefix, &inner);
      WireFormatLite::WriteBool(NormalizerField::kRemoveExtra, model.normalizing.remove_extra_whitespaces, &inner);
      WireFormatLite::WriteBool(NormalizerField::kEscape, model.normalizing.escape_whitespaces, &inner);
    });
    WireFormatLite::WriteBytes(ModelField::kNormalizer, normalizer, &out);
  });
}

}  // namespace weft
