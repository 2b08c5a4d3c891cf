// SentencePiece: pieces and scores for the models of pipeline/.
#include "weft/text/readers/sentencepiece.h"

#include "weft/text/base64.h"
#include "weft/text/limits.h"
#include "weft/text/pipeline/pipeline_tokenizer.h"
#include "weft/text/pipeline/spelled_bpe.h"
#include "weft/text/pipeline/unigram.h"
#include "weft/text/readers/added_token_json.h"
#include "weft/text/readers/word_starts.h"
#include "weft/text/utf8.h"

namespace weft {
namespace {

using Kind = SentencePieceModel::Kind;
using Type = SentencePieceModel::Type;

// Pieces that text is cut into, as the model's types tell.
bool is_text(Type type) { return type == Type::normal || type == Type::user_defined || type == Type::unused; }

Vocabulary vocabulary_of(const SentencePieceModel& model, std::string_view origin) {
  if (model.pieces.size() > size_t(kMostTokens)) throw Error("{}: more than {} pieces", origin, kMostTokens);
  Vocabulary vocabulary(origin);
  vocabulary.reserve(model.pieces.size());
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    const int32_t id = vocabulary.size();
    if (piece.text.empty() || valid_utf8_prefix(piece.text) < piece.text.size())
      throw Error("{}: the piece {} is empty or not UTF-8", origin, id);
    if (vocabulary.find(piece.text) >= 0)
      throw Error("{}: the pieces {} and {} are both \"{}\"", origin, vocabulary.find(piece.text), id, piece.text);
    vocabulary.add(piece.text, id);
  }
  return vocabulary;
}

std::unique_ptr<SubwordModel> bpe_of(const SentencePieceModel& model, std::optional<int32_t> unknown,
                                     bool freezes_user_defined, Vocabulary vocabulary) {
  SpelledBpeOptions options{.unknown = unknown, .byte_fallback = model.byte_fallback};
  std::vector<std::optional<float>> scores;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePieceModel::Piece& piece = model.pieces[id];
    scores.push_back(is_text(piece.type) ? std::optional<float>(piece.score) : std::nullopt);
    if (piece.type == Type::user_defined && freezes_user_defined) options.frozen.push_back(int32_t(id));
    if (piece.type == Type::unused) options.taken_apart.push_back(int32_t(id));
  }
  return std::make_unique<SpelledBpe>(std::move(vocabulary), ranks_of_scores(scores), options);
}

std::unique_ptr<SubwordModel> unigram_of(const SentencePieceModel& model, std::optional<int32_t> unknown,
                                         Vocabulary vocabulary) {
  float lowest = 0, highest = 0;
  bool has_normal = false;
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    if (piece.type != Type::normal) continue;
    lowest = has_normal ? std::min(lowest, piece.score) : piece.score;
    highest = has_normal ? std::max(highest, piece.score) : piece.score;
    has_normal = true;
  }
  std::vector<std::optional<double>> scores;
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    if (piece.type == Type::normal)
      scores.emplace_back(piece.score);
    else if (piece.type == Type::user_defined)  // better than any way of normal pieces
      scores.emplace_back(double(float(piece.text.size()) * highest) - 0.1);
    else
      scores.emplace_back(std::nullopt);
  }
  return std::make_unique<Unigram>(std::move(vocabulary), std::move(scores),
                                   UnigramOptions{.unknown = unknown,
                                                  .unknown_score = double(lowest - float(kUnknownPenalty)),
                                                  .byte_fallback = model.byte_fallback,
                                                  .sums_in_float = true});
}

std::optional<int32_t> id_with_type(const SentencePieceModel& model, int32_t id, std::initializer_list<Type> types) {
  if (id < 0 || size_t(id) >= model.pieces.size()) return std::nullopt;
  for (const Type type : types) {
    if (model.pieces[size_t(id)].type == type) return id;
  }
  return std::nullopt;
}

std::vector<AddedToken> added_of(const SentencePieceModel& model, const SentencePieceUse& use) {
  std::vector<AddedToken> added = use.added;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePieceModel::Piece& piece = model.pieces[id];
    const bool is_control = piece.type == Type::control || piece.type == Type::unknown;
    if (is_control || (piece.type == Type::user_defined && use.user_defined_divide))
      added.push_back({.content = piece.text, .id = int32_t(id), .special = is_control});
  }
  return added;
}

std::string to_json(const SentencePieceModel& model, const SentencePieceUse& use) {
  nlohmann::json added = nlohmann::json::array();
  for (const AddedToken& token : use.added) added.push_back(to_json(token));
  return to_json_text({{"type", "sentencepiece"},
                       {"version", 1},
                       {"add_begin", use.add_begin},
                       {"add_end", use.add_end},
                       {"user_defined_divide", use.user_defined_divide},
                       {"added", std::move(added)},
                       {"file", base64_of(model.file.empty() ? serialize(model) : model.file)}});
}

DecodeSteps decoder_of(const SentencePieceModel& model) {
  DecodeSteps steps;
  if (model.normalizing.escape_whitespaces) steps.push_back(replace_decoder(std::string(kSpaceMark), " "));
  steps.push_back(byte_fallback_decoder());
  const bool trims = model.normalizing.remove_extra_whitespaces;
  if (trims || model.normalizing.add_dummy_prefix) steps.push_back(strip_decoder(" ", trims ? SIZE_MAX : 1, 0, true));
  return steps;
}

}  // namespace

SentencePieceUse usual_use(const SentencePieceModel& model) {
  const bool is_bpe = model.kind == Kind::bpe;
  return {.add_begin = is_bpe, .add_end = !is_bpe};
}

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const SentencePieceModel& model, const SentencePieceUse& use,
                                                        std::string_view origin) {
  if (model.kind != Kind::bpe && model.kind != Kind::unigram)
    throw Error("{}: this SentencePiece model is of the kind \"{}\"; weft reads \"bpe\" and \"unigram\"", origin,
                model.kind == Kind::word ? "word" : "char");
  const std::optional<int32_t> unknown = id_with_type(model, model.unknown, {Type::unknown, Type::control});
  Vocabulary vocabulary = vocabulary_of(model, origin);
  std::vector<std::string> untouched;
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    if (piece.type == Type::user_defined && !use.user_defined_divide) untouched.push_back(piece.text);
  }
  TokenizerParts parts;
  parts.origin = origin;
  parts.normalizer = std::make_unique<SentencePieceNormalizer>(model.normalizing,
                                                               CharacterMap(model.character_map, origin), untouched);
  parts.model = model.kind == Kind::bpe ? bpe_of(model, unknown, !use.user_defined_divide, std::move(vocabulary))
                                        : unigram_of(model, unknown, std::move(vocabulary));
  parts.pre_tokenizer = with_word_starts(nullptr, parts.normalizer.get(), *parts.model, false);
  parts.added = added_of(model, use);
  parts.begin_of_document = id_with_type(model, model.begin, {Type::control, Type::user_defined});
  parts.end_of_document = id_with_type(model, model.end, {Type::control, Type::user_defined});
  if (use.add_begin && parts.begin_of_document) parts.before = {*parts.begin_of_document};
  if (use.add_end && parts.end_of_document) parts.after = {*parts.end_of_document};
  parts.decoder = decoder_of(model);
  if (unknown) parts.decoded_as = {{*unknown, model.unknown_text}};
  parts.json = to_json(model, use);
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

std::unique_ptr<Tokenizer> parse_sentencepiece_tokenizer(const JsonView& json, std::string_view origin) {
  SentencePieceUse use{.add_begin = json.at("add_begin").boolean(),
                       .add_end = json.at("add_end").boolean(),
                       .user_defined_divide = json.at("user_defined_divide").boolean()};
  const JsonView added = json.at("added");
  for (int64_t i = 0; i < added.size(); ++i) use.added.push_back(parse_added_token(added.at(i)));
  const std::optional<std::string> bytes = bytes_of_base64(json.at("file").string());
  if (!bytes) throw Error("{}: the SentencePiece model in it is not base64", origin);
  return make_sentencepiece_tokenizer(parse_sentencepiece_model(*bytes, origin), use, origin);
}

}  // namespace weft
