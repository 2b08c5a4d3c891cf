// Normalizers of tokenizer.json, and what its parts have in common.
#include <algorithm>

#include "weft/base/error.h"
#include "weft/text/base64.h"
#include "weft/text/readers/hf_parts.h"

namespace weft::hf {

void Part::refuse(std::string_view kind) const {
  throw Error("{}: {} is the {} \"{}\", which weft does not know; use a tokenizer without it, or a newer weft",
              origin, json.path(), kind, type());
}

void Part::only(std::initializer_list<std::string_view> known) const {
  for (const std::string& key : json.keys()) {
    if (key != "type" && std::find(known.begin(), known.end(), key) == known.end())
      throw Error("{}: {} has the key \"{}\", which weft does not know; use a newer weft", origin,
                  json.path().empty() ? "the tokenizer" : json.path(), key);
  }
}

Pattern read_pattern(const Part& part) {
  const Part pattern = part.at("pattern");
  pattern.only({"String", "Regex"});
  const bool is_regex = pattern.json.has("Regex");
  return {pattern.json.at(is_regex ? "Regex" : "String").string(), is_regex};
}

namespace {

std::unique_ptr<Normalizer> read_bert(const Part& part) {
  part.only({"clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
  const bool lowercase = part.json.at("lowercase").boolean();
  return bert_normalizer({.clean_text = part.json.at("clean_text").boolean(),
                          .handle_chinese_chars = part.json.at("handle_chinese_chars").boolean(),
                          .strip_accents = part.json.boolean_or("strip_accents", lowercase),
                          .lowercase = lowercase});
}

std::unique_ptr<Normalizer> read_replace(const Part& part) {
  part.only({"pattern", "content"});
  Pattern pattern = read_pattern(part);
  std::string content = part.json.at("content").string();
  if (pattern.is_regex) return replace_normalizer(Regex(pattern.text, part.origin), std::move(content));
  return replace_normalizer(std::move(pattern.text), std::move(content));
}

std::unique_ptr<Normalizer> read_precompiled(const Part& part) {
  part.only({"precompiled_charsmap"});
  const std::optional<std::string> map = bytes_of_base64(part.json.at("precompiled_charsmap").string());
  if (!map) throw Error("{}: {}.precompiled_charsmap is not base64", part.origin, part.json.path());
  return precompiled_normalizer(*map, part.origin);
}

std::unique_ptr<Normalizer> read_normalizers(const Part& part) {
  part.only({"normalizers"});
  const JsonView list = part.json.at("normalizers");
  std::vector<std::unique_ptr<Normalizer>> parts;
  for (int64_t i = 0; i < list.size(); ++i) parts.push_back(read_normalizer({list.at(i), part.origin}));
  return sequence_normalizer(std::move(parts));
}

}  // namespace

std::unique_ptr<Normalizer> read_normalizer(const Part& part) {
  if (part.json.is_null()) return nullptr;
  const std::string type = part.type();
  if (type == "Sequence") return read_normalizers(part);
  if (type == "Replace") return read_replace(part);
  if (type == "BertNormalizer") return read_bert(part);
  if (type == "Precompiled") return read_precompiled(part);
  if (type == "Prepend") {
    part.only({"prepend"});
    return prepend_normalizer(part.json.at("prepend").string());
  }
  if (type == "Strip") {
    part.only({"strip_left", "strip_right"});
    return strip_normalizer(part.json.at("strip_left").boolean(), part.json.at("strip_right").boolean());
  }
  part.only({});
  if (type == "NFC") return unicode_normalizer(NormalForm::nfc);
  if (type == "NFD") return unicode_normalizer(NormalForm::nfd);
  if (type == "NFKC") return unicode_normalizer(NormalForm::nfkc);
  if (type == "NFKD") return unicode_normalizer(NormalForm::nfkd);
  if (type == "Lowercase") return lowercase_normalizer();
  if (type == "StripAccents") return strip_accents_normalizer();
  part.refuse("normalizer");
}

}  // namespace weft::hf
