// Power cuts, a few hundred of them.
#include "checkpoint/power_cut_cases.h"

namespace weft {
namespace {

TEST(PowerCut, NoDiskLosesAPromisedCheckpoint) { EXPECT_GT(try_power_cuts(500, 1), 0); }

}  // namespace
}  // namespace weft
