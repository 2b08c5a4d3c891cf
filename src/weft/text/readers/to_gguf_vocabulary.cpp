// Tokenizers to GGUF vocabularies: candidates, and a text that tells them apart.
#include "weft/text/readers/to_gguf_vocabulary.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "weft/base/json.h"
#include "weft/text/base64.h"
#include "weft/text/limits.h"
#include "weft/text/readers/hf_tokenizer.h"
#include "weft/text/readers/sentencepiece_model.h"
#include "weft/text/utf8.h"

namespace weft {
namespace {

using Json = nlohmann::json;
using Type = SentencePieceModel::Type;

// Words, cases, contractions, numbers, white space, signs, several scripts, what joins characters.
constexpr std::string_view kProbe =
    "Hello WORLD, it's we'll I'VE they'd\tcan't\n\n \n  if (x >= 10) { y += 3.14159265; }  // 1234567890 123 12\r\n"
    "   three spaces   end \xC3\x89t\xC3\xA9 na\xC3\xAFve Stra\xC3\x9F"
    "e \xD0\x9F\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82, "
    "\xE4\xBD\xA0\xE5\xA5\xBD\xE4\xB8\x96\xE7\x95\x8C\xE3\x80\x82\xE6\x97\xA5\xE6\x9C\xAC\xE3\x81\xAE "
    "\xED\x95\x9C\xEA\xB5\xAD "
    "\xD9\x85\xD8\xB1\xD8\xAD\xD8\xA8\xD8\xA7 "
    "\xE0\xA4\xA8\xE0\xA4\xAE\xE0\xA4\xB8\xE0\xA5\x8D\xE0\xA4\xA4\xE0\xA5\x87 "
    "\xF0\x9F\x98\x80\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x92\xBB \xE2\x80\x9Cquoted\xE2\x80\x9D \xE2\x80\xA6 "
    "#@$%^&*()!? "
    "camelCase snake_case HTTPServer 3rd a1b2 \xC2\xBD \xD9\xA3\xD9\xA4 ''''''```\"\"\" =====\n\n\n\t\tx\n ";

std::optional<std::vector<int32_t>> ids_of(const Tokenizer& tokenizer, bool add_special) {
  try {
    return tokenizer.encode(kProbe, {.add_special = add_special});
  } catch (const EncodeError&) {
    return {};
  }
}

bool is_same(const Tokenizer& a, const GgufVocabulary& vocabulary) {
  try {
    const auto b = make_gguf_tokenizer(vocabulary, "the vocabulary");
    return ids_of(a, false) == ids_of(*b, false) && ids_of(a, true) == ids_of(*b, true);
  } catch (const Error&) {
    return false;
  }
}

std::string unused_name(size_t id) { return fmt::format("[PAD{}]", id); }

// Of any tokenizer: spellings, kinds, and what stands around a text.
GgufVocabulary outline_of(const Tokenizer& tokenizer, int64_t vocab) {
  GgufVocabulary v{.model = std::string(kNoGgufModel)};
  const int64_t size = std::max<int64_t>(vocab, tokenizer.vocab_size());
  for (int32_t id = 0; id < size; ++id) {
    std::string spelling = id < tokenizer.vocab_size() ? tokenizer.spelling(id) : "";
    const bool is_used = !spelling.empty() && valid_utf8_prefix(spelling) == spelling.size();
    const bool is_special = is_used && tokenizer.is_special(id);
    v.tokens.push_back(is_used ? std::move(spelling) : unused_name(size_t(id)));
    v.token_type.push_back(int32_t(!is_used ? Type::unused : is_special ? Type::control : Type::normal));
  }
  v.bos_token_id = tokenizer.begin_of_document(), v.eos_token_id = tokenizer.end_of_document();
  const auto bare = ids_of(tokenizer, false), dressed = ids_of(tokenizer, true);
  if (bare && dressed && !dressed->empty()) {
    v.add_bos_token = v.bos_token_id && dressed->front() == *v.bos_token_id && *dressed != *bare;
    v.add_eos_token = v.eos_token_id && dressed->back() == *v.eos_token_id && *dressed != *bare;
  }
  return v;
}

std::vector<std::string> merges_of(const Json& model) {
  std::vector<std::string> merges;
  for (const Json& merge : model.at("merges"))
    merges.push_back(merge.is_string() ? merge.get<std::string>()
                                       : merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>());
  return merges;
}

void mark_added(GgufVocabulary& v, const Json& file) {
  if (!file.contains("added_tokens")) return;
  for (const Json& token : file["added_tokens"]) {
    const auto id = token.at("id").get<size_t>();
    if (id < v.token_type.size() && !token.value("special", false)) v.token_type[id] = int32_t(Type::user_defined);
  }
}

bool is_byte(const std::string& token) {
  return token.size() == 6 && token.starts_with("<0x") && token.ends_with('>');
}

// SentencePiece's BPE as Hugging Face writes it, with ranks of merges in place of scores.
std::optional<GgufVocabulary> ranked_of(const Tokenizer& tokenizer, GgufVocabulary v, const Json& model) {
  if (!model.value("byte_fallback", false)) return {};
  v.model = "llama", v.pre.clear();
  v.scores.assign(v.tokens.size(), 0);
  std::unordered_map<std::string, size_t> ids;
  for (size_t id = 0; id < v.tokens.size(); ++id) {
    ids.emplace(v.tokens[id], id);
    if (is_byte(v.tokens[id])) v.token_type[id] = int32_t(Type::byte);
  }
  for (size_t rank = v.merges.size(); rank-- > 0;) {
    std::string merged = v.merges[rank];
    if (const size_t space = merged.find(' '); space != std::string::npos) merged.erase(space, 1);
    if (const auto found = ids.find(merged); found != ids.end()) v.scores[found->second] = -float(rank + 1);
  }
  const std::vector<std::string> merges = std::exchange(v.merges, {});
  if (model.contains("unk_token") && model["unk_token"].is_string())
    if (const auto found = ids.find(model["unk_token"].get<std::string>()); found != ids.end()) {
      v.unknown_token_id = int32_t(found->second);
      v.token_type[found->second] = int32_t(Type::unknown);
    }
  for (const bool has_prefix : {true, false}) {
    v.add_space_prefix = has_prefix;
    if (is_same(tokenizer, v)) return v;
  }
  // Scores of tokens say less than ranks of pairs.
  v.model = "gemma4", v.merges = merges, v.add_space_prefix = false;
  if (is_same(tokenizer, v)) return v;
  return {};
}

std::optional<GgufVocabulary> told_of_hf(const Tokenizer& tokenizer, GgufVocabulary v, const std::string& text) {
  const Json file = parse_json(text, "the tokenizer", {.max_bytes = kMostTokenizerFileBytes});
  const Json& model = file.at("model");
  if (!model.contains("merges")) return {};
  v.merges = merges_of(model);
  mark_added(v, file);
  if (auto ranked = ranked_of(tokenizer, v, model)) return ranked;
  v.model = "gpt2";
  for (const std::string_view pre : gguf_pre_tokenizers()) {
    v.pre = pre;
    if (is_same(tokenizer, v)) return v;
  }
  return {};
}

std::optional<GgufVocabulary> told_of_sentencepiece(const Tokenizer& tokenizer, GgufVocabulary v, const Json& json) {
  const auto bytes = bytes_of_base64(json.at("file").get<std::string>());
  if (!bytes) return {};
  const SentencePieceModel model = parse_sentencepiece_model(*bytes, "the tokenizer");
  v.model = model.kind == SentencePieceModel::Kind::bpe ? "llama" : "t5";
  v.scores.assign(v.tokens.size(), 0);
  for (size_t id = 0; id < model.pieces.size() && id < v.tokens.size(); ++id) {
    v.tokens[id] = model.pieces[id].text, v.scores[id] = model.pieces[id].score;
    v.token_type[id] = int32_t(model.pieces[id].type);
  }
  if (model.unknown >= 0) v.unknown_token_id = model.unknown;
  v.add_bos_token = json.at("add_begin").get<bool>(), v.add_eos_token = json.at("add_end").get<bool>();
  v.add_space_prefix = model.normalizing.add_dummy_prefix;
  v.remove_extra_whitespaces = model.normalizing.remove_extra_whitespaces;
  v.precompiled_charsmap = model.character_map;
  if (is_same(tokenizer, v)) return v;
  return {};
}

}  // namespace

GgufVocabulary gguf_vocabulary_of(const Tokenizer& tokenizer, int64_t vocab) {
  GgufVocabulary outline = outline_of(tokenizer, vocab);
  const Json json = parse_json(tokenizer.to_json(), "the tokenizer", {.max_bytes = 2 * kMostTokenizerFileBytes});
  const std::string type = json.value("type", "");
  std::optional<GgufVocabulary> told;
  if (type == "huggingface") told = told_of_hf(tokenizer, outline, json.at("file").get<std::string>());
  if (type == "sentencepiece") told = told_of_sentencepiece(tokenizer, outline, json);
  return told ? std::move(*told) : outline;
}

}  // namespace weft
