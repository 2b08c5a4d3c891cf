// Tokenizer: text to token ids and back; what a checkpoint carries so that its model can be used.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/error.h"

namespace weft {

// A text that a tokenizer cannot encode. `what()` names the character and its position in that text.
class EncodeError : public Error {
 public:
  EncodeError(std::string reason, size_t offset, std::string remedy)
      : Error("{} at byte {} of the text; {}", reason, offset, remedy),
        reason_(std::move(reason)),
        remedy_(std::move(remedy)),
        offset_(offset) {}
  const std::string& reason() const { return reason_; }
  const std::string& remedy() const { return remedy_; }
  size_t offset() const { return offset_; }  // bytes from the start of the text that was encoded

 private:
  std::string reason_, remedy_;
  size_t offset_;
};

// Immutable and safe to share among threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::string_view name() const = 0;
  virtual int32_t vocab_size() const = 0;
  // The token between two documents, which no text encodes to.
  virtual std::optional<int32_t> end_of_document() const = 0;

  // Appends the ids of `text`; throws EncodeError and leaves `ids` as it was.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  // Appends the bytes of one token (a piece of a code point, perhaps): nothing for the end of a document.
  virtual void append_text(int32_t id, std::string& text) const = 0;

  // How many leading bytes of `text` encode the same whatever follows: where a long text may be cut.
  virtual size_t cut(std::string_view text) const = 0;

  // All that `parse_tokenizer` needs to build this tokenizer again; equal tokenizers give equal texts.
  virtual std::string to_json() const = 0;

  std::vector<int32_t> encode(std::string_view text) const;
  std::string decode(std::span<const int32_t> ids) const;  // the bytes as they are, even if not UTF-8
  uint64_t fingerprint() const;                            // XXH3 of to_json()
};

// From to_json()'s text; `origin` is the file or checkpoint that errors name.
std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view json, std::string_view origin);

// Decodes a token at a time into valid UTF-8: a code point split among tokens is held back until it is complete, and
// bytes that are not UTF-8 become U+FFFD. The tokenizer must outlive it.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  std::string push(int32_t id);  // what became complete, often one character
  std::string finish();          // what was held back, as U+FFFD

 private:
  const Tokenizer* tokenizer_;
  std::string held_;
};

}  // namespace weft
