// GGUF vocabularies: told again as a tokenizer.json or a SentencePiece model, whichever they came from.
#include "weft/text/readers/gguf_vocabulary.h"

#include <nlohmann/json.hpp>

#include "weft/text/limits.h"
#include "weft/text/readers/added_token_json.h"
#include "weft/text/readers/byte_level_json.h"
#include "weft/text/readers/hf_tokenizer.h"
#include "weft/text/readers/sentencepiece.h"
#include "weft/text/utf8.h"

namespace weft {
namespace {

using Type = SentencePieceModel::Type;  // the numbers of token_type are those of SentencePiece
using Json = nlohmann::json;

void check_lists(const GgufVocabulary& v, std::string_view origin) {
  const size_t tokens = v.tokens.size();
  if (tokens == 0 || tokens > size_t(kMostTokens))
    throw Error("{}: tokenizer.ggml.tokens has {} entries, and 1 to {} are allowed", origin, tokens, kMostTokens);
  if ((!v.scores.empty() && v.scores.size() != tokens) || (!v.token_type.empty() && v.token_type.size() != tokens))
    throw Error("{}: the tokenizer has {} tokens, but {} scores and {} types", origin, tokens, v.scores.size(),
                v.token_type.size());
  for (size_t id = 0; id < tokens; ++id) {
    if (v.tokens[id].empty() || valid_utf8_prefix(v.tokens[id]) < v.tokens[id].size())
      throw Error("{}: token {} is empty or not UTF-8", origin, id);
    if (!v.token_type.empty() && (v.token_type[id] < 1 || v.token_type[id] > 6))
      throw Error("{}: token {} is of type {}, which weft does not know", origin, id, v.token_type[id]);
  }
}

Type type_of(const GgufVocabulary& v, size_t id) {
  return v.token_type.empty() ? Type::normal : Type(v.token_type[id]);
}

std::optional<AddedToken> token_at(const GgufVocabulary& v, std::optional<int32_t> id) {
  if (!id || *id < 0 || size_t(*id) >= v.tokens.size()) return std::nullopt;
  return AddedToken{.content = v.tokens[size_t(*id)], .id = *id, .special = true};
}

std::vector<AddedToken> added_of(const GgufVocabulary& v) {
  std::vector<AddedToken> added;
  for (size_t id = 0; id < v.tokens.size(); ++id) {
    const Type type = type_of(v, id);
    const bool is_special = type == Type::control || type == Type::unknown;
    if (is_special || type == Type::user_defined)
      added.push_back({.content = v.tokens[id], .id = int32_t(id), .special = is_special});
  }
  return added;
}

HfHints hints_of(const GgufVocabulary& v) {
  const auto content = [&](std::optional<int32_t> id) {
    const std::optional<AddedToken> token = token_at(v, id);
    return token ? token->content : std::string();
  };
  return {content(v.bos_token_id), content(v.eos_token_id)};
}

void add_token(Json& vocabulary, const std::string& spelling, size_t id, std::string_view origin) {
  if (!vocabulary.emplace(spelling, id).second)
    throw Error("{}: the token \"{}\" appears twice in tokenizer.ggml.tokens", origin, spelling);
}

std::unique_ptr<Tokenizer> make_byte_level(const GgufVocabulary& v, std::string_view origin) {
  if (v.pre.empty())
    throw Error("{}: it does not say how text is cut (no tokenizer.ggml.pre); convert the model again", origin);
  const std::optional<GgufPreTokenizer> pre = gguf_pre_tokenizer(v.pre);
  if (!pre)
    throw Error(
        "{}: text is cut by the pre-tokenizer \"{}\", which weft does not know; use the model's tokenizer.json",
        origin, v.pre);
  ByteLevelBpe parts{.added = added_of(v), .ignore_merges = pre->ignore_merges};
  for (const std::string_view pattern : pre->patterns) parts.patterns.emplace_back(pattern);
  for (size_t id = 0; id < v.tokens.size(); ++id) add_token(parts.vocabulary, v.tokens[id], id, origin);
  for (const std::string& merge : v.merges) parts.merges.push_back(merge);
  const std::optional<AddedToken> begin = token_at(v, v.bos_token_id), end = token_at(v, v.eos_token_id);
  if (begin && v.add_bos_token.value_or(pre->add_bos)) parts.before.push_back(*begin);
  if (end && v.add_eos_token.value_or(false)) parts.after.push_back(*end);
  return read_hf_tokenizer(to_tokenizer_json(std::move(parts)), origin, hints_of(v));
}

// SentencePiece's BPE by the ranks of its merges, as Gemma 4 has it: marks in place of spaces, and bytes for what no
// token spells.
std::unique_ptr<Tokenizer> make_ranked(const GgufVocabulary& v, std::string_view origin) {
  if (v.merges.empty()) throw Error("{}: its tokenizer needs tokenizer.ggml.merges, which are missing", origin);
  const auto replaced = [](std::string_view what, std::string_view by) {
    return Json{{"type", "Replace"}, {"pattern", {{"String", what}}}, {"content", by}};
  };
  Json vocabulary = Json::object(), added = Json::array(), unknown = nullptr;
  for (size_t id = 0; id < v.tokens.size(); ++id) add_token(vocabulary, v.tokens[id], id, origin);
  for (const AddedToken& token : added_of(v)) added.push_back(to_json(token));
  if (const std::optional<AddedToken> token = token_at(v, v.unknown_token_id)) unknown = token->content;
  std::vector<AddedToken> before, after;
  const std::optional<AddedToken> begin = token_at(v, v.bos_token_id), end = token_at(v, v.eos_token_id);
  if (begin && v.add_bos_token.value_or(true)) before.push_back(*begin);
  if (end && v.add_eos_token.value_or(false)) after.push_back(*end);
  const Json file = {
      {"version", "1.0"},
      {"added_tokens", std::move(added)},
      {"normalizer", replaced(" ", kSpaceMark)},
      {"pre_tokenizer", nullptr},
      {"post_processor", template_of(before, after)},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders", Json::array({replaced(kSpaceMark, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}})}}},
      {"model",
       {{"type", "BPE"},
        {"unk_token", std::move(unknown)},
        {"fuse_unk", true},
        {"byte_fallback", true},
        {"ignore_merges", false},
        {"vocab", std::move(vocabulary)},
        {"merges", v.merges}}}};
  return read_hf_tokenizer(to_json_text(file, 2), origin, hints_of(v));
}

// The file marks tokens that begin a word; WordPiece marks the others.
std::string word_piece_spelling(const std::string& token, Type type) {
  if (token.starts_with(kSpaceMark)) return token.substr(kSpaceMark.size());
  const bool is_name = token.starts_with('[') && token.ends_with(']');
  return type != Type::normal || is_name ? token : "##" + token;
}

std::unique_ptr<Tokenizer> make_word_piece(const GgufVocabulary& v, std::string_view origin) {
  const std::optional<AddedToken> unknown = token_at(v, v.unknown_token_id.value_or(100));
  const std::optional<AddedToken> begin = token_at(v, v.cls_token_id ? v.cls_token_id : v.bos_token_id.value_or(101));
  const std::optional<AddedToken> end = token_at(v, v.seperator_token_id.value_or(102));
  if (!unknown || !begin || !end)
    throw Error("{}: the tokens for unknown words, beginning and end are not among its {} tokens", origin,
                v.tokens.size());
  Json vocabulary = Json::object();
  for (size_t id = 0; id < v.tokens.size(); ++id)
    add_token(vocabulary, word_piece_spelling(v.tokens[id], type_of(v, id)), id, origin);
  Json added = Json::array();
  for (const AddedToken& token : added_of(v)) added.push_back(to_json(token));
  const Json file = {{"version", "1.0"},
                     {"added_tokens", std::move(added)},
                     {"normalizer",
                      {{"type", "BertNormalizer"},
                       {"clean_text", true},
                       {"handle_chinese_chars", true},
                       {"strip_accents", nullptr},
                       {"lowercase", true}}},
                     {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
                     {"post_processor", template_of({*begin}, {*end})},
                     {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
                     {"model",
                      {{"type", "WordPiece"},
                       {"unk_token", unknown->content},
                       {"continuing_subword_prefix", "##"},
                       {"max_input_chars_per_word", 100},
                       {"vocab", std::move(vocabulary)}}}};
  return read_hf_tokenizer(to_json_text(file, 2), origin);
}

std::unique_ptr<Tokenizer> make_sentencepiece(const GgufVocabulary& v, SentencePieceModel::Kind kind,
                                              std::string_view origin) {
  if (v.scores.empty() && kind == SentencePieceModel::Kind::unigram)
    throw Error("{}: a unigram tokenizer needs tokenizer.ggml.scores, which are missing", origin);
  const bool is_bpe = kind == SentencePieceModel::Kind::bpe;
  SentencePieceModel model{.kind = kind,
                           .unknown = v.unknown_token_id.value_or(is_bpe ? 0 : 2),
                           .begin = v.bos_token_id.value_or(is_bpe ? 1 : -1),
                           .end = v.eos_token_id.value_or(is_bpe ? 2 : 1),
                           .normalizing = {.add_dummy_prefix = v.add_space_prefix.value_or(is_bpe),
                                           .remove_extra_whitespaces = v.remove_extra_whitespaces.value_or(false)},
                           .character_map = v.precompiled_charsmap};
  for (size_t id = 0; id < v.tokens.size(); ++id) {
    const Type type = type_of(v, id);
    model.byte_fallback |= type == Type::byte;
    model.pieces.push_back({v.tokens[id], v.scores.empty() ? 0 : v.scores[id], type});
  }
  return make_sentencepiece_tokenizer(model,
                                      {.add_begin = v.add_bos_token.value_or(is_bpe),
                                       .add_end = v.add_eos_token.value_or(!is_bpe),
                                       .user_defined_divide = true},
                                      origin);
}

}  // namespace

std::unique_ptr<Tokenizer> make_gguf_tokenizer(const GgufVocabulary& v, std::string_view origin) {
  check_lists(v, origin);
  if (v.model == "gpt2") return make_byte_level(v, origin);
  if (v.model == "bert") return make_word_piece(v, origin);
  if (v.model == "llama") return make_sentencepiece(v, SentencePieceModel::Kind::bpe, origin);
  if (v.model == "t5") return make_sentencepiece(v, SentencePieceModel::Kind::unigram, origin);
  if (v.model == "gemma4") return make_ranked(v, origin);
  throw Error(
      "{}: its tokenizer is of the kind \"{}\"; weft reads \"gpt2\", \"llama\", \"bert\", \"t5\" and \"gemma4\"",
      origin, v.model);
}

}  // namespace weft
