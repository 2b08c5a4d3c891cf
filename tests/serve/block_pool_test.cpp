// BlockPool: what is found again, whose blocks are given away and in which order, and counts.
#include "weft/serve/block_pool.h"

#include <gtest/gtest.h>

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr int32_t kNone = BlockPool::kNone;
using Tokens = std::vector<int32_t>;

// A block of the pool that is full of tokens behind `parent`, held.
int32_t full(BlockPool& pool, int32_t parent, const Tokens& tokens) { return pool.keep(pool.take(), parent, tokens); }

TEST(BlockPoolTest, GivesEachBlockOnceUntilItIsReleased) {
  BlockPool pool({.num_blocks = 3, .block_tokens = 2});
  const int32_t a = pool.take(), b = pool.take(), c = pool.take();
  EXPECT_EQ((std::set<int32_t>{a, b, c}), (std::set<int32_t>{0, 1, 2}));
  EXPECT_EQ(pool.take(), kNone);
  pool.release(b);
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.take(), b);
  EXPECT_EQ(pool.num_used(), 3);
}

TEST(BlockPoolTest, FindsPrefixesByContentAndAdapter) {
  BlockPool pool({.num_blocks = 8, .block_tokens = 2});
  const int32_t root = BlockPool::root(0), other = BlockPool::root(1);
  const int32_t first = full(pool, root, {1, 2}), second = full(pool, first, {3, 4});
  EXPECT_EQ(pool.find(root, Tokens{1, 2}), first);
  EXPECT_EQ(pool.find(first, Tokens{3, 4}), second);
  EXPECT_EQ(pool.find(root, Tokens{3, 4}), kNone);  // these tokens, but elsewhere
  EXPECT_EQ(pool.find(first, Tokens{3, 5}), kNone);
  EXPECT_EQ(pool.find(other, Tokens{1, 2}), kNone);
  EXPECT_EQ(BlockPool::root(0), root);
}

TEST(BlockPoolTest, KeepsOneOfEqualBlocks) {
  BlockPool pool({.num_blocks = 4, .block_tokens = 2});
  const int32_t root = BlockPool::root(0), first = full(pool, root, {1, 2}), again = full(pool, root, {1, 2});
  EXPECT_EQ(first, again);
  EXPECT_EQ(pool.num_used(), 1);
  pool.release(first);
  EXPECT_EQ(pool.num_used(), 1);
  pool.release(again);
  EXPECT_EQ(pool.num_used(), 0);
  EXPECT_EQ(pool.num_kept(), 1);
}

TEST(BlockPoolTest, ComparesTokensWhereHashesAreEqual) {
  BlockPool pool({.num_blocks = 64, .block_tokens = 1, .hash_bits = 0});
  const int32_t root = BlockPool::root(0);
  std::vector<int32_t> blocks;
  for (int32_t t = 0; t < 30; ++t) blocks.push_back(full(pool, root, {t}));
  for (int32_t t = 0; t < 30; ++t) EXPECT_EQ(pool.find(root, Tokens{t}), blocks[size_t(t)]);
  EXPECT_EQ(pool.find(root, Tokens{30}), kNone);
}

TEST(BlockPoolTest, GivesAwayWhatWasLetGoFirstAndNeverWhatIsHeld) {
  BlockPool pool({.num_blocks = 4, .block_tokens = 1});
  const int32_t root = BlockPool::root(0);
  const int32_t a = full(pool, root, {1}), b = full(pool, root, {2}), c = full(pool, root, {3});
  const int32_t held = full(pool, root, {4});
  for (const int32_t block : {b, a, c}) pool.release(block);
  EXPECT_EQ(pool.find(root, Tokens{2}), b);  // used again, so it is the newest
  pool.release(b);
  EXPECT_EQ(pool.take(), a);
  EXPECT_EQ(pool.find(root, Tokens{1}), kNone);
  EXPECT_EQ(pool.take(), c);
  EXPECT_EQ(pool.take(), b);
  EXPECT_EQ(pool.take(), kNone);
  EXPECT_EQ(pool.find(root, Tokens{4}), held);
}

TEST(BlockPoolTest, GivesAChainAwayFromItsEnd) {
  BlockPool pool({.num_blocks = 3, .block_tokens = 1});
  const int32_t root = BlockPool::root(0);
  const int32_t a = full(pool, root, {1}), b = full(pool, a, {2}), c = full(pool, b, {3});
  for (const int32_t block : {c, b, a}) pool.release(block);
  EXPECT_EQ(pool.take(), c);
  EXPECT_EQ(pool.find(root, Tokens{1}), a);
  EXPECT_EQ(pool.find(a, Tokens{2}), b);
  EXPECT_EQ(pool.find(b, Tokens{3}), kNone);
}

TEST(BlockPoolTest, WithoutPrefixesFindsNothingAndKeepsNothing) {
  BlockPool pool({.num_blocks = 2, .block_tokens = 1, .keeps_prefixes = false});
  const int32_t root = BlockPool::root(0), a = full(pool, root, {1});
  EXPECT_EQ(pool.find(root, Tokens{1}), kNone);
  pool.release(a);
  EXPECT_EQ(pool.num_kept(), 0);
  EXPECT_EQ(pool.num_free(), 2);
}

TEST(BlockPoolTest, CountsAreOfAllBlocks) {
  BlockPool pool({.num_blocks = 5, .block_tokens = 1});
  const int32_t root = BlockPool::root(0), a = full(pool, root, {1}), b = pool.take();
  full(pool, a, {2});
  EXPECT_EQ(pool.num_used(), 3);
  EXPECT_EQ(pool.num_used_known(), 2);
  pool.release(b);
  EXPECT_EQ(pool.num_used(), 2);
  EXPECT_EQ(pool.num_available(), 3);
  EXPECT_THROW(pool.release(b), Error);
  EXPECT_THROW(BlockPool({.num_blocks = 0}), UsageError);
}

}  // namespace
}  // namespace weft
