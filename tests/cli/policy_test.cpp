// weft train with [rl]: a model learns what it is rewarded for, on ranks, and goes on where it was.
#include <nlohmann/json.hpp>

#include "cli/program.h"

namespace weft {
namespace {

using Json = nlohmann::json;

class PolicyCommandTest : public testing::Test {
 protected:
  PolicyCommandTest() {
    std::string recipe = sample_recipe();
    recipe.replace(recipe.find("text.txt"), 8, "asked.jsonl");
    recipe +=
        "[rl]\nreward = \"command\"\ncommand = [\"sh\", \"-c\", \"while read -r line; do echo ${#line}; done\"]\n"
        "answers = 4\nmax_tokens = 12\n";
    weft.write("r.toml", recipe);
    std::string asked;
    for (int i = 0; i < 5; ++i) asked += fmt::format("{{\"prompt\": \"p{}=\", \"answer\": \"{}\"}}\n", i, i);
    weft.write("asked.jsonl", asked);
  }
  std::vector<Json> metrics(const std::string& run) const {
    std::vector<Json> lines;
    std::istringstream text(weft.read_file(run + "/metrics.jsonl"));
    for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
    return lines;
  }
  Program weft;
};

TEST_F(PolicyCommandTest, LearnsFromItsAnswersOnRanks) {
  const Outcome train = weft.run("train r.toml --mesh dp=2 --data.valid=asked.jsonl --rl.beta=0 --json");
  ASSERT_EQ(train.status, 0) << train.err;
  const Json report = Json::parse(train.out);
  EXPECT_EQ(report["steps"], 6);
  EXPECT_GT(report["reward"].get<double>(), 30);
  EXPECT_GT(report["eval_reward"].get<double>(), 30);
  EXPECT_TRUE(report["eval_loss"].is_null());
  EXPECT_NE(train.err.find("5 prompts; 0 are left out"), std::string::npos) << train.err;
  EXPECT_NE(train.err.find("validation reward "), std::string::npos) << train.err;
  int steps = 0, evaluations = 0;
  for (const Json& line : metrics("run")) {
    evaluations += line.contains("eval_reward");
    if (!line.contains("reward")) continue;
    ++steps;
    EXPECT_LT(line["gap"].get<double>(), 1e-5) << line;
    EXPECT_GT(line["answer_tokens"].get<double>(), 1);
    EXPECT_LE(line["answer_tokens"].get<double>(), 12);
    EXPECT_FALSE(line.contains("kl"));
  }
  EXPECT_EQ(steps, 6);
  EXPECT_EQ(evaluations, 2);
  // Eight answers of each round, as they are read.
  std::istringstream answers(weft.read_file("run/answers.jsonl"));
  int shown = 0;
  for (std::string line; std::getline(answers, line); ++shown) {
    const Json answer = Json::parse(line);
    EXPECT_EQ(answer["step"], shown / 8 + 1);
    EXPECT_TRUE(answer["prompt"].get<std::string>().starts_with("p")) << line;
    EXPECT_EQ(answer["cut"], answer["tokens"].back() != 256) << line;
    EXPECT_GT(answer["reward"].get<double>(), 30);
  }
  EXPECT_EQ(shown, 48);
  const Outcome generated = weft.run("generate run --prompt p1= --max-tokens 4 --json");
  EXPECT_EQ(generated.status, 0) << generated.err;
}

// What was learned is measured: every answer of the trained model has the letter, on any mesh alike.
TEST_F(PolicyCommandTest, QuestionsMeasureAModel) {
  std::string asked;
  for (int i = 0; i < 5; ++i) asked += fmt::format("{{\"prompt\": \"p{}=\", \"answer\": \"e\"}}\n", i);
  weft.write("letters.jsonl", asked);
  weft.write("letters.toml", sample_recipe() + "[rl]\nreward = \"contains\"\nanswers = 16\nmax_tokens = 12\n");
  const Outcome train = weft.run(
      "train letters.toml --data.train=letters.jsonl --train.steps=25 --checkpoint.every=1 --checkpoint.keep=0 "
      "--train.global_batch=48 --optimizer.lr=1e-2 "
      "--json");
  ASSERT_EQ(train.status, 0) << train.err;
  const std::string questions = "--questions letters.jsonl --reward contains --max-tokens 12 --json ";
  const auto measured = [&](const std::string& arguments) {
    const Outcome o = weft.run("eval " + arguments + " " + questions);
    EXPECT_EQ(o.status, 0) << o.err;
    return Json::parse(o.out);
  };
  const Json before = measured("run/checkpoints/step-000001"), after = measured("run");
  EXPECT_LT(before["reward"].get<double>(), 0.5);
  EXPECT_GT(after["reward"].get<double>(), 0.9);
  EXPECT_EQ(after["questions"], 5);
  const Json several = measured("run --samples 4 --temperature 1 --seed 3 --answers all.jsonl");
  const Json cut = measured("run --samples 4 --temperature 1 --seed 3 --mesh tp=2 --running 3");
  EXPECT_EQ(several["reward"], cut["reward"]);
  EXPECT_EQ(several["answer_tokens"], cut["answer_tokens"]);
  EXPECT_GE(several["best_reward"].get<double>(), several["reward"].get<double>());
  std::istringstream lines(weft.read_file("all.jsonl"));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const Json answer = Json::parse(line);
    EXPECT_EQ(answer["example"]["prompt"], fmt::format("p{}=", count / 4));
    EXPECT_EQ(answer["reward"] == 1, answer["completion"].get<std::string>().find('e') != std::string::npos);
  }
  EXPECT_EQ(count, 20);
  for (const char* wrong : {"eval run", "eval run --questions letters.jsonl --reward best",
                            "eval run --questions letters.jsonl --reward command",
                            "eval run --questions letters.jsonl --data letters.jsonl"})
    EXPECT_EQ(weft.run(wrong).status, 2) << wrong;
}

TEST_F(PolicyCommandTest, ResumesBitByBit) {
  ASSERT_EQ(weft.run("train r.toml --log.dir=whole").status, 0);
  ASSERT_EQ(weft.run("train r.toml --log.dir=parts").status, 0);
  ASSERT_EQ(weft.shell("rm -r parts/checkpoints/step-000006").status, 0);
  const Outcome resumed = weft.run("train r.toml --log.dir=parts --json");
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(Json::parse(resumed.out)["first_step"], 3) << resumed.err;
  EXPECT_EQ(
      weft.shell(
              "cmp whole/checkpoints/step-000006/model.safetensors parts/checkpoints/step-000006/model.safetensors")
          .status,
      0);
  EXPECT_EQ(weft.shell("cmp whole/answers.jsonl parts/answers.jsonl").status, 0);
}

// Within a round that would take minutes.
TEST_F(PolicyCommandTest, ASignalDuringAnswersEnds) {
  const Outcome o = weft.interrupt(
      "train r.toml --mesh dp=2 --model.hidden=256 --model.layers=6 --model.ffn=1024 --train.seq_len=4096 "
      "--train.global_batch=64 --train.micro_batch=1 --rl.max_tokens=4000 --json",
      "stderr", "prompts; 0 are left out");
  const Json report = Json::parse(o.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << o.err;
  EXPECT_TRUE(report["interrupted"]);
  EXPECT_EQ(report["steps"], 0);
  EXPECT_TRUE(report["reward"].is_null());
}

TEST_F(PolicyCommandTest, WhatIsWrongIsSaid) {
  struct Case {
    const char *more, *what;
    int status;
  };
  for (const Case& c : {
           Case{"--rl.answers=3", "rl.answers = 3: it must divide train.global_batch x rl.updates = 8", 2},
           Case{"--rl.beta=0.1", "rl.beta = 0.1: there is no model that answers could stay near", 2},
           Case{"--rl.max_tokens=33", "rl.max_tokens", 2},
           Case{"--rl.max_tokens=31", "none of 5 prompts has at most 2 tokens", 2},
           Case{"--data.valid_fraction=0.1", "prompts are not cut off data.train", 2},
           Case{"--rl.command=[\\\"false\\\"]", "the reward program [\"false\"]: it ended (exit status 1)", 1},
           Case{"--preference.beta=0.1", "a run has one objective", 2},
           Case{"--model.hidden=2048 --model.layers=24 --train.seq_len=8192 --rl.max_tokens=4096 "
                "--train.global_batch=4096 --train.micro_batch=1 --mesh.recompute=block --rl.running=4096",
                "while answers are made ", 1},
       }) {
    const Outcome out = weft.run(fmt::format("train r.toml --log.dir=other {}", c.more));
    EXPECT_EQ(out.status, c.status) << c.more << out.err;
    EXPECT_NE(out.err.find(c.what), std::string::npos) << c.more << "\n" << out.err;
  }
  weft.write("asked.jsonl", "{\"prompt\": \"p\"}\n");
  weft.write("plain.toml", sample_recipe() + "[rl]\nanswers = 4\n");
  const Outcome lacks = weft.run("train plain.toml --data.train=asked.jsonl");
  EXPECT_EQ(lacks.status, 2) << lacks.err;
  EXPECT_NE(lacks.err.find("has no \"answer\""), std::string::npos) << lacks.err;
}

}  // namespace
}  // namespace weft
