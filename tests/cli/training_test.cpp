// The commands end to end: train, resume bit by bit, evaluate, generate, inspect, tokenize.
#include <nlohmann/json.hpp>
#include <numbers>

#include "cli/program.h"

namespace weft {
namespace {

class TrainingCommandTest : public testing::Test {
 protected:
  TrainingCommandTest() {
    weft.write("r.toml", sample_recipe());
    weft.write("text.txt", sample_text());
  }
  std::vector<std::string> losses(const std::string& run) const { return losses_of(weft, run); }
  Program weft;
};

TEST_F(TrainingCommandTest, WhatWillNotFitIsRefusedBeforeItIsAllocated) {
  const Outcome out = weft.run("train r.toml --model.hidden=65536 --model.layers=64");
  EXPECT_EQ(out.status, 1);
  EXPECT_NE(out.err.find("the recipe does not fit: "), std::string::npos) << out.err;
  EXPECT_NE(out.err.find(" GiB, "), std::string::npos) << out.err;
  EXPECT_NE(out.err.find("more machines"), std::string::npos) << out.err;
  EXPECT_EQ(out.err.find("offloaded to the host"), std::string::npos) << out.err;
  const Outcome moved = weft.run("train r.toml --model.hidden=65536 --model.layers=64 --mesh.offload_optimizer=host");
  EXPECT_EQ(moved.status, 1);
  EXPECT_NE(moved.err.find("offloaded to the host "), std::string::npos) << moved.err;
}

TEST_F(TrainingCommandTest, TakesTheMeshThatThePlannerChooses) {
  const Outcome train = weft.run("train r.toml --train.steps=2 --mesh auto --json");
  ASSERT_EQ(train.status, 0) << train.err;
  EXPECT_NE(train.err.find("--mesh auto: "), std::string::npos) << train.err;
  EXPECT_EQ(nlohmann::json::parse(train.out)["steps"], 2);
}

TEST_F(TrainingCommandTest, MeasuresStepsInAnyPrecision) {
  for (const char* precision : {"fp32", "bf16", "fp16", "fp8"}) {
    const Outcome out = weft.run(
        fmt::format("bench train --shape tiny --seq-len 16 --steps 2 --threads 1 --precision {} --json", precision));
    ASSERT_EQ(out.status, 0) << out.err;
    const auto report = nlohmann::json::parse(out.out);
    EXPECT_EQ(report["precision"], precision);
    EXPECT_EQ(report["seq_len"], 16);
    const double step_s = report["step_ms"].get<double>() / 1e3;
    EXPECT_NEAR(report["tokens_per_s"].get<double>(), 4 * 16 / step_s, 1e-3 * 4 * 16 / step_s);
  }
}

TEST_F(TrainingCommandTest, TrainsEvaluatesAndGenerates) {
  const Outcome train = weft.run("train r.toml --train.steps=40 --mesh dp=2 --log.trace_steps=[2,3] --json");
  ASSERT_EQ(train.status, 0) << train.err;
  const auto report = nlohmann::json::parse(train.out);
  EXPECT_EQ(report["steps"], 40);
  EXPECT_LT(report["loss"].get<double>(), 0.8 * report["first_loss"].get<double>());
  EXPECT_NE(train.err.find("step 40/40"), std::string::npos) << train.err;
  EXPECT_EQ(losses("run").size(), 40u + 14u);

  const auto eval = nlohmann::json::parse(weft.run("eval run --data text.txt --json").out);
  EXPECT_GT(eval["loss"].get<double>(), 0);
  EXPECT_NEAR(eval["perplexity"].get<double>(), std::exp(eval["loss"].get<double>()), 1e-6);
  EXPECT_EQ(eval["tokens"], sample_text().size() - 1);
  EXPECT_EQ(eval["bytes"], sample_text().size() - 1) << "the first is predicted by nothing";
  EXPECT_NEAR(eval["bits_per_byte"].get<double>(), eval["loss"].get<double>() / std::numbers::ln2, 1e-9);

  const Outcome a = weft.run("generate run --prompt 'for (' --max-tokens 60 --seed 3 --json");
  const Outcome b = weft.run("generate run --prompt 'for (' --max-tokens 60 --seed 3 --json");
  ASSERT_EQ(a.status, 0) << a.err;
  EXPECT_EQ(nlohmann::json::parse(a.out)["text"], nlohmann::json::parse(b.out)["text"]);
  EXPECT_EQ(nlohmann::json::parse(a.out)["generated_tokens"], 60);

  const auto shown = nlohmann::json::parse(weft.run("inspect run --json").out);
  EXPECT_EQ(shown["step"], 40);
  EXPECT_TRUE(shown["valid"]);
  const auto trace = nlohmann::json::parse(weft.run("inspect run/trace.json --json").out);
  EXPECT_FALSE(trace["spans"].empty());
  const auto recipe = nlohmann::json::parse(weft.run("inspect r.toml --json").out);
  EXPECT_EQ(recipe["num_params"], shown["num_params"]);
  const Outcome ids = weft.shell(fmt::format("printf 'Az' | {} tokenize run --ids", WEFT_PROGRAM));
  EXPECT_EQ(ids.out, "65 122\n");
}

TEST_F(TrainingCommandTest, ResumesBitByBit) {
  ASSERT_EQ(weft.run("train r.toml --log.dir=whole --train.precision=bf16").status, 0);
  // As if the machine had stopped after step 3: what came later is gone.
  ASSERT_EQ(weft.run("train r.toml --log.dir=parts --train.precision=bf16 --checkpoint.keep=5").status, 0);
  ASSERT_EQ(weft.shell("rm -r parts/checkpoints/step-000006").status, 0);
  const Outcome resumed = weft.run("train r.toml --log.dir=parts --train.precision=bf16 --checkpoint.keep=5 --json");
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(nlohmann::json::parse(resumed.out)["first_step"], 3) << resumed.err;
  EXPECT_EQ(losses("whole"), losses("parts"));
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_EQ(weft.shell(fmt::format("cmp whole/checkpoints/step-000006/{0} parts/checkpoints/step-000006/{0}", file))
                  .status,
              0)
        << file;
}

// What would go on as another run is refused, by the key that differs, and not tried again.
TEST_F(TrainingCommandTest, GoesOnOnlyAsTheRunThatItWas) {
  ASSERT_EQ(weft.run("train r.toml --train.steps=3").status, 0);
  weft.write("other.txt", sample_text() + "more");
  for (const auto& [change, key] :
       std::vector<std::pair<std::string, std::string>>{{"--data.train=other.txt", "data.train"},
                                                        {"--data.valid_fraction=0.4", "data.valid_fraction"},
                                                        {"--data.documents=true", "data.documents"},
                                                        {"--train.seq_len=8", "train.seq_len"},
                                                        {"--train.seed=5", "train.seed"},
                                                        {"--model.layers=1", "model.layers"},
                                                        {"--model.rope_theta=500", "model.rope_theta"},
                                                        {"--model.norm_eps=0.1", "model.norm_eps"},
                                                        {"--model.window=4", "model.window"},
                                                        {"--optimizer.name=lion", "optimizer"},
                                                        {"--checkpoint.resume=nosuch", "checkpoint.resume"}}) {
    const Outcome o = weft.run("train r.toml --restarts 2 --restart-pause 0.1 " + change);
    EXPECT_EQ(o.status, 2) << change << ": " << o.err;
    EXPECT_NE(o.err.find(key), std::string::npos) << change << ": " << o.err;
    EXPECT_FALSE(std::filesystem::exists(weft.path("run/restarts.jsonl"))) << change;
  }
  const Outcome moved = weft.shell("mkdir elsewhere && cp text.txt elsewhere/same.txt");
  EXPECT_EQ(weft.run("train r.toml --data.train=elsewhere/same.txt --train.aux_loss=0").status, 2);  // no such key
  const Outcome same = weft.run("train r.toml --data.train=elsewhere/same.txt --model.context=64 --json");
  ASSERT_EQ(same.status, 0) << same.err;
  EXPECT_EQ(nlohmann::json::parse(same.out)["first_step"], 3);
  const auto nothing_left = nlohmann::json::parse(weft.run("train r.toml --model.context=64 --json").out);
  for (const char* key : {"loss", "first_loss", "tokens_per_s"}) EXPECT_TRUE(nothing_left[key].is_null()) << key;
}

// What is validated is a matter of the recipe, not of how its ranks and micro-batches share it.
TEST_F(TrainingCommandTest, ValidatesTheSameRowsOnEveryMesh) {
  std::vector<double> found;
  for (const char* change :
       {"--train.micro_batch=4", "--train.micro_batch=1", "--mesh.dp=2", "--mesh.pp=2 --mesh.dp=2"}) {
    const Outcome o = weft.run(fmt::format(
        "train r.toml --train.steps=1 --train.eval_batches=2 --data.valid_fraction=0.5 --log.dir={} --json {}",
        found.size(), change));
    ASSERT_EQ(o.status, 0) << o.err;
    const auto report = nlohmann::json::parse(o.out);
    EXPECT_GT(report["tokens_per_s"].get<double>(), 0);
    found.push_back(report["eval_loss"].get<double>());
    EXPECT_NEAR(found.back(), found.front(), 1e-5) << change;
  }
}

TEST_F(TrainingCommandTest, ABatchThatDoesNotFitIsToldInWhatWasWritten) {
  for (const auto& [change, told] : std::vector<std::pair<std::string, std::string>>{
           {"--train.micro_batch=3", "no multiple of micro_batch 3 x dp 1"},
           {"--train.micro_batch=1 --train.accumulation=3", "not micro_batch 1 x dp 1 x accumulation 3"},
           {"--train.accumulation=3", "no multiple of dp 1 x accumulation 3"},
           {"--model.family=lama", "llama"}}) {
    const Outcome o = weft.run("train r.toml " + change);
    EXPECT_EQ(o.status, 2) << change;
    EXPECT_NE(o.err.find(told), std::string::npos) << change << ": " << o.err;
  }
}

TEST_F(TrainingCommandTest, ADamagedCheckpointIsNamedAndTheOlderOneUsed) {
  ASSERT_EQ(weft.run("train r.toml").status, 0);
  ASSERT_EQ(
      weft.shell("printf x | dd of=run/checkpoints/step-000006/model.safetensors bs=1 seek=5000 conv=notrunc").status,
      0);
  const Outcome inspected = weft.run("inspect run/checkpoints/step-000006");
  EXPECT_EQ(inspected.status, 1);
  EXPECT_NE((inspected.out + inspected.err).find("model.safetensors"), std::string::npos) << inspected.out;
  const Outcome resumed = weft.run("train r.toml --json");
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("step-000006"), std::string::npos) << resumed.err;
  EXPECT_EQ(nlohmann::json::parse(resumed.out)["first_step"], 3);
}

TEST_F(TrainingCommandTest, ADamagedTokenFileIsNamed) {
  ASSERT_EQ(weft.run("train r.toml").status, 0);
  ASSERT_EQ(weft.shell("for f in run/data/*.tok; do printf xyz | dd of=$f bs=1 seek=1000 conv=notrunc; done").status,
            0);
  const Outcome o = weft.run("train r.toml --train.steps=12");
  EXPECT_EQ(o.status, 1) << o.err;
  EXPECT_NE(o.err.find(".tok"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("delete"), std::string::npos) << o.err;
}

TEST_F(TrainingCommandTest, ChatsOnAnyMesh) {
  ASSERT_EQ(weft.run("train r.toml").status, 0);
  weft.write("t.jinja", "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}\n{% endfor %}a:");
  const auto chat = [&](const std::string& options) {
    return weft.shell(
        fmt::format("printf 'for\\n\\nsum\\n/clear\\nfor\\n' | {} chat run --temperature 0 --max-tokens 8 {}",
                    WEFT_PROGRAM, options));
  };
  const Outcome one = chat("--template t.jinja --json"), many = chat("--template t.jinja --json --mesh tp=2,pp=2");
  ASSERT_EQ(one.status, 0) << one.err;
  EXPECT_EQ(one.out, many.out) << many.err;
  std::istringstream lines(one.out);
  std::vector<nlohmann::json> answers;
  for (std::string line; std::getline(lines, line);) answers.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(answers.size(), 3u) << "an empty line is nothing said";
  EXPECT_EQ(answers[0]["prompt_tokens"], 8);  // "u:for\na:"
  EXPECT_GT(answers[1]["prompt_tokens"], 16) << "the second answer follows the first";
  EXPECT_EQ(answers[2], answers[0]) << "/clear begins anew";
  const Outcome none = chat("");
  EXPECT_EQ(none.status, 1);
  EXPECT_NE(none.err.find("--template"), std::string::npos) << none.err;
}

TEST_F(TrainingCommandTest, ASignalSavesAndEnds) {
  const Outcome o = weft.interrupt(
      "train r.toml --train.steps=100000000 --optimizer.lr=1e-4 --train.eval_every=0 --checkpoint.every=0 --json",
      "run/metrics.jsonl", "\"step\":20,");
  const auto report = nlohmann::json::parse(o.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << o.err;
  EXPECT_TRUE(report["interrupted"]);
  EXPECT_EQ(weft.run("inspect run").status, 0);
}

// A text that takes minutes to read.
TEST_F(TrainingCommandTest, ASignalDuringValidationSavesAndEnds) {
  weft.shell("yes \"$(cat text.txt)\" | head -c 30000000 > long.txt");
  const Outcome o = weft.interrupt(
      "train r.toml --mesh dp=2 --data.train=long.txt --data.valid_fraction=0.9 --train.steps=1 --json",
      "run/metrics.jsonl", "\"step\":1,");
  const auto report = nlohmann::json::parse(o.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << o.err;
  EXPECT_TRUE(report["interrupted"]);
  EXPECT_EQ(report["steps"], 1);
  EXPECT_EQ(weft.run("inspect run").status, 0);
}

}  // namespace
}  // namespace weft
