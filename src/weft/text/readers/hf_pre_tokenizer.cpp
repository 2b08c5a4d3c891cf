// Pre-tokenizers of tokenizer.json.
#include "weft/base/error.h"
#include "weft/text/readers/hf_parts.h"
#include "weft/text/utf8.h"

namespace weft::hf {

PrependScheme read_prepend_scheme(const Part& part) {
  const std::string scheme = part.json.string_or("prepend_scheme", "always");
  if (scheme != "always" && scheme != "first" && scheme != "never")
    throw Error("{}: {}.prepend_scheme is \"{}\"; weft knows \"always\", \"first\" and \"never\"", part.origin,
                part.json.path(), scheme);
  if (!part.json.boolean_or("add_prefix_space", true)) return PrependScheme::never;  // how older files say it
  return scheme == "always" ? PrependScheme::always : scheme == "first" ? PrependScheme::first : PrependScheme::never;
}

namespace {

SplitBehavior read_behavior(const Part& part) {
  const std::string name = part.json.at("behavior").string();
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  throw Error("{}: {}.behavior is \"{}\", which weft does not know", part.origin, part.json.path(), name);
}

std::unique_ptr<PreTokenizer> read_split(const Part& part) {
  part.only({"pattern", "behavior", "invert"});
  Pattern pattern = read_pattern(part);
  const bool invert = part.json.boolean_or("invert", false);
  if (pattern.is_regex) return split_pre_tokenizer(Regex(pattern.text, part.origin), read_behavior(part), invert);
  return split_pre_tokenizer(std::move(pattern.text), read_behavior(part), invert);
}

std::unique_ptr<PreTokenizer> read_metaspace(const Part& part) {
  part.only({"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  return metaspace_pre_tokenizer(part.json.at("replacement").string(), read_prepend_scheme(part),
                                 part.json.boolean_or("split", true));
}

std::unique_ptr<PreTokenizer> read_delimiter(const Part& part) {
  part.only({"delimiter"});
  const std::string text = part.json.at("delimiter").string();
  if (text.empty() || first_code_point(text).length != text.size())
    throw Error("{}: {}.delimiter is \"{}\", and one character was expected", part.origin, part.json.path(), text);
  return delimiter_pre_tokenizer(first_code_point(text).value);
}

std::unique_ptr<PreTokenizer> read_pre_tokenizers(const Part& part) {
  part.only({"pretokenizers"});
  const JsonView list = part.json.at("pretokenizers");
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  for (int64_t i = 0; i < list.size(); ++i) parts.push_back(read_pre_tokenizer({list.at(i), part.origin}));
  return sequence_pre_tokenizer(std::move(parts));
}

}  // namespace

std::unique_ptr<PreTokenizer> read_pre_tokenizer(const Part& part) {
  if (part.json.is_null()) return nullptr;
  const std::string type = part.type();
  if (type == "Sequence") return read_pre_tokenizers(part);
  if (type == "Split") return read_split(part);
  if (type == "Metaspace") return read_metaspace(part);
  if (type == "CharDelimiterSplit") return read_delimiter(part);
  if (type == "ByteLevel") {
    part.only({"add_prefix_space", "trim_offsets", "use_regex"});
    return byte_level_pre_tokenizer(part.json.at("add_prefix_space").boolean(),
                                    part.json.boolean_or("use_regex", true));
  }
  if (type == "Digits") {
    part.only({"individual_digits"});
    return digits_pre_tokenizer(part.json.at("individual_digits").boolean());
  }
  if (type == "Punctuation") {
    part.only({"behavior"});
    return punctuation_pre_tokenizer(part.json.has("behavior") ? read_behavior(part) : SplitBehavior::isolated);
  }
  part.only({});
  if (type == "Whitespace") return whitespace_pre_tokenizer();
  if (type == "WhitespaceSplit") return whitespace_split_pre_tokenizer();
  if (type == "BertPreTokenizer") return bert_pre_tokenizer();
  part.refuse("pre-tokenizer");
}

}  // namespace weft::hf
