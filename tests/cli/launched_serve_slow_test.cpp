// The server under mpirun: replicas are ranks of one job behind one address, and answer as one rank does.
#include <future>

#include "cli/served_program.h"

namespace weft {
namespace {

struct Launched {
  const char* name;
  const char* mesh;
  int ranks;
  int driver = 0;  // of the first replica
};
void PrintTo(const Launched& c, std::ostream* out) { *out << c.name; }

std::vector<std::string> mpirun(int ranks) {
  return {"mpirun", "--oversubscribe", "--bind-to", "none", "-n", std::to_string(ranks)};
}

class LaunchedServeTest : public ServeTest, public testing::WithParamInterface<Launched> {
 protected:
  // Of texts that begin in different ways, asked all at once, so that replicas share them.
  static std::vector<std::string> texts_of(int port, const std::string& model) {
    std::vector<std::future<std::string>> asked;
    for (int i = 0; i < 16; ++i)
      asked.push_back(std::async(std::launch::async, [=] { return text_of(port, model, fmt::format("{} is", i)); }));
    std::vector<std::string> texts;
    for (auto& one : asked) texts.push_back(one.get());
    return texts;
  }
  static double metric(int port, const std::string& name) {
    const std::string text = bench::HttpClient("127.0.0.1", port).request("GET", "/metrics", "").body;
    const size_t line = text.find("\n" + name + "{");
    const size_t value = line == text.npos ? text.npos : text.find("} ", line);
    return value == text.npos ? -1 : std::stod(text.substr(value + 2));
  }
};

TEST_P(LaunchedServeTest, ReplicasOfAJobAnswerAsOneRank) {
  if (program_.shell("command -v mpirun").status != 0) GTEST_SKIP() << "there is no mpirun";
  const Launched& c = GetParam();
  const std::vector<std::string> model{program_.path("run"), "--served-model-name", "run", "--lora-dir",
                                       program_.path("adapters")};
  ServedProgram one(program_, model);
  ASSERT_GT(one.port(), 0) << one.said();
  const std::vector<std::string> want = texts_of(one.port(), "run");
  const double tokens = metric(one.port(), "vllm:generation_tokens_total");
  EXPECT_GT(tokens, 16 * 16);
  EXPECT_EQ(one.stop(), 0) << one.said();

  std::vector<std::string> arguments = model;
  arguments.insert(arguments.end(), {"--mesh", c.mesh});
  ServedProgram job(program_, arguments, mpirun(c.ranks));
  const int port = job.port();
  ASSERT_GT(port, 0) << job.said();
  EXPECT_EQ(texts_of(port, "run"), want);
  EXPECT_EQ(metric(port, "vllm:generation_tokens_total"), tokens);
  std::vector<std::future<bench::HttpResult>> chosen;
  for (int i = 0; i < 8; ++i) {
    chosen.push_back(std::async(std::launch::async, [=] {
      const nlohmann::json body = {
          {"model", "run"}, {"prompt", fmt::format("{} is", i)}, {"max_tokens", 8}, {"guided_choice", {"yes"}}};
      return post(port, "/v1/completions", body);
    }));
  }
  for (auto& result : chosen) EXPECT_EQ(nlohmann::json::parse(result.get().body)["choices"][0]["text"], "yes");
  EXPECT_EQ(post(port, "/v1/load_lora_adapter", {{"lora_name", "law"}}).status, 200);
  EXPECT_NE(texts_of(port, "law"), want);
  EXPECT_EQ(job.stop(c.driver), 0) << job.said();
}

TEST_F(ServeTest, StartsItsRanksOnHosts) {
  if (program_.shell("command -v mpirun").status != 0) GTEST_SKIP() << "there is no mpirun";
  const std::vector<std::string> model{program_.path("run"), "--served-model-name", "run"};
  ServedProgram one(program_, model);
  ASSERT_GT(one.port(), 0) << one.said();
  const std::string want = text_of(one.port(), "run", "It is");
  EXPECT_EQ(one.stop(), 0) << one.said();
  std::vector<std::string> spread = model;
  spread.insert(spread.end(), {"--mesh", "tp=2", "--hosts", "localhost:2"});
  ServedProgram job(program_, spread);
  ASSERT_GT(job.port(), 0) << job.said();
  EXPECT_EQ(text_of(job.port(), "run", "It is"), want);
  // A request under way when the launcher gets the signal is answered.
  std::future<std::string> last =
      std::async(std::launch::async, [port = job.port()] { return text_of(port, "run", "And so"); });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(job.stop(), 0) << job.said();
  EXPECT_NE(last.get(), "");
  for (const char* wrong : {"--mesh tp=2 --hosts localhost:3", "--mesh auto --hosts localhost:2"})
    EXPECT_EQ(program_.run(fmt::format("serve {} {}", program_.path("run"), wrong)).status, 2) << wrong;
}

INSTANTIATE_TEST_SUITE_P(Meshes, LaunchedServeTest,
                         testing::Values(Launched{"Dp2", "dp=2", 2}, Launched{"Dp2Tp2", "dp=2,tp=2", 4},
                                         Launched{"Dp2Pp2", "dp=2,pp=2", 4, 1}),
                         [](const auto& one) { return std::string(one.param.name); });

// The file with the weights that a process reads anew for each step.
int spoil_far_weights(pid_t process, const std::string& folder) {
  int count = 0;
  for (const auto& file : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", process))) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(file.path(), error);
    if (!error && target.starts_with(folder)) count += ::truncate(file.path().c_str(), 0) == 0;
  }
  return count;
}

class LaunchedFailureTest : public ServeTest {
 protected:
  // Two replicas with layers beyond memory, of which those of a rank of the second come no more.
  std::unique_ptr<ServedProgram> spoiled(const std::string& mesh, int ranks, const std::string& limit) {
    EXPECT_EQ(
        program_.run("train base.toml --model.layers=8 --model.hidden=128 --model.ffn=256 --log.dir=deep").status, 0);
    const std::string far = program_.path("far");
    auto job = std::make_unique<ServedProgram>(
        program_,
        std::vector<std::string>{program_.path("deep"), "--served-model-name", "deep", "--tokens-per-step", "16",
                                 "--memory-limit", limit, "--device-map", "auto", "--far-dir", far, "--mesh", mesh},
        mpirun(ranks));
    EXPECT_GT(job->port(), 0) << job->said();
    EXPECT_EQ(spoil_far_weights(job->process_of(ranks / 2), far), 1) << job->said();
    return job;
  }
  // What is told instead of an answer, to those of 16 requests at once that get none.
  static std::vector<std::string> refusals(int port) {
    std::vector<std::future<bench::HttpResult>> asked;
    for (int i = 0; i < 16; ++i)
      asked.push_back(std::async(std::launch::async, [=] {
        return post(port, "/v1/completions", {{"model", "deep"}, {"prompt", fmt::format("{} is", i)}});
      }));
    std::vector<std::string> told;
    for (auto& one : asked) {
      const bench::HttpResult result = one.get();
      if (result.status != 200) told.push_back(result.body);
    }
    return told;
  }
};

TEST_F(LaunchedFailureTest, AReplicaOfOneRankLeavesTheOthersAtWork) {
  if (program_.shell("command -v mpirun").status != 0) GTEST_SKIP() << "there is no mpirun";
  const auto job = spoiled("dp=2", 2, "10MiB");
  const std::vector<std::string> told = refusals(job->port());
  EXPECT_FALSE(told.empty()) << "the other replica had none";
  for (const std::string& one : told) EXPECT_NE(one.find("cannot read"), std::string::npos) << one;
  EXPECT_TRUE(refusals(job->port()).empty());
  EXPECT_NE(job->said().find("replica 1 ended: cannot read"), std::string::npos) << job->said();
  EXPECT_EQ(job->stop(), 0) << job->said();
}

TEST_F(LaunchedFailureTest, AReplicaOfSeveralRanksEndsTheJob) {
  if (program_.shell("command -v mpirun").status != 0) GTEST_SKIP() << "there is no mpirun";
  const auto job = spoiled("dp=2,tp=2", 4, "11MiB");
  try {
    EXPECT_FALSE(refusals(job->port()).empty());
  } catch (const Error&) {  // the one that listens may be gone as soon
  }
  for (int i = 0; i < 500 && job->said().find("rank 2: cannot read") == std::string::npos; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(job->stop(), 1) << job->said();
  EXPECT_NE(job->said().find("rank 2: cannot read"), std::string::npos);
}

using LaunchedRefusalTest = ServeTest;

TEST_F(LaunchedRefusalTest, SaysThatTheRanksDoNotFit) {
  if (program_.shell("command -v mpirun").status != 0) GTEST_SKIP() << "there is no mpirun";
  const Outcome o =
      program_.shell(fmt::format("mpirun --oversubscribe -n 3 {} serve run --port 0 --mesh dp=2", WEFT_PROGRAM));
  EXPECT_NE(o.status, 0);
  EXPECT_NE(o.err.find("the mesh has 2 ranks, but the launcher started 3"), std::string::npos) << o.err;
}

TEST_F(LaunchedRefusalTest, CountsTheMemoryOfAllReplicas) {
  if (program_.shell("command -v mpirun").status != 0) GTEST_SKIP() << "there is no mpirun";
  ServedProgram one(program_, {program_.path("run"), "--tokens-per-step", "16", "--memory-limit", "2MiB"});
  EXPECT_GT(one.port(), 0) << one.said();
  const Outcome two = program_.shell(
      fmt::format("mpirun --oversubscribe -n 2 {} serve run --port 0 --kv-cache 1MiB --tokens-per-step 16 "
                  "--memory-limit 2MiB --mesh dp=2",
                  WEFT_PROGRAM));
  EXPECT_EQ(two.status, 1);
  EXPECT_NE(two.err.find("does not fit"), std::string::npos) << two.err;
}

}  // namespace
}  // namespace weft
