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

// Without any of these a text is data: every character of it is text, and nothing is put around it.
struct EncodeOptions {
  bool add_special = false;    // also the tokens that the model expects around a text: its beginning, its end, ...
  bool parse_special = false;  // control tokens written in the text, such as <|im_end|>, become those tokens
  bool continues = false;      // the text goes on where cut() divided a longer one
};

// What is put around two texts that a model reads as one.
struct PairSurroundings {
  std::vector<int32_t> before, between, after;
  bool tells_apart = false;  // the model reads the second text, and what is behind it, as of another kind
};

// Undoes a tokenizer, one token after the other; belongs to one thread, and the tokenizer must outlive it.
class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  // Appends the bytes that are certain now: a piece of a code point, perhaps, or nothing yet. An id without a token
  // gives nothing: models have more rows than their tokenizer has tokens, to fill up a multiple of 64.
  virtual void push(int32_t id, std::string& text) = 0;
  virtual void finish(std::string& text) = 0;  // appends what waited for more
};

// Immutable and safe to share among threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::string_view name() const = 0;  // its kind: "bpe", "char", ...
  virtual int32_t vocab_size() const = 0;     // the largest id + 1
  // The tokens that stand before and behind a document. Plain text encodes to neither.
  virtual std::optional<int32_t> begin_of_document() const { return std::nullopt; }
  virtual std::optional<int32_t> end_of_document() const = 0;
  // What add_special puts before any text; not begin_of_document() where a tokenizer only has one.
  virtual std::span<const int32_t> before_text() const { return {}; }
  virtual std::span<const int32_t> after_text() const { return {}; }  // the same behind it
  virtual std::optional<PairSurroundings> around_pair() const { return std::nullopt; }

  // Appends the ids of `text`; throws EncodeError and leaves `ids` as it was.
  virtual void encode(std::string_view text, const EncodeOptions& options, std::vector<int32_t>& ids) const = 0;
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // keep_special: control tokens appear as they are spelled; otherwise they give nothing.
  virtual std::unique_ptr<TokenDecoder> start_decoding(bool keep_special = false) const = 0;
  std::string decode(std::span<const int32_t> ids, bool keep_special = false) const;  // bytes, even if not UTF-8

  // A token as the vocabulary spells it, and back; empty for an id without a token.
  virtual std::string spelling(int32_t id) const = 0;
  virtual std::optional<int32_t> find(std::string_view spelling) const = 0;
  virtual bool is_special(int32_t id) const = 0;  // a control token

  // How many leading bytes of `text` may be encoded now and the rest, with `continues`, later, whatever follows; the
  // ids are those of the whole. 0: nothing yet.
  virtual size_t cut(std::string_view text) const = 0;

  // All that `parse_tokenizer` needs to build this tokenizer again; equal tokenizers give equal texts.
  virtual std::string to_json() const = 0;
  uint64_t fingerprint() const;  // XXH3 of to_json()
};

// From to_json()'s text, or that of a Hugging Face tokenizer.json; `origin` is the file or checkpoint that errors
// name.
std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view json, std::string_view origin);

// Decodes a token at a time into valid UTF-8: a code point split among tokens is held back until it is complete, and
// bytes that are not UTF-8 become U+FFFD. The tokenizer must outlive it.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool keep_special = false)
      : decoder_(tokenizer.start_decoding(keep_special)) {}
  std::string push(int32_t id);  // what became complete, often one character
  std::string finish();          // what was held back

 private:
  std::string take_complete();

  std::unique_ptr<TokenDecoder> decoder_;
  std::string held_;
};

}  // namespace weft
