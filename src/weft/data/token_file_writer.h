// TokenFileWriter: writes a token file as its tokens come, in little memory; the file appears only when it is whole.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/data/token_file.h"
#include "weft/text/tokenizer.h"

namespace weft {

class TokenFileWriter {
 public:
  // Writes beside `path` under a temporary name, which the destructor removes unless finish() was called.
  // with_examples: documents are examples, of which some tokens are to be learned.
  TokenFileWriter(FileSystem& fs, std::string path, const Tokenizer& tokenizer, bool with_examples = false);
  ~TokenFileWriter();
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;

  // The next tokens begin a document; one of text gets its end-of-document token before that. A document without
  // tokens leaves no trace.
  void begin_document();
  void append(std::span<const int32_t> ids, bool is_learned = true);

  // Makes the file durable and gives it its name. source_bytes and skipped_files are kept for people to read.
  void finish(int64_t source_bytes, int64_t skipped_files);

  int64_t num_tokens() const { return int64_t(footer_.num_tokens); }

 private:
  void put(std::span<const int32_t> ids, bool is_learned);
  void flush_chunk();

  FileSystem& fs_;
  std::string path_, temporary_, tokenizer_json_;
  TokenFileFooter footer_;
  std::vector<std::byte> chunk_;  // room for kTokenChunk tokens
  size_t chunk_tokens_ = 0;       // of them used
  std::vector<uint64_t> documents_, checksums_;
  bool starts_document_ = true;
  std::unique_ptr<OutputFile> file_;
};

}  // namespace weft
