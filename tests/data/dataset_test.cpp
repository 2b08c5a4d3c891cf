// Dataset: files, folders and patterns become tokens once, split as asked; mistakes are named.
#include "weft/data/dataset.h"

#include <gtest/gtest.h>

#include "base/faulty_file_system.h"
#include "data/ignore_progress.h"
#include "data/temp_folder.h"
#include "weft/data/predicted_bytes.h"
#include "weft/text/byte_tokenizer.h"

namespace weft {
namespace {

std::string text_of(const Dataset& dataset, const TokenPart& part) {
  std::vector<int32_t> ids(size_t(part.size()));
  part.file->read(part.begin, ids);
  std::string text;
  for (const int32_t id : ids) {
    if (id == dataset.tokenizer->end_of_document()) {
      text += '|';
    } else {
      text += dataset.tokenizer->spelling(id);
    }
  }
  return text;
}

Dataset open(const DatasetOptions& options, TextProgress progress = ignore_progress) {
  return open_dataset(FileSystem::real(), options, progress);
}

class DatasetTest : public testing::Test {
 protected:
  DatasetOptions options(std::string train) { return {.train = train, .valid_fraction = 0, .cache_dir = cache()}; }
  std::string cache() { return folder_.path("cache"); }
  int64_t cached_files() {
    return std::distance(std::filesystem::directory_iterator(cache()), std::filesystem::directory_iterator());
  }
  void expect_usage_error(const DatasetOptions& wrong, std::string_view culprit) {
    try {
      open(wrong);
      ADD_FAILURE() << culprit;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(culprit), std::string::npos) << error.what();
    }
  }
  TempFolder folder_;
};

TEST_F(DatasetTest, ReadsFoldersInOrderAndSkipsBinaries) {
  folder_.write("t/b.txt", "second");
  folder_.write("t/a/z.txt", "first");
  folder_.write("t/c.bin", std::string("\0\1\2", 3));
  folder_.write("t/.git/x", "hidden");
  folder_.write("t/.hidden", "hidden");
  folder_.write("t/d.txt", "");
  folder_.write("t/e.txt", "last");
  const Dataset dataset = open(options(folder_.path("t")));
  EXPECT_EQ(text_of(dataset, dataset.train), "first|second|last");
  EXPECT_EQ(dataset.train.file->skipped_files(), 1);
  EXPECT_EQ(dataset.train.file->source_bytes(), int64_t(std::string_view("firstsecondlast").size()));
  EXPECT_EQ(dataset.valid.size(), 0);
}

// What nothing predicts is no part of bits per byte: the first token, or that of each document; of examples the
// questions.
TEST_F(DatasetTest, CountsTheBytesThatArePredicted) {
  folder_.write("t/a.txt", "first");
  folder_.write("t/b.txt", "\xC3\xA9t\xC3\xA9");
  folder_.write("t/c.bin", std::string("\0\1\2", 3));
  const auto bytes = [&](const std::string& where, bool documents, const char* tokenizer = "byte") {
    DatasetOptions wanted = options(folder_.path(where));
    wanted.tokenizer = tokenizer;
    const Dataset dataset = open(wanted);
    return predicted_bytes(dataset.train.file, *dataset.tokenizer,
                           {.seq_len = 8, .global_batch = 2, .documents = documents});
  };
  EXPECT_EQ(bytes("t", false), 9);
  EXPECT_EQ(bytes("t", true), 8);
  EXPECT_EQ(bytes("t", true, "char"), 7) << "the second begins with a character of two bytes";
  folder_.write("e.jsonl",
                "{\"prompt\": \"1+1=\", \"completion\": \"two\"}\n{\"prompt\": \"a\", \"completion\": \"bc\"}\n");
  EXPECT_EQ(bytes("e.jsonl", false), 5);
}

TEST_F(DatasetTest, SplitsTheLastFraction) {
  DatasetOptions wanted = options(folder_.write("a.txt", "0123456789"));
  wanted.valid_fraction = 0.1;
  for (const char* tokenizer : {"byte", "char"}) {
    wanted.tokenizer = tokenizer;
    const Dataset dataset = open(wanted);
    EXPECT_EQ(text_of(dataset, dataset.train), "012345678");
    EXPECT_EQ(text_of(dataset, dataset.valid), "9");
    EXPECT_EQ(dataset.tokenizer->vocab_size(), wanted.tokenizer == "byte" ? 257 : 10);
  }
  wanted.valid = folder_.write("b.txt", "987");
  const Dataset dataset = open(wanted);
  EXPECT_EQ(text_of(dataset, dataset.train), "0123456789");
  EXPECT_EQ(text_of(dataset, dataset.valid), "987");
}

TEST_F(DatasetTest, SecondStartUsesTheCache) {
  const std::string path = folder_.write("a.txt", "hello");
  for (const char* tokenizer : {"byte", "char"}) {
    DatasetOptions wanted = options(path);
    wanted.tokenizer = tokenizer;
    int calls = 0;
    const auto count = [&](int64_t done, int64_t total) {
      ++calls;
      EXPECT_LE(done, total);
    };
    open(wanted, count);
    EXPECT_GT(calls, 0);
    calls = 0;
    const Dataset again = open(wanted, count);
    EXPECT_EQ(calls, 0);
    EXPECT_EQ(text_of(again, again.train), "hello");
  }
  EXPECT_EQ(cached_files(), 2);
  folder_.write("a.txt", "longer than before");
  const Dataset changed = open(options(path));
  EXPECT_EQ(text_of(changed, changed.train), "longer than before");
  EXPECT_EQ(cached_files(), 3);
}

// The pieces of a file of several MiB are cut inside characters; the tokens do not show it.
TEST_F(DatasetTest, ReadsLargeFilesInPieces) {
  std::string text;
  for (int i = 0; text.size() < 3'500'000; ++i) text += i % 7 == 0 ? "é" : i % 5 == 0 ? "日" : "a";
  DatasetOptions wanted = options(folder_.write("a.txt", text));
  for (const char* tokenizer : {"byte", "char"}) {
    wanted.tokenizer = tokenizer;
    int64_t last = 0, expected = int64_t(text.size()) * (wanted.tokenizer == "char" ? 2 : 1);
    const Dataset dataset = open(wanted, [&](int64_t done, int64_t total) {
      last = done;
      EXPECT_EQ(total, expected);
    });
    EXPECT_EQ(last, expected);
    std::vector<int32_t> ids(size_t(dataset.train.size()));
    dataset.train.file->read(0, ids);
    EXPECT_TRUE(dataset.tokenizer->decode(ids) == text);
  }
}

TEST_F(DatasetTest, OpensATokenFileAsItIs) {
  DatasetOptions wanted = options(folder_.write("a.txt", "héllo"));
  wanted.tokenizer = "char";
  const Dataset first = open(wanted);
  const Dataset second = open(options(first.train.file->path()));
  EXPECT_EQ(text_of(second, second.train), "héllo");
  EXPECT_EQ(second.tokenizer->name(), "char");
  EXPECT_THROW(
      open_tokens(FileSystem::real(), first.train.file->path(), ByteTokenizer(), cache(), "--data", ignore_progress),
      UsageError);
}

TEST_F(DatasetTest, ReadsATokenizerFromAFile) {
  DatasetOptions wanted = options(folder_.write("a.txt", "ab"));
  wanted.tokenizer =
      folder_.write("t.json", R"({"type":"char","version":1,"end_of_document":false,"code_points":[97,98]})");
  EXPECT_EQ(open(wanted).tokenizer->vocab_size(), 2);
}

TEST_F(DatasetTest, NamesMistakes) {
  folder_.write("empty/x", "");
  folder_.write("binary/x", std::string("a\0b", 3));
  std::filesystem::create_directories(folder_.path("nothing"));
  const std::string text = folder_.write("a.txt", "abc");
  expect_usage_error(options(folder_.path("missing.txt")), "data.train = ");
  expect_usage_error(options(folder_.path("*.nothing")), "data.train = ");
  expect_usage_error(options(folder_.path("nothing")), "data.train = ");
  expect_usage_error(options(folder_.path("empty")), "data.train");
  expect_usage_error(options(folder_.path("binary")), "1 are binary");
  DatasetOptions wrong = options(text);
  wrong.tokenizer = "bite";
  expect_usage_error(wrong, "data.tokenizer = \"bite\"");
  wrong = options(text);
  wrong.valid_fraction = 1;
  expect_usage_error(wrong, "data.valid_fraction = 1");
  wrong = options(text);
  wrong.valid = folder_.path("missing");
  expect_usage_error(wrong, "data.valid = ");
  wrong.valid = folder_.write("other.txt", "abX");
  wrong.tokenizer = "char";
  expect_usage_error(wrong, "other.txt: the character U+0058 'X'");
  wrong = options(folder_.write("latin1.txt", "caf\xE9!"));
  wrong.tokenizer = "char";
  expect_usage_error(wrong, "at byte 3");
  EXPECT_FALSE(std::any_of(std::filesystem::directory_iterator(cache()), std::filesystem::directory_iterator(),
                           [](const auto& entry) { return entry.path().extension() == ".tmp"; }));
}

// Whatever call fails: an Error, nothing half-written under a final name, and the next start does it right.
TEST_F(DatasetTest, LeavesNothingHalfWrittenWhenACallFails) {
  const std::string text(40'000, 'x');
  DatasetOptions wanted = options(folder_.write("a.txt", text));
  wanted.tokenizer = "char";
  int64_t failed = 0;
  for (const Fault fault : {Fault::eio, Fault::enospc, Fault::enospc_for_good, Fault::eintr, Fault::short_write}) {
    for (int64_t nth = 0;; ++nth) {
      std::filesystem::remove_all(cache());
      FaultyFileSystem faulty(fault, nth);
      try {
        open_dataset(faulty, wanted, ignore_progress);
      } catch (const Error& error) {
        ++failed;
      }
      const Dataset dataset = open(wanted);
      ASSERT_EQ(text_of(dataset, dataset.train), text) << name_of(fault) << " at call " << nth;
      if (fault != Fault::enospc_for_good) {
        ASSERT_EQ(cached_files(), 1) << name_of(fault) << " at call " << nth;
      }
      if (!faulty.fired()) break;
    }
  }
  EXPECT_GT(failed, 20);
}

struct PatternCase {
  const char* pattern;
  std::vector<std::string> files;
};
class Patterns : public testing::TestWithParam<PatternCase> {};
INSTANTIATE_TEST_SUITE_P(All, Patterns,
                         testing::Values(PatternCase{"*.txt", {"a.txt", "b.txt"}},
                                         PatternCase{"?.txt", {"a.txt", "b.txt"}}, PatternCase{"[b-z]*", {"b.txt"}},
                                         PatternCase{"x/*", {"x/c.txt"}}, PatternCase{"*/*.txt", {"x/c.txt"}},
                                         PatternCase{"**/*.txt", {"a.txt", "b.txt", "x/c.txt", "x/y/d.txt"}},
                                         PatternCase{"x/**", {"x/c.txt", "x/y/d.txt"}},
                                         PatternCase{"x/**/d.*", {"x/y/d.txt"}}, PatternCase{"**/y/*", {"x/y/d.txt"}},
                                         PatternCase{"*.h", {}}));

TEST_P(Patterns, MatchFiles) {
  const TempFolder folder;
  for (const char* name : {"a.txt", "b.txt", "x/c.txt", "x/y/d.txt", ".hidden.txt", ".git/e.txt"})
    folder.write(name, "t");
  const std::string pattern = folder.path(GetParam().pattern);
  if (GetParam().files.empty()) {
    EXPECT_THROW(find_text_files(pattern, "data.train"), UsageError);
    return;
  }
  std::vector<std::string> names;
  for (const TextFile& file : find_text_files(pattern, "data.train").files)
    names.push_back(file.path.substr(folder.path().size() + 1));
  EXPECT_EQ(names, GetParam().files);
}

}  // namespace
}  // namespace weft
