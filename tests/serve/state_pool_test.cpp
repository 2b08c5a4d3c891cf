// StatePool: who holds which state, which are found again, and which goes first.
#include "weft/serve/state_pool.h"

#include <gtest/gtest.h>

#include "weft/base/error.h"

namespace weft {
namespace {

TEST(StatePoolTest, GivesEachStateOnceUntilItIsReleased) {
  StatePool pool(2, 4);
  const int32_t a = pool.take(), b = pool.take();
  EXPECT_NE(a, b);
  EXPECT_EQ(pool.take(), StatePool::kNone);
  pool.hold(a);
  pool.release(a);
  EXPECT_EQ(pool.take(), StatePool::kNone);
  pool.release(a);
  EXPECT_EQ(pool.take(), a);
  EXPECT_EQ(pool.num_held(), 2);
  pool.release(b);
  EXPECT_THROW(pool.release(b), Error);
}

TEST(StatePoolTest, WithoutStatesNothingIsTakenOrFound) {
  StatePool pool(0, 4);
  EXPECT_EQ(pool.take(), StatePool::kNone);
  EXPECT_EQ(pool.find(3), StatePool::kNone);
  pool.forget(3);
}

TEST(StatePoolTest, FindsTheStateBehindABlockUntilThatIsForgotten) {
  StatePool pool(3, 4);
  const int32_t a = pool.take(), b = pool.take();
  pool.keep(a, 2);
  pool.keep(b, 2);  // there is one
  EXPECT_EQ(pool.find(2), a);
  EXPECT_EQ(pool.num_kept(), 1);
  pool.release(a), pool.release(b);
  EXPECT_EQ(pool.find(2), a);
  pool.forget(2);
  EXPECT_EQ(pool.find(2), StatePool::kNone);
  EXPECT_EQ(pool.num_kept(), 0);
}

TEST(StatePoolTest, TheOneUsedLastGoesLastAndThatWithoutABlockFirst) {
  StatePool pool(3, 4);
  for (int32_t block = 0; block < 2; ++block) {
    const int32_t state = pool.take();
    pool.keep(state, block);
    pool.release(state);
  }
  const int32_t first = pool.find(0), second = pool.find(1);
  pool.hold(first), pool.release(first);
  const int32_t third = pool.take();
  EXPECT_NE(third, first);
  EXPECT_NE(third, second);
  EXPECT_EQ(pool.take(), second);
  EXPECT_EQ(pool.find(1), StatePool::kNone);
  EXPECT_EQ(pool.find(0), first);
  EXPECT_EQ(pool.take(), first);
}

// Who reads it goes on to, though nobody else finds it any more.
TEST(StatePoolTest, AForgottenStateStaysWithItsHolder) {
  StatePool pool(1, 4);
  const int32_t a = pool.take();
  pool.keep(a, 0);
  pool.forget(0);
  EXPECT_EQ(pool.take(), StatePool::kNone);
  pool.release(a);
  EXPECT_EQ(pool.take(), a);
}

}  // namespace
}  // namespace weft
