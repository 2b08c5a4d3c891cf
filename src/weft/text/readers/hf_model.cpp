// Models of tokenizer.json: vocabularies and merges.
#include <cmath>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/text/limits.h"
#include "weft/text/pipeline/bpe.h"
#include "weft/text/pipeline/unigram.h"
#include "weft/text/pipeline/word_piece.h"
#include "weft/text/readers/hf_parts.h"

namespace weft::hf {
namespace {

// "vocab": {"the": 5, ...}. Looks at the values themselves: a JsonView of each would build a million paths.
Vocabulary read_vocabulary(const Part& part) {
  const JsonView view = part.json.at("vocab");
  const nlohmann::json& json = view.raw();
  if (!json.is_object()) throw Error("{}: {} is not an object of tokens and ids", part.origin, view.path());
  if (json.size() > size_t(kMostTokens))
    throw Error("{}: {} holds {} tokens, more than the {} allowed", part.origin, view.path(), json.size(),
                kMostTokens);
  Vocabulary vocabulary(part.origin);
  vocabulary.reserve(json.size());
  for (auto token = json.begin(); token != json.end(); ++token) {
    if (!token->is_number_unsigned() || token->get<uint64_t>() >= uint64_t(kMostTokens))
      throw Error("{}: the id of \"{}\" in {} is {}, and an integer from 0 to {} was expected", part.origin,
                  token.key(), view.path(), token->dump().substr(0, 40), kMostTokens - 1);
    vocabulary.add(token.key(), int32_t(token->get<uint64_t>()));
  }
  return vocabulary;
}

int32_t id_of(const Part& part, const Vocabulary& vocabulary, std::string_view token, std::string_view use) {
  const int32_t id = vocabulary.find(token);
  if (id < 0) throw Error("{}: {} \"{}\" of {} is not in its vocabulary", part.origin, use, token, part.json.path());
  return id;
}

// A merge is "a b" or ["a", "b"].
std::pair<std::string_view, std::string_view> parts_of_merge(const nlohmann::json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
    return {merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()};
  if (!merge.is_string()) return {};
  const std::string_view text = merge.get_ref<const std::string&>();
  const size_t space = text.find(' ');
  if (space == text.npos || text.find(' ', space + 1) != text.npos) return {};
  return {text.substr(0, space), text.substr(space + 1)};
}

std::vector<Bpe::MergeIds> read_merges(const Part& part, const Vocabulary& vocabulary, std::string_view prefix) {
  const JsonView view = part.json.at("merges");
  const nlohmann::json& json = view.raw();
  if (!json.is_array() || json.size() > kMostMerges)
    throw Error("{}: {} is not an array of at most {} merges", part.origin, view.path(), kMostMerges);
  std::vector<Bpe::MergeIds> merges;
  merges.reserve(json.size());
  std::string merged;
  for (const nlohmann::json& merge : json) {
    const auto [left, right] = parts_of_merge(merge);
    if (left.empty() || right.empty())
      throw Error("{}: {}[{}] is not two tokens", part.origin, view.path(), merges.size());
    merged = left;
    merged += right.starts_with(prefix) ? right.substr(prefix.size()) : right;
    merges.push_back({id_of(part, vocabulary, left, "the merged token"),
                      id_of(part, vocabulary, right, "the merged token"),
                      id_of(part, vocabulary, merged, "the result of a merge")});
  }
  return merges;
}

std::unique_ptr<SubwordModel> read_bpe(const Part& part) {
  part.only({"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback",
             "ignore_merges", "vocab", "merges"});
  if (part.json.number_or("dropout", 0) != 0)
    throw Error("{}: {}.dropout makes the ids random; set it to null", part.origin, part.json.path());
  Vocabulary vocabulary = read_vocabulary(part);
  BpeOptions options{.fuse_unknown = part.json.boolean_or("fuse_unk", false),
                     .byte_fallback = part.json.boolean_or("byte_fallback", false),
                     .ignore_merges = part.json.boolean_or("ignore_merges", false),
                     .continuing_subword_prefix = part.json.string_or("continuing_subword_prefix", ""),
                     .end_of_word_suffix = part.json.string_or("end_of_word_suffix", "")};
  if (part.json.has("unk_token"))
    options.unknown = id_of(part, vocabulary, part.json.at("unk_token").string(), "the unknown token");
  const auto merges = read_merges(part, vocabulary, options.continuing_subword_prefix);
  return std::make_unique<Bpe>(std::move(vocabulary), merges, std::move(options));
}

std::unique_ptr<SubwordModel> read_word_piece(const Part& part) {
  part.only({"unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
  Vocabulary vocabulary = read_vocabulary(part);
  const WordPieceOptions options{
      .unknown = id_of(part, vocabulary, part.json.at("unk_token").string(), "the unknown token"),
      .continuing_subword_prefix = part.json.at("continuing_subword_prefix").string(),
      .max_input_chars_per_word = part.json.at("max_input_chars_per_word").integer(1, 1 << 16)};
  return std::make_unique<WordPiece>(std::move(vocabulary), options);
}

// "vocab": [["the", -3.2], ...]
std::unique_ptr<SubwordModel> read_unigram(const Part& part) {
  part.only({"unk_id", "vocab", "byte_fallback"});
  const JsonView view = part.json.at("vocab");
  const nlohmann::json& json = view.raw();
  if (!json.is_array() || json.size() > size_t(kMostTokens))
    throw Error("{}: {} is not an array of at most {} tokens", part.origin, view.path(), kMostTokens);
  Vocabulary vocabulary(part.origin);
  vocabulary.reserve(json.size());
  std::vector<std::optional<double>> scores;
  double lowest = 0;
  for (const nlohmann::json& token : json) {
    const bool is_token = token.is_array() && token.size() == 2 && token[0].is_string() && token[1].is_number();
    if (!is_token || !std::isfinite(token[1].get<double>()))
      throw Error("{}: {}[{}] is not a token and its score", part.origin, view.path(), scores.size());
    vocabulary.add(token[0].get_ref<const std::string&>(), int32_t(scores.size()));
    const double score = token[1].get<double>();
    lowest = scores.empty() ? score : std::min(lowest, score);
    scores.emplace_back(score);
  }
  UnigramOptions options{.unknown_score = lowest - kUnknownPenalty,
                         .byte_fallback = part.json.boolean_or("byte_fallback", false)};
  if (part.json.has("unk_id")) options.unknown = int32_t(part.json.at("unk_id").integer(0, vocabulary.size() - 1));
  return std::make_unique<Unigram>(std::move(vocabulary), std::move(scores), options);
}

// Files older than the key "type" are told apart by what else they have.
std::string type_of(const Part& part) {
  if (part.json.has("type")) return part.type();
  if (part.json.has("merges")) return "BPE";
  return part.json.at("vocab").is_array() ? "Unigram" : "WordPiece";
}

}  // namespace

std::unique_ptr<SubwordModel> read_model(const Part& part) {
  const std::string type = type_of(part);
  if (type == "BPE") return read_bpe(part);
  if (type == "WordPiece") return read_word_piece(part);
  if (type == "Unigram") return read_unigram(part);
  part.refuse("model");
}

}  // namespace weft::hf
