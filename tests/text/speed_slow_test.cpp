// Long texts: a megabyte takes well under a second, also when it is one character over and over.
#include <time.h>

#include "text/golden.h"

namespace weft {
namespace {

constexpr size_t kMegabyte = 1 << 20;

#ifdef NDEBUG
constexpr double kSlower = 1;
#else
constexpr double kSlower = 20;
#endif

// Of this thread, so that other work on the machine does not count.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

double seconds_to_encode(const Tokenizer& tokenizer, const std::string& text) {
  const double start = cpu_seconds();
  const std::vector<int32_t> ids = tokenizer.encode(text);
  return cpu_seconds() - start;
}

std::string repeated(const std::string& what) {
  std::string text;
  while (text.size() < kMegabyte) text += what;
  return text;
}

class Speed : public testing::TestWithParam<GoldenCase> {};
INSTANTIATE_TEST_SUITE_P(
    All, Speed,
    testing::Values(GoldenCase{"gpt2", "tokenizers/gpt2/tokenizer.json"},
                    GoldenCase{"llama2_json", "tokenizers/llama2/tokenizer.json"},
                    GoldenCase{"llama2_model", "tokenizers/llama2/tokenizer.model"},
                    GoldenCase{"byte_level", "byte_level.json"}, GoldenCase{"bpe_fallback", "bpe_fallback.json"},
                    GoldenCase{"unigram", "unigram.json"}, GoldenCase{"wordpiece", "wordpiece.json"},
                    GoldenCase{"sp_bpe", "sp_bpe.json"}, GoldenCase{"sp_unigram", "sp_unigram.json"}),
    [](const auto& test) { return test.param.name; });

TEST_P(Speed, OfEnglish) {
  if (GetParam().path().empty()) GTEST_SKIP() << no_test_data(GetParam().data);
  const std::string path = test_data("shakespeare.txt");
  if (path.empty()) GTEST_SKIP() << no_test_data("shakespeare.txt");
  const auto tokenizer = open_tokenizer(FileSystem::real(), GetParam().path());
  const double seconds = seconds_to_encode(*tokenizer, read_whole(path).substr(0, kMegabyte));
  fmt::print("{}: a megabyte of English in {:.3f} s\n", GetParam().name, seconds);
  EXPECT_LT(seconds, 0.5 * kSlower);
}

TEST_P(Speed, OfOneCharacter) {
  if (GetParam().path().empty()) GTEST_SKIP() << no_test_data(GetParam().data);
  const auto tokenizer = open_tokenizer(FileSystem::real(), GetParam().path());
  for (const std::string what : {"a", "a ", "A", "7", ".", "[", "<", "\n", "'", "中", "\u0301", "\xFF", "▁", "é"}) {
    const double seconds = seconds_to_encode(*tokenizer, repeated(what));
    EXPECT_LT(seconds, 1 * kSlower) << '"' << what << '"';
  }
  // SentencePiece drops spaces at the ends, so there must be something else.
  EXPECT_LT(seconds_to_encode(*tokenizer, repeated(" ") + "x"), 1 * kSlower);
}

}  // namespace
}  // namespace weft
