// A tokenizer.json for a byte-level BPE vocabulary, as Hugging Face's library reads it.
#include "weft/text/readers/byte_level_json.h"

#include "weft/base/json.h"
#include "weft/text/pipeline/known_patterns.h"
#include "weft/text/readers/added_token_json.h"

namespace weft {
namespace {

using Json = nlohmann::json;

Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

Json pre_tokenizer_of(const std::vector<std::string>& patterns) {
  if (patterns.size() == 1 && patterns[0] == kGpt2Pattern) return byte_level(true);
  Json steps = Json::array();
  for (const std::string& pattern : patterns)
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  steps.push_back(byte_level(false));
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

}  // namespace

Json template_of(const std::vector<AddedToken>& before, const std::vector<AddedToken>& after) {
  if (before.empty() && after.empty()) return nullptr;
  Json special = Json::object();
  const auto around = [&](std::string_view sequence, int type, Json& items) {
    const auto put = [&](const AddedToken& token) {
      items.push_back({{"SpecialToken", {{"id", token.content}, {"type_id", type}}}});
      special[token.content] = {{"id", token.content}, {"ids", {token.id}}, {"tokens", {token.content}}};
    };
    for (const AddedToken& token : before) put(token);
    items.push_back({{"Sequence", {{"id", sequence}, {"type_id", type}}}});
    for (const AddedToken& token : after) put(token);
  };
  Json single = Json::array(), pair = Json::array();
  around("A", 0, single);
  around("A", 0, pair);
  around("B", 1, pair);
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special}};
}

std::string to_tokenizer_json(ByteLevelBpe v) {
  Json added = Json::array();
  for (const AddedToken& token : v.added) added.push_back(to_json(token));
  return to_json_text({{"version", "1.0"},
                       {"truncation", nullptr},
                       {"padding", nullptr},
                       {"added_tokens", std::move(added)},
                       {"normalizer", nullptr},
                       {"pre_tokenizer", pre_tokenizer_of(v.patterns)},
                       {"post_processor", template_of(v.before, v.after)},
                       {"decoder", byte_level(true)},
                       {"model",
                        {{"type", "BPE"},
                         {"dropout", nullptr},
                         {"unk_token", nullptr},
                         {"continuing_subword_prefix", nullptr},
                         {"end_of_word_suffix", nullptr},
                         {"fuse_unk", false},
                         {"byte_fallback", false},
                         {"ignore_merges", v.ignore_merges},
                         {"vocab", std::move(v.vocabulary)},
                         {"merges", std::move(v.merges)}}}},
                      2);
}

}  // namespace weft
