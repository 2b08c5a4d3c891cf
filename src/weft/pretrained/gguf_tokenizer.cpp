// GGUF metadata to GgufVocabulary: keys to members.
#include "weft/pretrained/gguf_tokenizer.h"

#include "weft/text/limits.h"

namespace weft {
namespace {

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

std::unique_ptr<Tokenizer> open_gguf_tokenizer(const std::string& path, FileSystem& fs) {
  return make_gguf_tokenizer(read_gguf_vocabulary(GgufFile(path, fs)), path);
}

}  // namespace weft
