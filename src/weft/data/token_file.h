// Token files (.tok): a text as numbers in one memory-mapped file, with its documents and its tokenizer.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "weft/base/file.h"

namespace weft {

// A token file, all little-endian and without gaps: 8 bytes of magic; payload [num_tokens] u16 or u32, padded to a
// multiple of 8 bytes; document starts [num_documents] u64; chunk checksums u64 (XXH3 of each kTokenChunk tokens of
// payload); the tokenizer as JSON; this footer. Sizes are known only at the end, so that is where they stand.
// In version 2 every token has 4 bytes, and its highest bit says that it is not to be learned: a question, say. Such
// files hold examples of their own, documents that go into rows whole.
struct TokenFileFooter {
  uint64_t num_tokens = 0;
  uint64_t num_documents = 0;
  uint32_t token_bytes = 2;  // 2 when the vocabulary fits, else 4
  uint32_t vocab_size = 0;
  int32_t end_of_document = -1;  // -1: none
  uint32_t version = 1;
  uint64_t tokenizer_fingerprint = 0;
  uint64_t tokenizer_bytes = 0;
  uint64_t source_bytes = 0;     // of the text it was built from
  uint64_t skipped_files = 0;    // files of that text left out because they are binary
  uint64_t tail_checksum = 0;    // XXH3 of document starts, chunk checksums and tokenizer
  uint64_t footer_checksum = 0;  // XXH3 of all footer bytes before it
  char magic[8] = {'w', 'e', 'f', 't', '.', 't', 'o', 'k'};
};
static_assert(sizeof(TokenFileFooter) == 88);

inline constexpr int64_t kTokenChunk = 32768;
inline constexpr uint32_t kExamplesVersion = 2;
inline constexpr uint32_t kNotLearned = uint32_t(1) << 31;  // in a token of version 2

// Open for reading. Everything but the payload is checked at once; each chunk of the payload when it is first read,
// so that opening takes no longer for a large file. Errors name the file and what to do. Thread-safe.
class TokenFile {
 public:
  explicit TokenFile(const std::string& path, FileSystem& fs = FileSystem::real());

  const std::string& path() const { return file_.path(); }
  int64_t num_tokens() const { return int64_t(footer_.num_tokens); }
  int32_t vocab_size() const { return int32_t(footer_.vocab_size); }
  std::optional<int32_t> end_of_document() const;
  bool has_examples() const { return footer_.version == kExamplesVersion; }
  int64_t source_bytes() const { return int64_t(footer_.source_bytes); }
  int64_t skipped_files() const { return int64_t(footer_.skipped_files); }
  uint64_t tokenizer_fingerprint() const { return footer_.tokenizer_fingerprint; }
  uint64_t content_fingerprint() const { return footer_.tail_checksum; }  // of tokens, documents and tokenizer
  std::string_view tokenizer_json() const { return tokenizer_json_; }
  std::span<const uint64_t> document_starts() const { return documents_; }  // ascending, the first is 0

  // Tokens [first, first + out.size()).
  void read(int64_t first, std::span<int32_t> out) const;
  // The same of a file with examples, and which of them are to be learned.
  void read(int64_t first, std::span<int32_t> out, std::span<uint8_t> is_learned) const;

  // Checks the whole payload.
  void verify() const;

 private:
  void check_footer();
  void check_tail();
  void verify_chunk(int64_t chunk) const;
  void verify_range(int64_t first, int64_t count) const;
  void check_largest(uint32_t largest) const;
  [[noreturn]] void fail(std::string_view what) const;

  MappedFile file_;
  TokenFileFooter footer_;
  Bytes payload_;
  std::span<const uint64_t> documents_, checksums_;
  std::string_view tokenizer_json_;
  std::unique_ptr<std::atomic<uint8_t>[]> is_verified_;  // a flag a chunk
};

// Tokens [begin, end) of a file.
struct TokenPart {
  std::shared_ptr<const TokenFile> file;
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

}  // namespace weft
