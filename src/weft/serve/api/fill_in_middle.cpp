// FillInMiddle: a table of families, by the tokens that they have.
#include "weft/serve/api/fill_in_middle.h"

#include <array>

namespace weft::api {
namespace {

struct Family {
  std::string_view prefix, suffix, middle;
  std::array<std::string_view, 3> ends = {};
  bool is_suffix_first = false;
};

constexpr Family kFamilies[] = {
    // Qwen2.5-Coder, Qwen3-Coder, CodeGemma, Granite 4
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", {"<|fim_pad|>", "<|file_sep|>", "<|file_separator|>"}},
    // StarCoder, Granite, Seed-Coder
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", {"<fim_pad>", "<file_sep>"}},
    // SantaCoder
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>", {"<fim-pad>"}},
    // DeepSeek-Coder, DeepSeek V2 and V3
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},
    // Code Llama
    {"▁<PRE>", "▁<SUF>", "▁<MID>", {"▁<EOT>"}},
    // Codestral
    {"[PREFIX]", "[SUFFIX]", "", {}, true},
};

}  // namespace

std::vector<int32_t> FillInMiddle::prompt(const Tokenizer& tokenizer, std::vector<int32_t> before,
                                          std::string_view suffix_text) const {
  const std::vector<int32_t> behind = tokenizer.encode(suffix_text, {.continues = true});
  std::vector<int32_t> tokens;
  if (const auto begin = tokenizer.begin_of_document(); begin && !before.empty() && before.front() == *begin) {
    tokens.push_back(*begin);
    before.erase(before.begin());
  }
  const auto add = [&tokens](int32_t mark, const std::vector<int32_t>& text) {
    tokens.push_back(mark);
    tokens.insert(tokens.end(), text.begin(), text.end());
  };
  if (is_suffix_first) add(suffix, behind);
  add(prefix, before);
  if (!is_suffix_first) add(suffix, behind);
  if (middle) tokens.push_back(*middle);
  return tokens;
}

std::optional<FillInMiddle> detect_fill_in_middle(const Tokenizer& tokenizer) {
  for (const Family& family : kFamilies) {
    const auto prefix = tokenizer.find(family.prefix), suffix = tokenizer.find(family.suffix),
               middle = family.middle.empty() ? std::nullopt : tokenizer.find(family.middle);
    if (!prefix || !suffix || middle.has_value() == family.middle.empty()) continue;
    FillInMiddle found{.prefix = *prefix,
                       .suffix = *suffix,
                       .middle = middle,
                       .is_suffix_first = family.is_suffix_first,
                       .ends = {*prefix, *suffix}};
    if (middle) found.ends.push_back(*middle);
    for (const std::string_view end : family.ends)
      if (const auto token = end.empty() ? std::nullopt : tokenizer.find(end)) found.ends.push_back(*token);
    return found;
  }
  return {};
}

}  // namespace weft::api
