// Token files: what is written is read, nothing is left half-written, and every kind of damage is named.
#include "weft/data/token_file.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

#include "data/temp_folder.h"
#include "weft/data/token_file_writer.h"
#include "weft/text/byte_tokenizer.h"
#include "weft/text/char_tokenizer.h"

namespace weft {
namespace {

CharTokenizer large_vocabulary() {
  std::vector<char32_t> all(70000);
  for (size_t i = 0; i < all.size(); ++i) all[i] = char32_t(0x10000 + i);
  return CharTokenizer(all, true);
}

// Three documents, one of them empty, and enough tokens for three chunks.
std::vector<int32_t> write_example(const std::string& path, const Tokenizer& tokenizer) {
  std::vector<int32_t> first(40000), second(50001);
  for (size_t i = 0; i < first.size(); ++i) first[i] = int32_t(i * 7 % size_t(tokenizer.vocab_size() - 1));
  for (size_t i = 0; i < second.size(); ++i) second[i] = int32_t(i * 13 % size_t(tokenizer.vocab_size() - 1));
  TokenFileWriter writer(FileSystem::real(), path, tokenizer);
  writer.begin_document();
  writer.append(std::span(first).first(100));
  writer.append(std::span(first).subspan(100));
  writer.begin_document();
  writer.begin_document();
  writer.append(second);
  writer.finish(123, 4);
  first.push_back(*tokenizer.end_of_document());
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

void expect_example(const std::string& path, const Tokenizer& tokenizer, const std::vector<int32_t>& expected) {
  const TokenFile file(path);
  EXPECT_EQ(file.num_tokens(), int64_t(expected.size()));
  EXPECT_EQ(file.vocab_size(), tokenizer.vocab_size());
  EXPECT_EQ(file.end_of_document(), tokenizer.end_of_document());
  EXPECT_EQ(file.tokenizer_json(), tokenizer.to_json());
  EXPECT_EQ(file.tokenizer_fingerprint(), tokenizer.fingerprint());
  EXPECT_EQ(file.source_bytes(), 123);
  EXPECT_EQ(file.skipped_files(), 4);
  ASSERT_EQ(file.document_starts().size(), 2u);
  EXPECT_EQ(file.document_starts()[1], 40001u);
  std::vector<int32_t> all(expected.size()), some(70000);
  file.read(0, all);
  EXPECT_EQ(all, expected);
  file.read(777, some);
  EXPECT_TRUE(std::equal(some.begin(), some.end(), expected.begin() + 777));
  file.verify();
  EXPECT_THROW(file.read(file.num_tokens() - 1, std::span(all).first(2)), Error);
  EXPECT_THROW(file.read(-1, std::span(all).first(2)), Error);
}

TEST(TokenFile, ReadsWhatWasWritten) {
  const TempFolder folder;
  const auto bytes = write_example(folder.path("a.tok"), ByteTokenizer());
  expect_example(folder.path("a.tok"), ByteTokenizer(), bytes);
  const CharTokenizer large = large_vocabulary();
  const auto ids = write_example(folder.path("b.tok"), large);
  expect_example(folder.path("b.tok"), large, ids);
}

TEST(TokenFile, AppearsOnlyWhenFinished) {
  const TempFolder folder;
  {
    TokenFileWriter writer(FileSystem::real(), folder.path("a.tok"), ByteTokenizer());
    writer.append(std::vector<int32_t>(100000, 1));
    EXPECT_FALSE(std::filesystem::exists(folder.path("a.tok")));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(TokenFile, HoldsNothingToo) {
  const TempFolder folder;
  TokenFileWriter writer(FileSystem::real(), folder.path("a.tok"), ByteTokenizer());
  writer.finish(0, 0);
  const TokenFile file(folder.path("a.tok"));
  EXPECT_EQ(file.num_tokens(), 0);
  EXPECT_TRUE(file.document_starts().empty());
}

TEST(TokenFile, IsReadByManyThreads) {
  const TempFolder folder;
  const auto expected = write_example(folder.path("a.tok"), ByteTokenizer());
  const TokenFile file(folder.path("a.tok"));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<int32_t> some(1000);
      for (size_t i = t; i + some.size() < expected.size(); i += 999) {
        file.read(int64_t(i), some);
        if (!std::equal(some.begin(), some.end(), expected.begin() + int64_t(i))) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// Every way to damage a file; the offsets count from the start, or from the end when negative.
struct Damage {
  const char* name;
  std::function<void(std::string&)> apply;
};

void flip(std::string& bytes, int64_t at) {
  char& byte = bytes[at < 0 ? bytes.size() - size_t(-at) : size_t(at)];
  byte = char(byte ^ 0x10);
}

// Changes the footer and makes its checksum right again, as a program that lies would.
void forge(std::string& bytes, const std::function<void(TokenFileFooter&)>& change) {
  TokenFileFooter footer;
  char* at = bytes.data() + bytes.size() - sizeof footer;
  std::memcpy(&footer, at, sizeof footer);
  change(footer);
  footer.footer_checksum = XXH3_64bits(&footer, offsetof(TokenFileFooter, footer_checksum));
  std::memcpy(at, &footer, sizeof footer);
}

const Damage kDamages[] = {
    {"Empty", [](std::string& b) { b.clear(); }},
    {"OneByte", [](std::string& b) { b.resize(1); }},
    {"OnlyMagic", [](std::string& b) { b.resize(8); }},
    {"Half", [](std::string& b) { b.resize(b.size() / 2); }},
    {"OneByteShort", [](std::string& b) { b.pop_back(); }},
    {"OneByteLong", [](std::string& b) { b.push_back('x'); }},
    {"OneByteMissingInside", [](std::string& b) { b.erase(100, 1); }},
    {"Magic", [](std::string& b) { flip(b, 3); }},
    {"LastMagic", [](std::string& b) { flip(b, -3); }},
    {"FirstToken", [](std::string& b) { flip(b, 8); }},
    {"SecondChunk", [](std::string& b) { flip(b, 8 + 70000); }},
    {"LastToken", [](std::string& b) { flip(b, 8 + 2 * 90001); }},
    {"Documents", [](std::string& b) { flip(b, -88 - int64_t(ByteTokenizer().to_json().size()) - 3 * 8 - 4); }},
    {"Checksums", [](std::string& b) { flip(b, -88 - int64_t(ByteTokenizer().to_json().size()) - 4); }},
    {"Tokenizer", [](std::string& b) { flip(b, -88 - 4); }},
    {"Footer", [](std::string& b) { flip(b, -88); }},
    {"FooterChecksum", [](std::string& b) { flip(b, -12); }},
    {"Version", [](std::string& b) { forge(b, [](auto& f) { f.version = 3; }); }},
    {"TokenBytes", [](std::string& b) { forge(b, [](auto& f) { f.token_bytes = 0; }); }},
    {"TokenBytes4", [](std::string& b) { forge(b, [](auto& f) { f.token_bytes = 4; }); }},
    {"ManyTokens", [](std::string& b) { forge(b, [](auto& f) { f.num_tokens = UINT64_MAX; }); }},
    {"FewTokens", [](std::string& b) { forge(b, [](auto& f) { f.num_tokens = 1; }); }},
    {"NoTokens", [](std::string& b) { forge(b, [](auto& f) { f.num_tokens = 0; }); }},
    {"ManyDocuments", [](std::string& b) { forge(b, [](auto& f) { f.num_documents = uint64_t(1) << 61; }); }},
    {"NoDocuments", [](std::string& b) { forge(b, [](auto& f) { f.num_documents = 0; }); }},
    {"LongTokenizer", [](std::string& b) { forge(b, [](auto& f) { f.tokenizer_bytes = UINT64_MAX - 7; }); }},
    {"HugeVocabulary", [](std::string& b) { forge(b, [](auto& f) { f.vocab_size = UINT32_MAX; }); }},
    {"SmallVocabulary",
     [](std::string& b) { forge(b, [](auto& f) { f.vocab_size = 100, f.end_of_document = -1; }); }},
    {"EndOfDocument", [](std::string& b) { forge(b, [](auto& f) { f.end_of_document = 5000; }); }},
};

class Damaged : public testing::TestWithParam<Damage> {};
INSTANTIATE_TEST_SUITE_P(All, Damaged, testing::ValuesIn(kDamages), [](const auto& p) { return p.param.name; });

TEST_P(Damaged, IsNamedWithTheRemedy) {
  const TempFolder folder;
  const std::string path = folder.path("a.tok");
  write_example(path, ByteTokenizer());
  std::string bytes = slurp(path);
  GetParam().apply(bytes);
  folder.write("a.tok", bytes);
  try {
    const TokenFile file(path);
    std::vector<int32_t> all(size_t(file.num_tokens()));
    file.read(0, all);
    ADD_FAILURE() << "the damage was not found";
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find(path), std::string::npos) << what;
    EXPECT_NE(what.find("delete it and it will be rebuilt"), std::string::npos) << what;
  }
}

}  // namespace
}  // namespace weft
