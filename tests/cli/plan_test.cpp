// weft plan as a user runs it: recipes that are planned, and other programs' configurations.
#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "support/xml_problem.h"

namespace weft {
namespace {

const std::string kImports = std::string(WEFT_SOURCE_DIR) + "/tests/plan/data/imports/";

TEST(PlanTest, APlannedRecipeTrainsOnWhatItsUserWrote) {
  const Program weft;
  weft.write("text.txt", sample_text());
  weft.write("mine.toml", sample_recipe() + "[lora]\nrank = 2\n");
  const Outcome plan = weft.run("plan mine.toml --cluster 2xh100-sxm --mesh dp=2,zero=2 --recipe out.toml");
  EXPECT_EQ(plan.status, 2);  // the vocabulary depends on the text
  std::string recipe = weft.read_file("mine.toml");
  recipe.replace(recipe.find("ffn = 64"), 8, "ffn = 64\nvocab = 512");
  weft.write("mine.toml", recipe);
  const Outcome again = weft.run("plan mine.toml --cluster 2xh100-sxm --mesh dp=2,zero=2 --recipe out.toml");
  ASSERT_EQ(again.status, 0) << again.err;
  const std::string planned = weft.read_file("out.toml");
  for (const char* line :
       {"zero = 2\n", "dp = 2\n", "[lora]\nrank = 2\n", "lr = 0.003\n", "every = 3\n", "steps = 6\n"})
    EXPECT_NE(planned.find(line), std::string::npos) << line << planned;
  EXPECT_EQ(weft.run("train out.toml").status, 0);
}

// What a recipe says of numbers, the command line may say otherwise; what is written says it too.
TEST(PlanTest, NumbersOfARecipeAreOverridden) {
  const Program weft;
  std::string recipe = sample_recipe();
  recipe.replace(recipe.find("ffn = 64"), 8, "ffn = 64\nvocab = 512");
  weft.write("mine.toml", recipe);
  const auto bytes = [&](const std::string& options) {
    const Outcome plan = weft.run("plan mine.toml --cluster 1xh100-sxm --mesh dp=1 --json " + options);
    EXPECT_EQ(plan.status, 0) << plan.err;
    return nlohmann::json::parse(plan.out)["peak"]["gradients"].get<int64_t>();
  };
  const int64_t wide = bytes("--precision bf16");
  EXPECT_GT(wide, 0);
  EXPECT_LT(bytes("--precision bf16 --gradients bf16 --recipe out.toml"), wide);
  const std::string written = weft.read_file("out.toml");
  for (const char* line : {"precision = \"bf16\"\n", "gradients = \"bf16\"\n"})
    EXPECT_NE(written.find(line), std::string::npos) << line << written;
  const Outcome refused =
      weft.run("plan mine.toml --cluster 1xh100-sxm --mesh dp=1 --precision fp32 --gradients bf16");
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("train.gradients"), std::string::npos) << refused.err;
}

// One file that is whole by itself.
void expect_whole(const std::string& page, bool is_svg) {
  EXPECT_EQ(xml_problem(page), "");
  EXPECT_NE(page.find(is_svg ? "<svg" : "<!DOCTYPE html>"), std::string::npos);
  std::string own = page;
  const std::string space = "xmlns=\"http://www.w3.org/2000/svg\"";  // a name, which nothing loads
  if (is_svg) own.erase(own.find(space), space.size());
  for (const char* outside : {"http:", "https:", "src=", "href=", "url(", "@import"})
    EXPECT_EQ(own.find(outside), std::string::npos) << outside;
}

TEST(PlanTest, PicturesAreOneFileEach) {
  const Program weft;
  const Outcome plan = weft.run(
      "plan llama-1b --cluster 8xh100-sxm --seq-len 2048 --global-batch 64 --mesh pp=2,dp=4,zero=1 "
      "--report plan.html --svg plan.svg --scaling-time 0 --timeline step.json");
  ASSERT_EQ(plan.status, 0) << plan.err;
  expect_whole(weft.read_file("plan.html"), false);
  expect_whole(weft.read_file("plan.svg"), true);
  const Outcome view = weft.run("plan --view step.json --report run.html --svg run.svg");
  ASSERT_EQ(view.status, 0) << view.err;
  expect_whole(weft.read_file("run.html"), false);
  expect_whole(weft.read_file("run.svg"), true);
  EXPECT_EQ(weft.shell("LC_ALL=C ls").out, "plan.html\nplan.svg\nrun.html\nrun.svg\nstderr\nstdout\nstep.json\n");
}

// Of what does not fit, the report says what is missing and what comes nearest.
TEST(PlanTest, ReportsOfWhatDoesNotFit) {
  const Program weft;
  const std::string plan = "plan llama-7b --seq-len 2048 --global-batch 8 --scaling-time 0 --report ";
  const Outcome none = weft.run(plan + "none.html --cluster 1xrtx4090 --recipe none.toml");
  EXPECT_EQ(none.status, 1);
  EXPECT_NE(none.err.find("devices would do"), std::string::npos) << none.err;
  const std::string page = weft.read_file("none.html");
  expect_whole(page, false);
  for (const char* words : {"Nothing fits 1xrtx4090. The nearest layout is",
                            "GiB are missing. What would do: ", " devices would do.", "the nearest; it does not fit"})
    EXPECT_NE(page.find(words), std::string::npos) << words;
  EXPECT_EQ(weft.read_file("none.toml"), "") << "a recipe that cannot run";
  const Outcome one = weft.run(plan + "one.html --cluster 2xrtx4090 --mesh dp=2");
  EXPECT_EQ(one.status, 1);
  for (const char* words : {"This layout of 2xrtx4090 does not fit: ", "GiB are missing. What would do: "})
    EXPECT_NE(weft.read_file("one.html").find(words), std::string::npos) << words;
}

TEST(PlanTest, ImportsSayWhatBecomesOfEachKey) {
  const Program weft;
  const Outcome o = weft.run("plan llama-1b --cluster 8xh100-sxm --import " + kImports +
                             "deepspeed_zero3_offload.json --recipe out.toml");
  ASSERT_EQ(o.status, 0) << o.err;
  for (const char* words : {"A configuration of DeepSpeed, 45 keys", "zero_optimization.stage", "mesh.zero = 3",
                            "same by default", "not needed", "data.train"})
    EXPECT_NE(o.out.find(words), std::string::npos) << words << "\n" << o.out;
  EXPECT_NE(weft.read_file("out.toml").find("preset = \"llama-1b\""), std::string::npos);
}

TEST(PlanTest, ImportsAsJson) {
  const Program weft;
  const Outcome o = weft.run("plan --json --import " + kImports + "megatron_llama.args");
  ASSERT_EQ(o.status, 0) << o.err;
  const auto json = nlohmann::json::parse(o.out);
  EXPECT_EQ(json["from"], "megatron");
  EXPECT_EQ(json["keys"].size(), 49u);
  EXPECT_NE(json["recipe"].get<std::string>().find("layers = 32"), std::string::npos);
}

TEST(PlanTest, ImportsThatAreRefused) {
  const Program weft;
  weft.write("broken.json", "{\"train_batch_size\": 8,}");
  const Outcome broken = weft.run("plan --import broken.json");
  EXPECT_EQ(broken.status, 2);
  EXPECT_NE(broken.err.find("broken.json, line 1"), std::string::npos) << broken.err;
  EXPECT_NE(weft.run("plan --import nothing.json").status, 0);
  EXPECT_EQ(weft.run("plan --import broken.json --from fairscale").status, 2);
  weft.write("odd.json", R"({"train_batch_size": 10, "train_micro_batch_size_per_gpu": 4})");
  const Outcome odd = weft.run("plan --import odd.json --recipe out.toml");
  EXPECT_EQ(odd.status, 2);
  EXPECT_NE(odd.out.find("train.micro_batch = 4"), std::string::npos) << odd.out;
  EXPECT_NE(odd.err.find("train.global_batch = 10"), std::string::npos) << odd.err;
}

}  // namespace
}  // namespace weft
