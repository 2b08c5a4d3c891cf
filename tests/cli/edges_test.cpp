// The edges of commands: full disks, pipes as files, conversations that are full, runs that were stopped, and folders
// that hold something else.
#include "cli/program.h"

namespace weft {
namespace {

class EdgesTest : public testing::Test {
 protected:
  EdgesTest() {
    weft.write("r.toml", sample_recipe());
    weft.write("text.txt", sample_text());
  }
  // One that has seen next to nothing, with little context, in "run".
  void train() const {
    const Outcome o = weft.run("train r.toml --train.steps=1 --model.context=64");
    ASSERT_EQ(o.status, 0) << o.err;
  }
  static void expect_says(const Outcome& o, int status, const std::string& what) {
    EXPECT_EQ(o.status, status) << o.err;
    EXPECT_NE(o.err.find(what), std::string::npos) << what << " in: " << o.err;
  }
  Program weft;
};

TEST_F(EdgesTest, OutputThatIsLostIsAFailure) {
  for (const char* command : {"--version", "--help", "inspect r.toml --json", "inspect r.toml"})
    expect_says(weft.run(std::string(command) + " >/dev/full"), 1, "weft: standard output was not written");
  EXPECT_EQ(weft.run("--version").status, 0);
}

TEST_F(EdgesTest, ALimitOnTheSizeOfFilesIsSaid) {
  const Outcome o =
      weft.shell(fmt::format("ulimit -f 4; {} tokenize new.json --train-bpe 400 --from text.txt", WEFT_PROGRAM));
  expect_says(o, 1, "File too large");
  EXPECT_NE(o.err.find("new.json"), std::string::npos) << o.err;
}

TEST_F(EdgesTest, HelpIsAWordToo) {
  for (const auto& [asked, same] : {std::pair{"help", "--help"},
                                    {"help generate", "generate --help"},
                                    {"help bench train", "bench train --help"}}) {
    const Outcome help = weft.run(asked), option = weft.run(same);
    EXPECT_EQ(help.status, 0) << help.err;
    EXPECT_EQ(help.out, option.out);
  }
  const std::string help = weft.run("help generate").out;
  for (const char* form : {".gguf", "random:PRESET"}) EXPECT_NE(help.find(form), std::string::npos) << help;
}

TEST_F(EdgesTest, APipeIsAFileToRead) {
  train();
  const std::string options = "--max-tokens 5 --temperature 0 --mesh tp=2 --json";
  const Outcome text = weft.run("generate run --prompt 'for (' " + options);
  const std::string generate = fmt::format("printf 'for (' | {} generate run {}", WEFT_PROGRAM, options);
  const Outcome pipe = weft.shell(generate + " --prompt-file /dev/stdin");
  ASSERT_EQ(pipe.status, 0) << pipe.err;
  EXPECT_EQ(nlohmann::json::parse(pipe.out)["ids"], nlohmann::json::parse(text.out)["ids"]);
  const Outcome ids =
      weft.shell(fmt::format("printf '1,2,3' | {} logits run --ids-file /dev/stdin --json", WEFT_PROGRAM));
  EXPECT_EQ(ids.status, 0) << ids.err;
  EXPECT_EQ(ids.out, weft.run("logits run --ids 1,2,3 --json").out);
}

TEST_F(EdgesTest, WhatNoTokensAreIsRefused) {
  train();
  for (const char* ids : {"1,,2", "1, ,2", ",1", "1,2,"})
    expect_says(weft.run(fmt::format("generate run --ids '{}'", ids)), 2, "--ids: a comma has no token beside it");
  for (const char* ids : {"1,2", "1 2", "[1, 2]"})
    EXPECT_EQ(weft.run(fmt::format("generate run --max-tokens 1 --ids '{}'", ids)).status, 0) << ids;
  const auto decode = [&](const char* ids) {
    return weft.shell(fmt::format("printf '%s' '{}' | {} tokenize byte --decode", ids, WEFT_PROGRAM));
  };
  for (const char* ids : {"97,,98", ",97", "97,"}) expect_says(decode(ids), 2, "--decode: a comma has no token");
  expect_says(decode("97 x"), 2, "--decode: x is no token");
  for (const char* ids : {"97,98", "97 98\n", "[97, 98]"}) EXPECT_EQ(decode(ids).out, "ab") << ids;
}

TEST_F(EdgesTest, AMeshThatDoesNotFitIsRefusedWithoutARank) {
  train();
  expect_says(weft.run("generate run --prompt x --mesh tp=8"), 2, "weft: --mesh tp=8");
}

TEST_F(EdgesTest, AFullConversationGoesOnAfterClear) {
  train();
  weft.write("t.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
  const Outcome o = weft.shell(fmt::format(
      "printf '{}\\nhi\\n/clear\\nho\\n' | {} chat run --template t.jinja --max-tokens 4 --json --mesh tp=2",
      std::string(100, 'x'), WEFT_PROGRAM));
  expect_says(o, 0, "the conversation is full");
  EXPECT_NE(o.err.find("/clear"), std::string::npos) << o.err;
  std::istringstream lines(o.out);
  std::vector<nlohmann::json> said;
  for (std::string line; std::getline(lines, line);) said.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(said.size(), 3) << o.out;
  EXPECT_EQ(said[0]["error"], "context_full");
  EXPECT_EQ(said[1]["prompt_tokens"], 2) << "what did not fit is not part of it";
  EXPECT_EQ(said[2]["prompt_tokens"], 2);
}

TEST_F(EdgesTest, AStoppedRunSaysWhereItStopped) {
  const Outcome o = weft.interrupt(
      "train r.toml --train.steps=100000000 --optimizer.lr=1e-4 --train.eval_every=0 --checkpoint.every=0",
      "run/metrics.jsonl", "\"step\":20,");
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_TRUE(o.out.starts_with("stopped by SIGINT at step ")) << o.out;
  EXPECT_NE(o.out.find(" of 100000000: "), std::string::npos) << o.out;
}

TEST_F(EdgesTest, AResumedRunIsRefusedByTheKeyThatWasWritten) {
  train();
  weft.write("tune.toml", R"([model]
path = "run"
[lora]
rank = 4
[data]
train = "text.txt"
[train]
steps = 1
seq_len = 32
global_batch = 8
[log]
dir = "tuned"
)");
  ASSERT_EQ(weft.run("train tune.toml").status, 0);
  expect_says(weft.run("train tune.toml --lora.rank=8"), 2, "lora.rank");
}

TEST_F(EdgesTest, AFolderWithoutAModelIsToldByWhatItHolds) {
  ASSERT_EQ(
      weft.shell("mkdir peft other none && echo '{}' > peft/adapter_config.json && touch other/notes.txt").status, 0);
  for (const char* command : {"inspect", "generate --prompt x"}) {
    expect_says(weft.run(fmt::format("{} peft", command)), 2, "PEFT");
    expect_says(weft.run(fmt::format("{} other", command)), 2, "notes.txt");
    expect_says(weft.run(fmt::format("{} none", command)), 2, "none is empty");
  }
}

}  // namespace
}  // namespace weft
