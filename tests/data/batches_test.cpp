// Batches: the rows of a step are the same for any number of ranks, an epoch covers the text, documents stay apart.
#include "weft/data/batches.h"

#include <gtest/gtest.h>
#include <map>
#include <set>

#include "data/temp_folder.h"
#include "weft/data/token_file_writer.h"
#include "weft/text/byte_tokenizer.h"
#include "weft/text/char_tokenizer.h"

namespace weft {
namespace {

// A text of `count` tokens, token i being i, so that a token tells its place.
class Counting : public CharTokenizer {
 public:
  Counting() : CharTokenizer(all(), false) {}

 private:
  static std::vector<char32_t> all() {
    std::vector<char32_t> points(10100);
    for (size_t i = 0; i < points.size(); ++i) points[i] = char32_t(i);
    return points;
  }
};

TokenPart counting_text(const TempFolder& folder, int64_t count, const std::vector<int64_t>& documents = {}) {
  const std::string path = folder.path("counting.tok");
  TokenFileWriter writer(FileSystem::real(), path, Counting());
  std::vector<int32_t> ids(size_t(count), 0);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = int32_t(i);
  int64_t begin = 0;
  for (const int64_t end : documents) {
    writer.append(std::span(ids).subspan(size_t(begin), size_t(end - begin)));
    writer.begin_document();
    begin = end;
  }
  writer.append(std::span(ids).subspan(size_t(begin)));
  writer.finish(0, 0);
  return {std::make_shared<const TokenFile>(path), 0, count};
}

TEST(Batches, AnySplitAmongRanksGivesTheSameRows) {
  const TempFolder folder;
  const BatchOptions options{.seq_len = 16, .global_batch = 12, .seed = 3, .documents = true};
  const Batches batches(counting_text(folder, 5000, {100, 101, 130, 2000, 4990}), options);
  for (int64_t step = 0; step < 60; ++step) {
    Batch whole, part;
    batches.fill(step, 0, 12, whole);
    EXPECT_EQ(whole.num_targets, batches.num_targets(step));
    for (const int32_t ranks : {1, 2, 3, 4, 6, 12}) {
      std::vector<int32_t> ids, targets, positions, starts;
      int64_t num_targets = 0;
      for (int32_t rank = 0; rank < ranks; ++rank) {
        const int32_t rows = 12 / ranks, offset = rank * rows * 16;
        batches.fill(step, rank * rows, rows, part);
        ids.insert(ids.end(), part.ids.begin(), part.ids.end());
        targets.insert(targets.end(), part.targets.begin(), part.targets.end());
        positions.insert(positions.end(), part.positions.begin(), part.positions.end());
        if (rank > 0) starts.pop_back();
        for (const int32_t start : part.sequence_starts) starts.push_back(start + offset);
        num_targets += part.num_targets;
      }
      ASSERT_EQ(ids, whole.ids);
      ASSERT_EQ(targets, whole.targets);
      ASSERT_EQ(positions, whole.positions);
      ASSERT_EQ(starts, whole.sequence_starts);
      ASSERT_EQ(num_targets, whole.num_targets);
    }
  }
}

TEST(Batches, TargetsAreTheNextTokens) {
  const TempFolder folder;
  const Batches batches(counting_text(folder, 5000), {.seq_len = 16, .global_batch = 4, .seed = 1});
  Batch batch;
  for (int64_t step = 0; step < 100; ++step) {
    batches.fill(step, 0, 4, batch);
    ASSERT_EQ(batch.sequence_starts, (std::vector<int32_t>{0, 16, 32, 48, 64}));
    ASSERT_EQ(batch.num_targets, 64);
    for (size_t i = 0; i < 64; ++i) {
      ASSERT_EQ(batch.targets[i], batch.ids[i] + 1);
      ASSERT_EQ(batch.positions[i], int32_t(i % 16));
      if (i % 16 != 0) {
        ASSERT_EQ(batch.ids[i], batch.ids[i - 1] + 1);
      }
    }
  }
}

struct EpochCase {
  int64_t tokens;
  int32_t seq_len;
};
class Epoch : public testing::TestWithParam<EpochCase> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Epoch,
                         testing::Values(EpochCase{17, 16}, EpochCase{31, 16}, EpochCase{32, 16}, EpochCase{33, 16},
                                         EpochCase{48, 16}, EpochCase{1000, 16}, EpochCase{1007, 7}, EpochCase{20, 1},
                                         EpochCase{2, 1}));

// No token is an input twice in an epoch, fewer than 2 * seq_len are left out, and epochs differ in where they cut.
TEST_P(Epoch, CoversTheTextOnce) {
  const TempFolder folder;
  const auto [tokens, seq_len] = GetParam();
  const Batches batches(counting_text(folder, tokens), {.seq_len = seq_len, .global_batch = 1, .seed = 9});
  std::set<int64_t> offsets;
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    std::vector<int> seen(size_t(tokens), 0);
    Batch batch;
    for (int64_t i = 0; i < batches.windows_per_epoch(); ++i) {
      batches.fill(epoch * batches.windows_per_epoch() + i, 0, 1, batch);
      for (const int32_t id : batch.ids) ++seen[size_t(id)];
      ASSERT_LT(batch.targets.back(), tokens);
      if (i == 0) offsets.insert(batch.ids[0] % seq_len);
    }
    int64_t once = 0;
    for (const int count : seen) {
      ASSERT_LE(count, 1);
      once += count;
    }
    EXPECT_GT(once, tokens - 2 * seq_len);
  }
  if (tokens >= 2 * seq_len && seq_len > 4) {
    EXPECT_GT(offsets.size(), 4u);
  }
}

TEST(Batches, DependOnSeedAndEpoch) {
  const TempFolder folder;
  const TokenPart part = counting_text(folder, 5000);
  const Batches a(part, {.seq_len = 16, .global_batch = 8, .seed = 1});
  const Batches b(part, {.seq_len = 16, .global_batch = 8, .seed = 2});
  Batch x, y, z;
  a.fill(0, 0, 8, x);
  b.fill(0, 0, 8, y);
  a.fill(a.windows_per_epoch(), 0, 8, z);
  EXPECT_NE(x.ids, y.ids);
  EXPECT_NE(x.ids, z.ids);
}

TEST(Batches, StayInsideTheirPart) {
  const TempFolder folder;
  TokenPart part = counting_text(folder, 5000);
  part.begin = 1000, part.end = 1200;
  const Batches batches(part, {.seq_len = 16, .global_batch = 8, .seed = 1});
  Batch batch;
  for (int64_t step = 0; step < 50; ++step) {
    batches.fill(step, 0, 8, batch);
    for (size_t i = 0; i < batch.ids.size(); ++i) {
      ASSERT_GE(batch.ids[i], 1000);
      ASSERT_LT(batch.targets[i], 1200);
    }
  }
}

// Documents [0, 5), [5, 6), [6, 20): each is a sequence, its last token predicts nothing.
TEST(Batches, KeepDocumentsApart) {
  const TempFolder folder;
  const EvalBatches batches(counting_text(folder, 20, {5, 6}), {.seq_len = 8, .global_batch = 3, .documents = true});
  Batch batch;
  batches.fill(0, 0, 3, batch);
  EXPECT_EQ(batch.sequence_starts, (std::vector<int32_t>{0, 5, 6, 8, 16, 24}));
  EXPECT_EQ(batch.positions,
            (std::vector<int32_t>{0, 1, 2, 3, 4, 0, 0, 1, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(batch.targets, (std::vector<int32_t>{1,  2,  3,  4,  -1, -1, 7,  8,  9,  10, 11, 12,
                                                 13, 14, 15, 16, 17, 18, 19, -1, -1, -1, -1, -1}));
  EXPECT_EQ(batch.num_targets, 17);
}

// Within sequences, of which the last token predicts nothing further on and stands for what nobody knows.
TEST(Batches, LookFurther) {
  const TempFolder folder;
  const EvalBatches batches(counting_text(folder, 20, {5, 6}), {.seq_len = 8, .global_batch = 3, .documents = true});
  Batch batch;
  batches.fill(0, 0, 3, batch);
  EXPECT_TRUE(batch.next_ids.empty() && batch.further_targets.empty());
  batch.look_further();
  EXPECT_EQ(batch.next_ids,
            (std::vector<int32_t>{1, 2, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 0, 0, 0, 0, 0}));
  EXPECT_EQ(batch.further_targets, (std::vector<int32_t>{2,  3,  4,  -1, -1, -1, 8,  -1, 10, 11, 12, 13,
                                                         14, 15, 16, -1, 18, 19, -1, -1, -1, -1, -1, -1}));
  // What is not to be predicted next is not to be predicted further on either.
  batch.targets[2] = -1;
  batch.look_further();
  EXPECT_EQ(batch.further_targets[1], -1);
  EXPECT_EQ(batch.next_ids[2], 3);
  batches.fill(0, 0, 3, batch);
  EXPECT_TRUE(batch.next_ids.empty());
}

TEST(Batches, BoundaryAtTheEndOfARow) {
  const TempFolder folder;
  const EvalBatches batches(counting_text(folder, 17, {8}), {.seq_len = 8, .global_batch = 2, .documents = true});
  Batch batch;
  batches.fill(0, 0, 2, batch);
  EXPECT_EQ(batch.sequence_starts, (std::vector<int32_t>{0, 8, 16}));
  EXPECT_EQ(batch.targets[7], -1);
  EXPECT_EQ(batch.num_targets, 15);
}

// The last token of a document predicts the end-of-document token, which itself predicts nothing.
TEST(Batches, PredictTheEndOfADocument) {
  const TempFolder folder;
  TokenFileWriter writer(FileSystem::real(), folder.path("a.tok"), ByteTokenizer());
  writer.append(std::vector<int32_t>{'a', 'b'});
  writer.begin_document();
  writer.append(std::vector<int32_t>{'c', 'd'});
  writer.finish(0, 0);
  const TokenPart part{std::make_shared<const TokenFile>(folder.path("a.tok")), 0, 5};
  Batch batch;
  EvalBatches(part, {.seq_len = 4, .global_batch = 1, .documents = true}).fill(0, 0, 1, batch);
  EXPECT_EQ(batch.ids, (std::vector<int32_t>{'a', 'b', 256, 'c'}));
  EXPECT_EQ(batch.targets, (std::vector<int32_t>{'b', 256, -1, 'd'}));
  EXPECT_EQ(batch.sequence_starts, (std::vector<int32_t>{0, 3, 4}));
  EvalBatches(part, {.seq_len = 4, .global_batch = 1}).fill(0, 0, 1, batch);
  EXPECT_EQ(batch.targets, (std::vector<int32_t>{'b', 256, 'c', 'd'}));
  EXPECT_EQ(batch.sequence_starts, (std::vector<int32_t>{0, 4}));
}

class Evaluation : public testing::TestWithParam<std::tuple<int64_t, int32_t, int32_t>> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Evaluation,
                         testing::Combine(testing::Values(2, 3, 16, 17, 18, 1000), testing::Values(1, 8, 16),
                                          testing::Values(1, 2, 6)));

TEST_P(Evaluation, PredictsEveryTokenOnceForAnyNumberOfRanks) {
  const TempFolder folder;
  const auto [tokens, seq_len, ranks] = GetParam();
  const EvalBatches batches(counting_text(folder, tokens), {.seq_len = seq_len, .global_batch = 6});
  std::vector<int> predicted(size_t(tokens), 0);
  int64_t num_targets = 0;
  Batch batch;
  for (int64_t index = 0; index < batches.num_batches(); ++index) {
    for (int32_t rank = 0; rank < ranks; ++rank) {
      batches.fill(index, rank * 6 / ranks, 6 / ranks, batch);
      num_targets += batch.num_targets;
      for (size_t i = 0; i < batch.ids.size(); ++i) {
        if (batch.targets[i] < 0) continue;
        ASSERT_EQ(batch.targets[i], batch.ids[i] + 1);
        ++predicted[size_t(batch.targets[i])];
      }
    }
  }
  EXPECT_EQ(num_targets, tokens - 1);
  EXPECT_EQ(predicted[0], 0);
  EXPECT_EQ(std::count(predicted.begin(), predicted.end(), 1), tokens - 1);
}

TEST(Evaluation, SpreadsALimitedNumberOfRows) {
  const TempFolder folder;
  const EvalBatches batches(counting_text(folder, 10001), {.seq_len = 10, .global_batch = 4}, 20);
  EXPECT_EQ(batches.num_batches(), 5);
  std::set<int32_t> first;
  Batch batch;
  for (int64_t i = 0; i < 5; ++i) {
    batches.fill(i, 0, 4, batch);
    EXPECT_EQ(batch.num_targets, 40);
    for (size_t row = 0; row < 4; ++row) first.insert(batch.ids[row * 10]);
  }
  EXPECT_EQ(first.size(), 20u);
  EXPECT_EQ(*first.begin(), 0);
  EXPECT_EQ(*first.rbegin(), 9500);
}

TEST(Batches, ReuseTheirStorage) {
  const TempFolder folder;
  const Batches batches(counting_text(folder, 5000, {3, 9, 1000}),
                        {.seq_len = 16, .global_batch = 8, .seed = 1, .documents = true});
  Batch batch;
  batches.fill(0, 0, 8, batch);
  const auto pointers = [&] {
    return std::array{batch.ids.data(), batch.targets.data(), batch.positions.data(), batch.sequence_starts.data()};
  };
  const auto before = pointers();
  for (int64_t step = 1; step < 100; ++step) batches.fill(step, 0, 8, batch);
  EXPECT_EQ(pointers(), before);
}

TEST(Batches, SayWhenTheTextIsTooShort) {
  const TempFolder folder;
  TokenPart part = counting_text(folder, 100);
  try {
    const Batches batches(part, {.seq_len = 100, .global_batch = 8});
    ADD_FAILURE();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("train.seq_len = 100"), std::string::npos) << error.what();
  }
  EXPECT_EQ(Batches(part, {.seq_len = 99, .global_batch = 8}).windows_per_epoch(), 1);
  part.begin = 99;
  EXPECT_THROW(EvalBatches(part, {.seq_len = 8, .global_batch = 1}), UsageError);
}

}  // namespace
}  // namespace weft
