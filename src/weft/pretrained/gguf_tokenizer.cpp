// GGUF metadata and GgufVocabulary: keys and members.
#include "weft/pretrained/gguf_tokenizer.h"

#include <algorithm>

#include "weft/text/limits.h"
#include "weft/text/readers/hf_tokenizer.h"
#include "weft/text/readers/to_gguf_vocabulary.h"

namespace weft {
namespace {

constexpr std::string_view kHuggingFaceKey = "tokenizer.huggingface.json", kWeftKey = "tokenizer.weft.json";

// Of turns, of messages, and of texts.
constexpr const char* kEndKeys[] = {"eot_token_id", "eom_token_id"};
constexpr std::string_view kEnds[] = {"<|eot_id|>",         "<|im_end|>",      "<|end|>",   "<end_of_turn>",
                                      "<|endoftext|>",      "<|eom_id|>",      "<EOT>",     "<|end_of_text|>",
                                      "<|return|>",         "<|call|>",        "<|flush|>", "<|calls|>",
                                      "<end_of_utterance>", "<|end_of_turn|>", "<turn|>",   "<|tool_response>"};
// In harmony the end of a message is no end of an answer, which ends with one of these.
constexpr std::string_view kHarmonyEnd = "<|end|>", kHarmonyEnds[] = {"<|return|>", "<|call|>"};

std::string key_of(std::string_view name) { return fmt::format("tokenizer.ggml.{}", name); }

std::optional<int32_t> id_at(const GgufFile& file, std::string_view name) {
  if (!file.has(key_of(name))) return std::nullopt;
  return int32_t(file.at(key_of(name)).integer(0, UINT32_MAX) & INT32_MAX);
}

std::optional<bool> flag_at(const GgufFile& file, std::string_view name) {
  if (!file.has(key_of(name))) return std::nullopt;
  return file.at(key_of(name)).boolean();
}

std::vector<std::string> strings_at(const GgufFile& file, std::string_view name, size_t most) {
  if (!file.has(key_of(name))) return {};
  const GgufValue value = file.at(key_of(name));
  if (value.size() > most)
    throw Error("{}: {} has {} entries, more than the {} allowed", file.path(), key_of(name), value.size(), most);
  const std::vector<std::string_view> views = value.strings();
  return {views.begin(), views.end()};
}

}  // namespace

GgufVocabulary read_gguf_vocabulary(const GgufFile& file) {
  GgufVocabulary v{.model = std::string(file.at(key_of("model")).string()),
                   .pre = file.string_or(key_of("pre"), ""),
                   .tokens = strings_at(file, "tokens", size_t(kMostTokens)),
                   .merges = strings_at(file, "merges", kMostMerges),
                   .bos_token_id = id_at(file, "bos_token_id"),
                   .eos_token_id = id_at(file, "eos_token_id"),
                   .unknown_token_id = id_at(file, "unknown_token_id"),
                   .seperator_token_id = id_at(file, "seperator_token_id"),
                   .cls_token_id = id_at(file, "cls_token_id"),
                   .add_bos_token = flag_at(file, "add_bos_token"),
                   .add_eos_token = flag_at(file, "add_eos_token"),
                   .add_space_prefix = flag_at(file, "add_space_prefix"),
                   .remove_extra_whitespaces = flag_at(file, "remove_extra_whitespaces")};
  if (file.has(key_of("scores"))) {
    for (const double score : file.at(key_of("scores")).numbers()) v.scores.push_back(float(score));
  }
  if (file.has(key_of("token_type"))) {
    for (const int64_t type : file.at(key_of("token_type")).integers())
      v.token_type.push_back(int32_t(std::clamp<int64_t>(type, INT32_MIN, INT32_MAX)));
  }
  if (file.has(key_of("precompiled_charsmap"))) {
    for (const int64_t byte : file.at(key_of("precompiled_charsmap")).integers())
      v.precompiled_charsmap.push_back(char(uint8_t(byte)));
  }
  return v;
}

SpecialIds read_gguf_special_ids(const GgufFile& file) {
  const std::vector<std::string> tokens = strings_at(file, "tokens", size_t(kMostTokens));
  std::vector<int64_t> types;
  if (file.has(key_of("token_type"))) types = file.at(key_of("token_type")).integers();
  constexpr int64_t kControl = 3;
  std::vector<int32_t> ends;
  const auto add = [&](int32_t id) {
    if (size_t(id) < tokens.size() && std::ranges::find(ends, id) == ends.end()) ends.push_back(id);
  };
  for (const char* key : {"eos_token_id", kEndKeys[0], kEndKeys[1]})
    if (const std::optional<int32_t> id = id_at(file, key)) add(*id);
  for (size_t id = 0; id < std::min(tokens.size(), types.size()); ++id)
    if (types[id] == kControl && std::ranges::find(kEnds, tokens[id]) != std::end(kEnds)) add(int32_t(id));
  const auto has = [&](std::string_view text) {
    return std::ranges::any_of(ends, [&](int32_t id) { return tokens[size_t(id)] == text; });
  };
  if (std::ranges::all_of(kHarmonyEnds, has))
    std::erase_if(ends, [&](int32_t id) { return tokens[size_t(id)] == kHarmonyEnd; });
  const auto token_at = [&](std::string_view name) {
    const std::optional<int32_t> id = id_at(file, name);
    return id && size_t(*id) < tokens.size() ? id : std::nullopt;
  };
  return {.begin = token_at("bos_token_id"), .pad = token_at("padding_token_id"), .ends = std::move(ends)};
}

std::optional<ChatTemplate::Text> read_gguf_chat_template(const GgufFile& file) {
  const std::string text = file.string_or(kGgufChatTemplateKey, "");
  if (text.empty()) return {};
  if (text.size() > ChatTemplate::kMostBytes)
    throw Error("{}: {} has {} bytes; at most {} are read", file.path(), kGgufChatTemplateKey, text.size(),
                ChatTemplate::kMostBytes);
  return ChatTemplate::Text{.text = text, .source = fmt::format("{}, {}", file.path(), kGgufChatTemplateKey)};
}

std::unique_ptr<Tokenizer> read_gguf_tokenizer(const GgufFile& file) {
  if (file.has(kWeftKey)) return parse_tokenizer(file.at(kWeftKey).string(), file.path());
  if (!file.has(kHuggingFaceKey)) {
    if (file.string_or(key_of("model"), kNoGgufModel) == kNoGgufModel)
      throw UsageError(
          "{} holds no tokenizer: give tokens in place of text, as weft generate and weft logits take "
          "them with --ids",
          file.path());
    return make_gguf_tokenizer(read_gguf_vocabulary(file), file.path());
  }
  const std::vector<std::string> tokens = strings_at(file, "tokens", size_t(kMostTokens));
  const auto spelling = [&](const char* name) {
    const std::optional<int32_t> id = id_at(file, name);
    return id && size_t(*id) < tokens.size() ? tokens[size_t(*id)] : std::string();
  };
  return read_hf_tokenizer(file.at(kHuggingFaceKey).string(), file.path(),
                           {spelling("bos_token_id"), spelling("eos_token_id")});
}

std::unique_ptr<Tokenizer> open_gguf_tokenizer(const std::string& path, FileSystem& fs) {
  return read_gguf_tokenizer(GgufFile(path, fs));
}

void add_tokenizer(GgufMetadata& metadata, const Tokenizer& tokenizer, int64_t vocab, std::span<const int32_t> ends,
                   std::vector<std::string>& notes) {
  const GgufVocabulary v = gguf_vocabulary_of(tokenizer, vocab);
  if (v.model == kNoGgufModel)
    notes.emplace_back("llama.cpp has no words for this tokenizer: its programs can use the model by ids only");
  metadata.set_string(key_of("model"), v.model);
  if (!v.pre.empty()) metadata.set_string(key_of("pre"), v.pre);
  metadata.set_strings(key_of("tokens"), v.tokens);
  if (!v.scores.empty()) metadata.set_array<float>(key_of("scores"), v.scores);
  metadata.set_array<int32_t>(key_of("token_type"), v.token_type);
  // llama.cpp asks for the list, if only to find nothing in it.
  if (!v.merges.empty() || v.model == "gpt2") metadata.set_strings(key_of("merges"), v.merges);
  const auto set_id = [&](const char* name, std::optional<int32_t> id) {
    if (id) metadata.set<uint32_t>(key_of(name), uint32_t(*id));
  };
  const auto set_flag = [&](const char* name, std::optional<bool> flag) {
    if (flag) metadata.set<bool>(key_of(name), *flag);
  };
  set_id("bos_token_id", v.bos_token_id), set_id("eos_token_id", v.eos_token_id);
  set_id("unknown_token_id", v.unknown_token_id);
  size_t num_told = 0;
  for (const int32_t end : ends)
    if (end != v.eos_token_id && num_told < std::size(kEndKeys)) set_id(kEndKeys[num_told++], end);
  set_flag("add_bos_token", v.add_bos_token), set_flag("add_eos_token", v.add_eos_token);
  set_flag("add_space_prefix", v.add_space_prefix);
  set_flag("remove_extra_whitespaces", v.remove_extra_whitespaces);
  if (!v.precompiled_charsmap.empty()) {
    const std::string& map = v.precompiled_charsmap;
    const std::vector<uint8_t> bytes(map.begin(), map.end());
    metadata.set_array<uint8_t>(key_of("precompiled_charsmap"), bytes);
  }
  if (const auto file = hf_tokenizer_file(tokenizer))
    metadata.set_string(kHuggingFaceKey, *file);
  else
    metadata.set_string(kWeftKey, tokenizer.to_json());
}

void add_no_tokenizer(GgufMetadata& metadata) { metadata.set_string(key_of("model"), kNoGgufModel); }

}  // namespace weft
