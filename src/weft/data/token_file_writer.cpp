// TokenFileWriter: chunks go out as they fill, the lists and the footer at the end.
#include "weft/data/token_file_writer.h"

#include <xxhash.h>

#include <cstring>
#include <random>

namespace weft {
namespace {

template <class T>
Bytes raw_bytes(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

uint64_t checksum_of_tail(const std::vector<uint64_t>& documents, const std::vector<uint64_t>& checksums,
                          std::string_view tokenizer_json) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  for (const Bytes part : {raw_bytes(documents), raw_bytes(checksums), bytes_of(tokenizer_json)})
    XXH3_64bits_update(state.get(), part.data(), part.size());
  return XXH3_64bits_digest(state.get());
}

}  // namespace

TokenFileWriter::TokenFileWriter(FileSystem& fs, std::string path, const Tokenizer& tokenizer)
    : fs_(fs), path_(std::move(path)), tokenizer_json_(tokenizer.to_json()) {
  std::random_device random;
  temporary_ = fmt::format("{}.{:08x}{:08x}.tmp", path_, random(), random());
  footer_.vocab_size = uint32_t(tokenizer.vocab_size());
  footer_.token_bytes = tokenizer.vocab_size() <= 65536 ? 2 : 4;
  footer_.end_of_document = tokenizer.end_of_document().value_or(-1);
  footer_.tokenizer_fingerprint = tokenizer.fingerprint();
  footer_.tokenizer_bytes = tokenizer_json_.size();
  chunk_.reserve(size_t(kTokenChunk) * footer_.token_bytes);
  file_ = std::make_unique<OutputFile>(fs_, temporary_);
  try {
    file_->write(bytes_of(std::string_view(footer_.magic, sizeof footer_.magic)));
  } catch (...) {
    fs_.unlink(temporary_);  // the destructor will not run
    throw;
  }
}

TokenFileWriter::~TokenFileWriter() {
  file_.reset();
  if (!temporary_.empty()) fs_.unlink(temporary_);
}

void TokenFileWriter::begin_document() { starts_document_ = true; }

void TokenFileWriter::append(std::span<const int32_t> ids) {
  if (ids.empty()) return;
  if (starts_document_) {
    if (!documents_.empty() && footer_.end_of_document >= 0) put(footer_.end_of_document);
    documents_.push_back(footer_.num_tokens);
    starts_document_ = false;
  }
  for (const int32_t id : ids) put(id);
}

void TokenFileWriter::put(int32_t id) {
  check(uint32_t(id) < footer_.vocab_size, "token file: id {} is outside the vocabulary of {}", id,
        footer_.vocab_size);
  const size_t at = chunk_.size();
  chunk_.resize(at + footer_.token_bytes);
  std::memcpy(chunk_.data() + at, &id, footer_.token_bytes);  // little-endian: the low bytes come first
  ++footer_.num_tokens;
  if (chunk_.size() == size_t(kTokenChunk) * footer_.token_bytes) flush_chunk();
}

void TokenFileWriter::flush_chunk() {
  if (chunk_.empty()) return;
  checksums_.push_back(XXH3_64bits(chunk_.data(), chunk_.size()));
  file_->write(chunk_);
  chunk_.clear();
}

void TokenFileWriter::finish(int64_t source_bytes, int64_t skipped_files) {
  flush_chunk();
  const std::vector<std::byte> padding((8 - footer_.num_tokens * footer_.token_bytes % 8) % 8);
  footer_.num_documents = documents_.size();
  footer_.source_bytes = uint64_t(source_bytes);
  footer_.skipped_files = uint64_t(skipped_files);
  footer_.tail_checksum = checksum_of_tail(documents_, checksums_, tokenizer_json_);
  footer_.footer_checksum = XXH3_64bits(&footer_, offsetof(TokenFileFooter, footer_checksum));
  for (const Bytes part : {Bytes(padding), raw_bytes(documents_), raw_bytes(checksums_), bytes_of(tokenizer_json_),
                           std::as_bytes(std::span(&footer_, 1))})
    file_->write(part);
  file_->sync();
  file_->close();
  rename_path(fs_, temporary_, path_);
  temporary_.clear();
  sync_folder(fs_, parent_of(path_));
}

}  // namespace weft
