// Runs under mpirun: each rank is a process, and what comes of it is what comes of threads.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/program.h"

namespace weft {
namespace {

class LaunchedTest : public testing::Test {
 protected:
  void SetUp() override {
    weft.write("text.txt", sample_text());
    weft.write("r.toml", sample_recipe());
  }
  Program weft;
};

TEST_F(LaunchedTest, ProvesMeshesOfProcesses) {
  if (weft.shell("command -v mpirun").status != 0) GTEST_SKIP() << "there is no mpirun";
  for (const char* mesh : {"dp=2,tp=2,zero=3", "pp=2,tp=2,sequence_parallel=true", "cp=2,dp=2,cp_mode=ulysses",
                           "pp=4,schedule=interleaved,virtual_stages=1", "dp=4,hsdp=2,zero=2"}) {
    const Outcome o =
        weft.shell(fmt::format("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n "
                               "4 {} verify r.toml --json "
                               "--mesh {}",
                               WEFT_PROGRAM, mesh));
    if (std::string(mesh).find("interleaved") != std::string::npos) {
      EXPECT_EQ(o.status, 2) << o.err;  // one stage a rank is not interleaved
      continue;
    }
    ASSERT_EQ(o.status, 0) << mesh << o.err;
    EXPECT_EQ(std::count(o.out.begin(), o.out.end(), '\n'), 1) << "one rank speaks";
    EXPECT_TRUE(nlohmann::json::parse(o.out)["pass"].get<bool>());
  }
}

TEST_F(LaunchedTest, RanksAreEqualWhetherThreadsOrProcesses) {
  if (weft.shell("command -v mpirun").status != 0) GTEST_SKIP() << "there is no mpirun";
  ASSERT_EQ(weft.run("train r.toml --log.dir=one").status, 0);
  for (const int ranks : {2, 4}) {
    const std::string mesh = fmt::format("--mesh dp={0} --log.dir=threads{0}", ranks);
    ASSERT_EQ(weft.run("train r.toml " + mesh).status, 0);
    const Outcome mpi =
        weft.shell(fmt::format("mpirun --oversubscribe -n {0} {1} train r.toml --mesh dp={0} "
                               "--log.dir=mpi{0} --json",
                               ranks, WEFT_PROGRAM));
    ASSERT_EQ(mpi.status, 0) << mpi.err;
    EXPECT_EQ(std::count(mpi.out.begin(), mpi.out.end(), '\n'), 1) << "one rank speaks: " << mpi.out;
    // Sums are in rank order on both, so the bits are the same; one rank sums in another order.
    EXPECT_EQ(losses_of(weft, fmt::format("mpi{}", ranks)), losses_of(weft, fmt::format("threads{}", ranks)));
    const auto loss_of = [&](const std::string& line) { return std::stod(line.substr(line.find(' ') + 1)); };
    EXPECT_NEAR(loss_of(losses_of(weft, fmt::format("mpi{}", ranks))[2]), loss_of(losses_of(weft, "one")[2]), 1e-4);
  }
  const Outcome wrong =
      weft.shell(fmt::format("mpirun --oversubscribe -n 2 {} train r.toml --mesh dp=4", WEFT_PROGRAM));
  EXPECT_NE(wrong.status, 0);
  EXPECT_NE(wrong.err.find("4 ranks"), std::string::npos) << wrong.err;
}

// Starts a job in the background, waits for its second step, does something to it, and gives how and when it ended.
std::string disturbed(const std::string& command, const std::string& disturb) {
  return fmt::format(
      "{} & job=$!; for i in $(seq 1500); do grep -qs '\"step\":2,' run/metrics.jsonl && break; sleep 0.02; done; "
      "{}; "
      "date +%s >begin; wait $job; status=$?; date +%s >end; exit $status",
      command, disturb);
}

TEST_F(LaunchedTest, AJobOnHostsSavesWhenItIsAskedToStop) {
  if (weft.shell("command -v mpirun").status != 0) GTEST_SKIP() << "there is no mpirun";
  for (const char* signal : {"TERM", "INT"}) {
    weft.shell("rm -rf run");
    const Outcome o = weft.shell(disturbed(std::string(WEFT_PROGRAM) +
                                               " train r.toml --mesh dp=2 --hosts localhost:2 --train.steps=1000000 "
                                               "--checkpoint.every=0 --json",
                                           fmt::format("kill -{} $job", signal)));
    ASSERT_EQ(o.status, 0) << signal << o.err;
    const auto report = nlohmann::json::parse(o.out);
    EXPECT_TRUE(report["interrupted"].get<bool>()) << signal;
    EXPECT_EQ(report["checkpoint"], fmt::format("run/checkpoints/step-{:06}", report["steps"].get<int64_t>()));
    EXPECT_TRUE(std::filesystem::exists(weft.path(report["checkpoint"].get<std::string>()) + "/manifest.json"));
  }
}

TEST_F(LaunchedTest, WhatMpirunPassesOnMakesARunSaveToo) {
  if (weft.shell("command -v mpirun").status != 0) GTEST_SKIP() << "there is no mpirun";
  const Outcome o = weft.shell(disturbed(fmt::format("mpirun --oversubscribe -n 2 {} train r.toml --mesh dp=2 "
                                                     "--train.steps=1000000 --checkpoint.every=0 --json",
                                                     WEFT_PROGRAM),
                                         "kill -USR2 $job"));
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_NE(nlohmann::json::parse(o.out)["checkpoint"], "");
}

// Nearly all of its time the run saves.
TEST_F(LaunchedTest, ARankThatStopsInASaveIsNamed) {
  if (weft.shell("command -v mpirun").status != 0) GTEST_SKIP() << "there is no mpirun";
  const std::string command = fmt::format(
      "mpirun --oversubscribe -n 2 {} train r.toml --mesh dp=2 --mesh.timeout_s=3 --train.steps=1000000 "
      "--train.eval_every=0 --checkpoint.every=1 --checkpoint.async=false --model.hidden=256",
      WEFT_PROGRAM);
  for (const char* moment : {"0", "0.05", "0.13"}) {
    weft.shell("rm -rf run");
    const Outcome o = weft.shell(disturbed(
        command, fmt::format("sleep {}; kill -STOP $(sed 's/process \\([0-9]*\\).*/\\1/' run/.lock)", moment)));
    EXPECT_EQ(o.status, 1) << o.err;
    EXPECT_NE(o.err.find("rank 1: "), std::string::npos) << o.err;
    EXPECT_TRUE(o.err.find("rank 0 did not come within 3 s") != o.err.npos ||
                o.err.find("rank 0 came, and then stopped") != o.err.npos ||
                o.err.find("rank 0 was last seen") != o.err.npos)
        << o.err;
    EXPECT_LE(std::stoi(weft.read_file("end")) - std::stoi(weft.read_file("begin")), 5) << moment;
  }
}

}  // namespace
}  // namespace weft
