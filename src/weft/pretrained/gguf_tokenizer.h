// The tokenizer of a GGUF file, from its metadata and back.
#pragma once
#include "weft/formats/gguf.h"
#include "weft/formats/gguf_writer.h"
#include "weft/pretrained/special_ids.h"
#include "weft/text/chat_template.h"
#include "weft/text/readers/gguf_vocabulary.h"

namespace weft {

inline constexpr std::string_view kGgufChatTemplateKey = "tokenizer.chat_template";
inline constexpr std::string_view kGgufPaddingKey = "tokenizer.ggml.padding_token_id";

// Throws Error naming the file and the key that is missing or of another type.
GgufVocabulary read_gguf_vocabulary(const GgufFile& file);

// From the whole tokenizer.json that the file has, or from its vocabulary. Throws UsageError where it holds none.
std::unique_ptr<Tokenizer> read_gguf_tokenizer(const GgufFile& file);
std::unique_ptr<Tokenizer> open_gguf_tokenizer(const std::string& path, FileSystem& fs = FileSystem::real());

// Ends of answers are, beside the tokenizer's end, the tokens that the file names as ends of turns and of messages,
// and control tokens that are written like such ends, as llama.cpp takes them.
SpecialIds read_gguf_special_ids(const GgufFile& file);
std::optional<ChatTemplate::Text> read_gguf_chat_template(const GgufFile& file);

// The vocabulary of a tokenizer, where llama.cpp's words can say it, and the whole tokenizer as weft and others read
// it. vocab: of the model, which may have more tokens. ends: of answers, of which two beside the tokenizer's own can
// be told. Notes say what could not be said.
void add_tokenizer(GgufMetadata& metadata, const Tokenizer& tokenizer, int64_t vocab, std::span<const int32_t> ends,
                   std::vector<std::string>& notes);
// That the file has none: llama.cpp then takes ids.
void add_no_tokenizer(GgufMetadata& metadata);

}  // namespace weft
