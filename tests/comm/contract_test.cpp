// The contract over ranks that are threads, and over a group of one.
#include "comm/contract.h"

#include "weft/comm/single/single.h"
#include "weft/comm/threads/run_ranks.h"
#include "weft/comm/threads/threads.h"

namespace weft {
namespace {

struct ContractCase {
  std::string transport;
  int size;
  ContractCheck check;
};

std::vector<ContractCase> contract_cases() {
  std::vector<ContractCase> cases;
  for (const ContractCheck& check : contract_checks()) {
    cases.push_back({"single", 1, check});
    for (const int size : {1, 2, 3, 4, 8}) cases.push_back({"threads", size, check});
  }
  return cases;
}

class ContractTest : public testing::TestWithParam<ContractCase> {};
INSTANTIATE_TEST_SUITE_P(Transports, ContractTest, testing::ValuesIn(contract_cases()), [](const auto& test) {
  return fmt::format("{}_{}_{}", test.param.transport, test.param.size, test.param.check.name);
});

TEST_P(ContractTest, Holds) {
  const ContractCase& c = GetParam();
  if (c.transport == "single") return c.check.run(*make_single_communicator());
  if (c.size > 1) return run_ranks(c.size, c.check.run);
  const auto job = std::make_shared<ThreadsJob>(1, CommOptions{});
  ThreadsCommunicator alone(std::make_shared<ThreadsGroup>(job, std::vector<int>{0}, "world"), 0);
  c.check.run(alone);
}

}  // namespace
}  // namespace weft
