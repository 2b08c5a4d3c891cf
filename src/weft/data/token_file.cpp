// TokenFile: reading, and distrust of every number in the file.
#include "weft/data/token_file.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "weft/base/error.h"

namespace weft {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are read in place");

constexpr uint64_t kMagicBytes = sizeof(TokenFileFooter::magic);

template <class T>
std::span<const T> view_as(Bytes bytes) {
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

template <class T>
uint32_t copy_tokens(const std::byte* from, std::span<int32_t> out) {
  uint32_t largest = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    out[i] = int32_t(value);
    largest = std::max(largest, uint32_t(value));
  }
  return largest;
}

}  // namespace

TokenFile::TokenFile(const std::string& path, FileSystem& fs) : file_(path, fs) {
  check_footer();
  check_tail();
}

void TokenFile::fail(std::string_view what) const {
  throw Error("{} is not a usable token file: {}; delete it and it will be rebuilt from the text", path(), what);
}

void TokenFile::check_footer() {
  const Bytes bytes = file_.bytes();
  const std::string_view magic(footer_.magic, kMagicBytes);
  const bool has_magic = bytes.size() >= kMagicBytes && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
  if (!has_magic) fail("it does not begin as one");
  if (bytes.size() < kMagicBytes + sizeof footer_) fail("it is cut short");
  std::memcpy(&footer_, bytes.data() + bytes.size() - sizeof footer_, sizeof footer_);
  if (std::string_view(footer_.magic, kMagicBytes) != std::string_view("weft.tok", kMagicBytes))
    fail("it is cut short");
  if (XXH3_64bits(&footer_, offsetof(TokenFileFooter, footer_checksum)) != footer_.footer_checksum)
    fail("its footer is damaged");
  if (footer_.version != 1 && footer_.version != kExamplesVersion)
    fail(fmt::format("it has format version {}, and this program reads 1 and 2", footer_.version));
}

void TokenFile::check_tail() {
  const TokenFileFooter& f = footer_;
  const uint64_t room = file_.bytes().size() - kMagicBytes - sizeof f;
  const bool has_sane_width = f.token_bytes == 4 || (f.token_bytes == 2 && f.version == 1);
  const bool has_sane_counts = has_sane_width && f.num_tokens <= room / f.token_bytes &&
                               f.num_documents <= f.num_tokens && f.num_documents <= room / 8 &&
                               f.tokenizer_bytes <= room && f.vocab_size <= uint32_t(INT32_MAX) &&
                               int64_t(f.end_of_document) < int64_t(f.vocab_size);
  if (!has_sane_counts) fail("the numbers in its footer contradict its size");
  const uint64_t chunks = (f.num_tokens + kTokenChunk - 1) / kTokenChunk;
  const uint64_t payload_bytes = f.num_tokens * f.token_bytes, padded = (payload_bytes + 7) / 8 * 8;
  const uint64_t tail_bytes = (f.num_documents + chunks) * 8 + f.tokenizer_bytes;
  if (padded + tail_bytes != room) fail("the numbers in its footer contradict its size");
  payload_ = file_.bytes().subspan(kMagicBytes, payload_bytes);
  const Bytes tail = file_.bytes().subspan(kMagicBytes + padded, tail_bytes);
  if (XXH3_64bits(tail.data(), tail.size()) != f.tail_checksum) fail("its list of documents is damaged");
  documents_ = view_as<uint64_t>(tail.first(f.num_documents * 8));
  checksums_ = view_as<uint64_t>(tail.subspan(f.num_documents * 8, chunks * 8));
  const Bytes json = tail.last(f.tokenizer_bytes);
  tokenizer_json_ = {reinterpret_cast<const char*>(json.data()), json.size()};
  for (size_t i = 0; i < documents_.size(); ++i) {
    const bool follows = i == 0 ? documents_[i] == 0 : documents_[i] > documents_[i - 1];
    if (!follows || documents_[i] >= f.num_tokens) fail(fmt::format("document {} has no valid start", i));
  }
  is_verified_ = std::make_unique<std::atomic<uint8_t>[]>(chunks);
}

std::optional<int32_t> TokenFile::end_of_document() const {
  if (footer_.end_of_document < 0) return std::nullopt;
  return footer_.end_of_document;
}

void TokenFile::verify_chunk(int64_t chunk) const {
  std::atomic<uint8_t>& is_verified = is_verified_[size_t(chunk)];
  if (is_verified.load(std::memory_order_relaxed) != 0) return;
  const uint64_t chunk_bytes = uint64_t(kTokenChunk) * footer_.token_bytes, begin = uint64_t(chunk) * chunk_bytes;
  const Bytes bytes = payload_.subspan(begin, std::min(chunk_bytes, payload_.size() - begin));
  if (XXH3_64bits(bytes.data(), bytes.size()) != checksums_[size_t(chunk)])
    fail(fmt::format("its tokens from {} on are damaged", chunk * kTokenChunk));
  is_verified.store(1, std::memory_order_relaxed);
}

void TokenFile::verify_range(int64_t first, int64_t count) const {
  check(first >= 0 && first <= num_tokens() - count, "{}: tokens [{}, {}) are outside its {}", path(), first,
        first + count, num_tokens());
  const int64_t last = first + count - 1;
  for (int64_t chunk = first / kTokenChunk; chunk <= last / kTokenChunk; ++chunk) verify_chunk(chunk);
}

void TokenFile::check_largest(uint32_t largest) const {
  if (largest >= footer_.vocab_size)
    fail(fmt::format("it holds the token {}, and its vocabulary ends at {}", largest, footer_.vocab_size));
}

void TokenFile::read(int64_t first, std::span<int32_t> out) const {
  if (out.empty()) return;
  if (has_examples()) return read(first, out, {});
  verify_range(first, int64_t(out.size()));
  const std::byte* from = payload_.data() + size_t(first) * footer_.token_bytes;
  check_largest(footer_.token_bytes == 2 ? copy_tokens<uint16_t>(from, out) : copy_tokens<uint32_t>(from, out));
}

void TokenFile::read(int64_t first, std::span<int32_t> out, std::span<uint8_t> is_learned) const {
  if (out.empty()) return;
  check(has_examples(), "{}: tokens of texts are all learned", path());
  verify_range(first, int64_t(out.size()));
  copy_tokens<uint32_t>(payload_.data() + size_t(first) * sizeof(uint32_t), out);
  uint32_t largest = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const uint32_t stored = uint32_t(out[i]);
    if (!is_learned.empty()) is_learned[i] = (stored & kNotLearned) == 0;
    out[i] = int32_t(stored & ~kNotLearned);
    largest = std::max(largest, uint32_t(out[i]));
  }
  check_largest(largest);
}

void TokenFile::verify() const {
  for (int64_t chunk = 0; chunk * kTokenChunk < num_tokens(); ++chunk) verify_chunk(chunk);
}

}  // namespace weft
