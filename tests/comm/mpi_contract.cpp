// The contract over MPI processes, in shared memory and through messages. Run by mpirun; exits with 1 when it breaks.
#include <fmt/format.h>

#include <cstdio>
#include <cstring>

#include "comm/contract.h"
#include "weft/comm/mpi/mpi.h"

namespace weft {
namespace {

void expect_shared_accounting(Communicator& c) {
  Allocator allocator;
  const void* first = nullptr;
  for (int i = 0; i < 3; ++i) {
    const Tensor x = c.allocate_shared(allocator, DType::f32, {10000});
    expect(allocator.stats().live_bytes >= 40000, "allocate_shared is counted");
    if (i == 0) first = x.raw();
    expect(x.raw() == first, "allocate_shared reuses what was freed");
  }
  expect(allocator.stats().live_bytes == 0, "a freed shared tensor is counted");
}

void expect_text(const char* what, const std::function<void()>& call, std::string_view text) {
  try {
    call();
  } catch (const Error& error) {
    return expect(std::string_view(error.what()).find(text) != std::string_view::npos,
                  fmt::format("{} says: {}", what, error.what()));
  }
  expect(false, fmt::format("{} is not an error", what));
}

// Leaves its group broken, so each has one of its own.
void expect_failures(Communicator& c, Communicator& patient, bool is_shared) {
  Allocator allocator;
  const Tensor x = allocator.zeros(DType::f32, {1024});
  const auto mismatched = c.split(0, c.rank(), "mismatched"), late = c.split(0, c.rank(), "late");
  c.set_place("a nap", 3);
  patient.barrier();
  expect_text(
      "a mismatch", [&] { c.rank() == 1 ? mismatched->broadcast(x, 1) : mismatched->all_reduce(x); },
      "rank 0 calls all_reduce of 4096 bytes f32, rank 1 calls broadcast from rank 1 of 4096 bytes f32 "
      "(group mismatched, call 1)");
  expect_text(
      "a broken group", [&] { mismatched->barrier(); }, "group mismatched is broken by an earlier failure");
  if (c.rank() != 1) {
    const auto wait = [&] { late->all_reduce(x); };  // on a busy machine other ranks may be late too
    expect_text("a missing rank", wait,
                is_shared ? "rank 1 has made 0 calls and was last seen in \"a nap\" of step 3"
                          : "(group late, call 1, step 3): rank ");
  }
  patient.barrier();
  if (c.rank() == 0) {
    const auto wait = [&] { c.recv(x, 1, 5); };
    expect_text(
        "a missing message", wait,
        "(group world, call 1, step 3): nothing came within 0.4 s; rank 1 was last seen in \"a nap\" of step 3");
  }
  patient.barrier();
}

void run_contract(Communicator& c, bool is_shared) {
  std::vector<ContractCheck> checks = contract_checks();
  if (is_shared) checks.push_back({"shared_accounting", expect_shared_accounting});
  for (const ContractCheck& check : checks) {
    try {
      check.run(c);
    } catch (const Error& error) {
      throw Error("{} ({}): {}", check.name, is_shared ? "shared memory" : "messages", error.what());
    }
  }
}

}  // namespace
}  // namespace weft

// "contract", or how to fail: "throw" and "usage" on rank 1 while the others wait.
int main(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "contract";
  if (mode == "contract") {
    try {
      weft::MpiSession session;
      for (const bool is_shared : {true, false}) {
        weft::run_contract(*session.world({.share_memory = is_shared}), is_shared);
        const weft::CommOptions impatient{.timeout = std::chrono::milliseconds(400), .share_memory = is_shared};
        const auto world = session.world({.share_memory = is_shared});
        const auto hasty = session.world(impatient);
        if (hasty->size() > 1) weft::expect_failures(*hasty, *world, is_shared);
      }
      return 0;
    } catch (const weft::Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      return 1;
    }
  }
  weft::run_mpi_ranks([&](weft::Communicator& c) {
    if (c.rank() == 1 && mode == "usage") throw weft::UsageError("no such key");
    if (c.rank() == 1) throw weft::Error("the disk is full");
    c.barrier();
  });
  return 0;
}
