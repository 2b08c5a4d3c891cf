// Collectives do not allocate in the steady state, and a Pending holds on to its tensors.
#include "support/count_allocations.h"
#include "weft/comm/threads/run_ranks.h"

namespace weft {
namespace {

class AllocationTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, AllocationTest, testing::Values(1, 2, 4));

TEST_P(AllocationTest, CollectivesDoNotAllocate) {
  run_ranks(GetParam(), [](Communicator& c) {
    Allocator allocator;
    const int size = c.size();
    const Tensor small = allocator.zeros(DType::f32, {8}), large = allocator.zeros(DType::bf16, {100000});
    const Tensor parts = allocator.zeros(DType::f32, {8 * size}), others = allocator.zeros(DType::f32, {8 * size});
    const std::vector<int64_t> counts(size_t(size), 8);
    const auto step = [&] {
      Pending pending = c.start_all_reduce(large);
      c.all_reduce(small);
      c.all_reduce(large);
      c.all_gather(parts, small);
      c.reduce_scatter(small, parts);
      c.broadcast(large, size - 1);
      c.all_to_all(others, counts, parts, counts);
      c.send(large, (c.rank() + 1) % size, 1);
      c.recv(large, (c.rank() + size - 1) % size, 1);
      pending.wait();
      c.barrier();
    };
    for (int i = 0; i < 5; ++i) step();
    const int64_t before = num_allocations;
    c.barrier();
    for (int i = 0; i < 20; ++i) step();
    c.barrier();
    if (num_allocations != before) throw Error("{} allocations", num_allocations - before);
    c.barrier();
  });
}

TEST(PendingTest, OwnsItsTensorsUntilWaitedFor) {
  run_ranks(2, [](Communicator& c) {
    Allocator allocator;
    const int64_t before = allocator.stats().live_bytes;
    Pending pending = c.start_all_reduce(allocator.zeros(DType::f32, {5000}));
    if (allocator.stats().live_bytes == before) throw Error("the tensor is gone");
    Pending moved = std::move(pending);
    pending.wait();
    if (pending.is_started() || !moved.is_started()) throw Error("a moved Pending is not empty");
    moved.wait();
    if (allocator.stats().live_bytes != before) throw Error("the tensor is kept");
  });
}

}  // namespace
}  // namespace weft
