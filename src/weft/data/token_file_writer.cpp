// TokenFileWriter: chunks go out as they fill, the lists and the footer at the end.
#include "weft/data/token_file_writer.h"

#include <xxhash.h>

#include <algorithm>
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

// Returns the largest id, a negative one counting as very large.
template <class T>
uint32_t store_tokens(std::span<const int32_t> ids, std::byte* to) {
  uint32_t largest = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    store_le(to + i * sizeof(T), T(ids[i]));
    largest = std::max(largest, uint32_t(ids[i]));
  }
  return largest;
}

}  // namespace

TokenFileWriter::TokenFileWriter(FileSystem& fs, std::string path, const Tokenizer& tokenizer, bool with_examples)
    : fs_(fs), path_(std::move(path)), tokenizer_json_(tokenizer.to_json()) {
  std::random_device random;
  temporary_ = fmt::format("{}.{:08x}{:08x}.tmp", path_, random(), random());
  footer_.vocab_size = uint32_t(tokenizer.vocab_size());
  footer_.version = with_examples ? kExamplesVersion : 1;
  footer_.token_bytes = tokenizer.vocab_size() <= 65536 && !with_examples ? 2 : 4;
  footer_.end_of_document = tokenizer.end_of_document().value_or(-1);
  footer_.tokenizer_fingerprint = tokenizer.fingerprint();
  footer_.tokenizer_bytes = tokenizer_json_.size();
  chunk_.resize(size_t(kTokenChunk) * footer_.token_bytes);
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

void TokenFileWriter::append(std::span<const int32_t> ids, bool is_learned) {
  if (ids.empty()) return;
  if (starts_document_) {
    const bool ends_texts = footer_.version != kExamplesVersion && footer_.end_of_document >= 0;
    if (!documents_.empty() && ends_texts) put({&footer_.end_of_document, 1}, true);
    documents_.push_back(footer_.num_tokens);
    starts_document_ = false;
  }
  put(ids, is_learned);
}

void TokenFileWriter::put(std::span<const int32_t> ids, bool is_learned) {
  check(is_learned || footer_.version == kExamplesVersion, "token file: every token of a text is learned");
  while (!ids.empty()) {
    const std::span<const int32_t> some = ids.first(std::min(ids.size(), size_t(kTokenChunk) - chunk_tokens_));
    std::byte* to = chunk_.data() + chunk_tokens_ * footer_.token_bytes;
    const uint32_t largest =
        footer_.token_bytes == 2 ? store_tokens<uint16_t>(some, to) : store_tokens<uint32_t>(some, to);
    check(largest < footer_.vocab_size, "token file: id {} is outside the vocabulary of {}", int32_t(largest),
          footer_.vocab_size);
    if (!is_learned)
      for (size_t i = 0; i < some.size(); ++i) store_le(to + i * sizeof(uint32_t), uint32_t(some[i]) | kNotLearned);
    chunk_tokens_ += some.size();
    footer_.num_tokens += some.size();
    if (chunk_tokens_ == size_t(kTokenChunk)) flush_chunk();
    ids = ids.subspan(some.size());
  }
}

void TokenFileWriter::flush_chunk() {
  if (chunk_tokens_ == 0) return;
  const Bytes bytes = Bytes(chunk_).first(chunk_tokens_ * footer_.token_bytes);
  checksums_.push_back(XXH3_64bits(bytes.data(), bytes.size()));
  file_->write(bytes);
  chunk_tokens_ = 0;
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
