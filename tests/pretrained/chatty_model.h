// make_chatty: a golden model that talks: a tokenizer of eight tokens, a chat template, and what its makers say of
// special tokens and of sampling.
#pragma once
#include "pretrained/golden_models.h"
#include "weft/text/readers/gguf_vocabulary.h"
#include "weft/text/readers/hf_tokenizer.h"

namespace weft {

// Its template writes what messages say, one after the other, so "ab" and "12" are texts that it can be asked.
inline void make_chatty(const std::string& folder) {
  const auto tokenizer = make_gguf_tokenizer({.model = "gpt2",
                                              .pre = "qwen2",
                                              .tokens = {"a", "b", "ab", "1", "2", "12", "<|end|>", "<tool>"},
                                              .token_type = {1, 1, 1, 1, 1, 1, 3, 4},
                                              .merges = {"a b", "1 2"},
                                              .eos_token_id = 6},
                                             "chatty");
  std::ofstream(folder + "/tokenizer.json") << *hf_tokenizer_file(*tokenizer);
  std::ofstream(folder + "/tokenizer_config.json") << R"({"eos_token": "<|end|>", "bos_token": "a"})";
  std::ofstream(folder + "/chat_template.jinja")
      << "{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}";
  std::ofstream(folder + "/generation_config.json")
      << R"({"bos_token_id": 0, "eos_token_id": [6, 7], "pad_token_id": 5, "temperature": 0.6, "top_p": 0.9})";
}

}  // namespace weft
