// A few thousand mutated requests; mutation_slow_test.cpp has the rest of the hundred thousand.
#include "serve/mutated_bodies.h"

namespace weft {
namespace {

TEST(MutationTest, BodiesAreAnswered) { send_mutated_bodies(0, 3000); }
TEST(MutationTest, RequestsAreAnsweredOrClosed) { send_mutated_requests(0, 300); }

}  // namespace
}  // namespace weft
