// Supervision, of shell scripts that stand for jobs.
#include "weft/train/supervisor.h"

#include <nlohmann/json.hpp>

#include "base/temporary_folder.h"
#include "weft/base/error.h"
#include "weft/base/file.h"

namespace weft {
namespace {

class SupervisorTest : public testing::Test {
 protected:
  SupervisorTest() {
    options_.restarts = 10;
    options_.first_pause_s = options_.longest_pause_s = 0;
    options_.checkpoint_dir = folder_ / "checkpoints";
    options_.log_dir = folder_.path();
  }
  // Lines of shell in the folder; `n` is the number of the run, from 1, and `save` makes a checkpoint of it.
  ExitStatus run(const std::string& script) {
    const std::string text = fmt::format(
        "cd {} && n=$(($(cat runs 2>/dev/null || echo 0) + 1)) && echo $n >runs && "
        "save() {{ mkdir -p checkpoints/step-00000$n; }} && {}",
        folder_.path(), script);
    return supervise({"sh", "-c", text, "job"}, {"again"}, options_);
  }
  int runs() { return std::stoi(read_file(folder_ / "runs", 100)); }
  std::vector<nlohmann::json> restarts() {
    std::vector<nlohmann::json> lines;
    std::istringstream text(read_file(folder_ / "restarts.jsonl", 1 << 20));
    for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  TemporaryFolder folder_;
  SupervisorOptions options_;
};

TEST_F(SupervisorTest, RunsOnceWhatEndsWell) {
  EXPECT_TRUE(run("exit 0").is_success());
  EXPECT_EQ(runs(), 1);
  EXPECT_FALSE(exists(FileSystem::real(), folder_ / "restarts.jsonl"));
}

TEST_F(SupervisorTest, RestartsWhatDiesAndSaysWhy) {
  EXPECT_TRUE(run("save && case $n in 1) exit 1;; 2) kill -9 $$;; esac; [ \"$1\" = again ]").is_success());
  EXPECT_EQ(runs(), 3);
  const auto lines = restarts();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["reason"], "exit status 1");
  EXPECT_EQ(lines[1]["reason"], "killed by signal 9 (Killed)");
  EXPECT_EQ(lines[1]["restart"], 2);
  EXPECT_EQ(lines[1]["checkpoint"], folder_ / "checkpoints/step-000002");
}

TEST_F(SupervisorTest, DoesNotRepeatAUsageError) {
  EXPECT_EQ(run("exit 2").code, 2);
  EXPECT_EQ(runs(), 1);
}

TEST_F(SupervisorTest, GivesUpOnACrashLoop) {
  EXPECT_EQ(run("[ $n -gt 2 ] || save; exit 1").code, 1);
  EXPECT_EQ(runs(), 5) << "two runs that saved, then three that did not";
}

TEST_F(SupervisorTest, RestartsAtMostAsOftenAsItMay) {
  options_.restarts = 4;
  EXPECT_EQ(run("save; exit 7").code, 7);
  EXPECT_EQ(runs(), 5);
}

TEST_F(SupervisorTest, KillsAndRestartsWhatHangs) {
  options_.hang_after_s = 0.5;
  EXPECT_TRUE(run("save; echo $n >metrics.jsonl; [ $n = 2 ] || sleep 1000").is_success());
  EXPECT_EQ(runs(), 2);
  EXPECT_NE(restarts().at(0)["reason"].get<std::string>().find("hung"), std::string::npos);
}

TEST_F(SupervisorTest, PassesASignalOnAndThenIsDone) {
  std::atomic<int> signal{0};
  options_.stop_signal = &signal;
  std::thread stopper([&] {
    while (!exists(FileSystem::real(), folder_ / "ready")) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    signal = 15;
  });
  EXPECT_EQ(run("trap 'exit 5' TERM; touch ready; while :; do sleep 0.05; done").code, 5);
  stopper.join();
  EXPECT_EQ(runs(), 1);
}

// A launcher passes this one on, and kills its ranks at the others.
TEST_F(SupervisorTest, AsksALauncherToPassItOn) {
  std::atomic<int> signal{0};
  options_.stop_signal = &signal, options_.launcher_passes_on = 12;
  std::thread stopper([&] {
    while (!exists(FileSystem::real(), folder_ / "ready")) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    signal = 15;
  });
  EXPECT_TRUE(run("trap 'exit 5' TERM; trap 'exit 0' USR2; touch ready; while :; do sleep 0.05; done").is_success());
  stopper.join();
  EXPECT_EQ(runs(), 1);
}

TEST_F(SupervisorTest, LetsALauncherEndWhatHangs) {
  options_.hang_after_s = 0.3, options_.launcher_passes_on = 12;
  EXPECT_TRUE(run("[ $n = 1 ] || exit 0; save; trap 'touch ended; exit 5' TERM; echo $n >metrics.jsonl; "
                  "while :; do sleep 0.05; done")
                  .is_success());
  EXPECT_EQ(runs(), 2);
  EXPECT_TRUE(exists(FileSystem::real(), folder_ / "ended"));
  EXPECT_NE(restarts().at(0)["reason"].get<std::string>().find("hung"), std::string::npos);
}

TEST(ChildProcessTest, NamesAProgramThatIsNotThere) { EXPECT_THROW(ChildProcess({"/nonexistent/program"}), Error); }

}  // namespace
}  // namespace weft
