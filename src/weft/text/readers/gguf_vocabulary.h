// GgufVocabulary: what a GGUF file says of its tokenizer, as plain data, and the tokenizer that it means.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/text/tokenizer.h"

namespace weft {

// Members are named like the keys below "tokenizer.ggml.", whose values they are.
struct GgufVocabulary {
  std::string model;  // "llama", "gpt2", "bert", "t5" or "gemma4"
  std::string pre;    // how text is cut, by name; only of "gpt2"
  std::vector<std::string> tokens;
  std::vector<float> scores;        // as many as tokens, or none
  std::vector<int32_t> token_type;  // as many as tokens, or none: 1 normal, 2 unknown, 3 control, 4 user-defined, 5
                                    // unused, 6 a byte
  std::vector<std::string> merges;  // "a b"
  std::optional<int32_t> bos_token_id, eos_token_id, unknown_token_id, seperator_token_id, cls_token_id;
  std::optional<bool> add_bos_token, add_eos_token, add_space_prefix, remove_extra_whitespaces;
  std::string precompiled_charsmap;
};

// Throws Error that names `origin` for a kind or a `pre` that is not known, and for data that contradict themselves.
std::unique_ptr<Tokenizer> make_gguf_tokenizer(const GgufVocabulary& vocabulary, std::string_view origin);

// The patterns by which text is cut in turn, and what else the name stands for; nothing for an unknown name.
struct GgufPreTokenizer {
  std::vector<std::string_view> patterns;
  bool ignore_merges = false;
  bool add_bos = false;  // unless the file says otherwise
};
std::optional<GgufPreTokenizer> gguf_pre_tokenizer(std::string_view pre);
std::vector<std::string_view> gguf_pre_tokenizers();  // a name of each

}  // namespace weft
