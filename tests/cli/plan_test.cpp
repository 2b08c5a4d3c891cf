// weft plan as a user runs it: recipes that are planned, and other programs' configurations.
#include <nlohmann/json.hpp>

#include <cmath>

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
  ASSERT_EQ(plan.status, 0) << plan.err;
  const std::string planned = weft.read_file("out.toml");
  for (const char* line :
       {"zero = 2\n", "dp = 2\n", "[lora]\nrank = 2\n", "lr = 0.003\n", "every = 3\n", "steps = 6\n"})
    EXPECT_NE(planned.find(line), std::string::npos) << line << planned;
  EXPECT_EQ(weft.run("train out.toml").status, 0);
}

// The vocabulary is the tokenizer's, where no text has to be read for it.
TEST(PlanTest, VocabulariesAreTakenFromTokenizers) {
  const Program weft;
  weft.write("byte.toml", sample_recipe());
  std::string recipe = sample_recipe();
  recipe.replace(recipe.find("\"byte\""), 6, "\"own.json\"");
  weft.write("file.toml", recipe);
  weft.write("text.txt", sample_text());
  ASSERT_EQ(weft.run("tokenize own.json --train-bpe 270 --from text.txt").status, 0);
  const auto number = [&](const std::string& command) {
    const Outcome o = weft.run(command + " --json");
    EXPECT_EQ(o.status, 0) << o.err;
    const auto json = nlohmann::json::parse(o.out);
    return (json.contains("peak") ? json["peak"]["weights"] : json["num_params"]).get<int64_t>();
  };
  EXPECT_EQ(number("inspect file.toml") - number("inspect byte.toml"), (270 - 257) * 2 * 32);
  std::string named = sample_recipe();
  named.replace(named.find("ffn = 64"), 8, "ffn = 64\nvocab = 270");
  weft.write("named.toml", named);
  const std::string options = " --cluster 1xh100-sxm --mesh recipe";
  const int64_t weights = number("plan file.toml" + options);
  EXPECT_EQ(weights, number("plan named.toml" + options));
  EXPECT_GT(weights, number("plan byte.toml" + options));
  recipe.replace(recipe.find("own.json"), 8, "char");
  weft.write("char.toml", recipe);
  for (const char* command : {"plan char.toml --cluster 1xh100-sxm", "inspect char.toml"}) {
    const Outcome refused = weft.run(command);
    EXPECT_EQ(refused.status, 2) << command;
    EXPECT_NE(refused.err.find("depends on the text: write model.vocab"), std::string::npos) << refused.err;
  }
}

// The rank whose experts are the busiest takes longer and holds more; more than all tokens do not come.
TEST(PlanTest, ExpertsMayBeUnevenlyBusy) {
  const Program weft;
  const auto plan = [&](const std::string& options) {
    const Outcome o = weft.run(
        "plan mixtral-8x7b --cluster 8xh200 --mesh dp=8,ep=8 --zero 3 --seq-len 4096 --global-batch 8 "
        "--recompute block --json " +
        options);
    EXPECT_EQ(o.status, 0) << o.err;
    return nlohmann::json::parse(o.out);
  };
  const auto even = plan(""), same = plan("--expert-load 1"), uneven = plan("--expert-load 1.5"),
             all = plan("--expert-load 8"), more = plan("--expert-load 9");
  EXPECT_EQ(even, same);
  EXPECT_GT(uneven["peak"]["activations"], even["peak"]["activations"]);
  EXPECT_GT(uneven["step_s"], even["step_s"]);
  EXPECT_GT(all["step_s"], uneven["step_s"]);
  EXPECT_EQ(all, more);
}

// With the recipe's own mesh the recipe says the sizes of a step, and the command line before it.
TEST(PlanTest, SizesOfARecipeAreOverridden) {
  const Program weft;
  weft.write("mine.toml", sample_recipe());
  const auto tokens = [&](const std::string& options) {
    const Outcome plan = weft.run("plan mine.toml --cluster 1xh100-sxm --mesh recipe --json " + options);
    EXPECT_EQ(plan.status, 0) << plan.err;
    const auto json = nlohmann::json::parse(plan.out);
    return std::lround(json["step_s"].get<double>() * json["tokens_per_s"].get<double>());
  };
  EXPECT_EQ(tokens(""), 8 * 32);
  EXPECT_EQ(tokens("--seq-len 16 --global-batch 6 --recipe out.toml"), 6 * 16);
  const std::string written = weft.read_file("out.toml");
  for (const char* line : {"seq_len = 16\n", "global_batch = 6\n"})
    EXPECT_NE(written.find(line), std::string::npos) << line << written;
}

TEST(PlanTest, DevicesBesideTheMeshAreIdle) {
  const Program weft;
  weft.write("mine.toml", sample_recipe());
  const Outcome plan = weft.run("plan mine.toml --cluster 8xh100-sxm --mesh dp=2 --json");
  ASSERT_EQ(plan.status, 0) << plan.err;
  EXPECT_EQ(nlohmann::json::parse(plan.out)["idle_devices"], 6);
  EXPECT_NE(plan.err.find("idle    6 of the cluster's 8 devices"), std::string::npos) << plan.err;
  const Outcome whole = weft.run("plan mine.toml --cluster 2xh100-sxm --mesh dp=2 --json");
  EXPECT_EQ(whole.err.find("idle"), std::string::npos) << whole.err;
}

TEST(PlanTest, ShowsHardware) {
  const Program weft;
  const Outcome text = weft.run("plan --show-hardware h100-sxm");
  const Outcome json = weft.run("plan --show-hardware h100-sxm --json");
  ASSERT_EQ(json.status, 0) << json.err;
  const auto shown = nlohmann::json::parse(json.out);
  EXPECT_EQ(shown["toml"].get<std::string>() + "\n", text.out);
  EXPECT_EQ(shown["node"]["devices"], 8);
  EXPECT_DOUBLE_EQ(shown["memory"]["gib"].get<double>(), 80);
}

struct RefusedPlan {
  const char* name;
  const char* arguments;
  std::vector<const char*> says;
};

const RefusedPlan kRefusedPlans[] = {
    {"experts_over_too_few_ranks", "mixtral-8x7b --cluster 8xh100-sxm --mesh ep=8", {"mesh.ep = 8", "1 ranks"}},
    {"experts_that_there_are_not", "llama-1b --cluster 8xh100-sxm --mesh dp=2,ep=2", {"mesh.ep = 2", "0 experts"}},
    {"load_of_no_experts", "llama-1b --cluster 8xh100-sxm --expert-load 2", {"--expert-load", "no experts"}},
    {"experts_over_half_a_line", "llama-1b --cluster 8xh100-sxm --mesh dp=4,ep=8", {"mesh.ep = 8"}},
    {"experts_of_a_recipe", "mine.toml --cluster 8xh100-sxm --mesh dp=2,ep=2", {"mesh.ep = 2", "0 experts"}},
    {"rows_that_cp_does_not_cut",
     "gpt2-124m --cluster 8xh100-sxm --seq-len 1024 --mesh cp=3",
     {"train.seq_len = 1024", "2 x mesh.cp = 6"}},
    {"tokens_that_tp_does_not_cut",
     "llama-1b --cluster 8xh100-sxm --seq-len 10 --global-batch 8 --mesh tp=4,sequence_parallel=true",
     {"mesh.sequence_parallel", "10 tokens"}},
    {"more_devices_than_there_are",
     "llama-1b --cluster 8xh100-sxm --mesh dp=16",
     {"--mesh dp=16", "16 devices", "8xh100-sxm has 8"}},
    {"more_devices_than_a_recipe_has", "two.toml --cluster 1xh100-sxm --mesh recipe", {"2 devices", "has 1"}},
    {"batch_of_a_recipe", "two.toml --cluster 2xh100-sxm --mesh recipe --global-batch 6", {"train.global_batch = 6"}},
    {"a_preset_drafts_itself", "llama-1b --for serve --cluster 1xh100-sxm --draft mtp", {"--draft mtp", "llama-1b"}},
    {"draft_of_training", "llama-1b --cluster 8xh100-sxm --draft mtp", {"--draft belongs to --for serve"}},
    {"input_of_training", "llama-1b --cluster 8xh100-sxm --input-len 9", {"--input-len belongs to --for serve"}},
    {"keys_of_training", "llama-1b --cluster 8xh100-sxm --kv-dtype fp8", {"--kv-dtype belongs to --for serve"}},
    {"batch_of_serving",
     "llama-1b --for serve --cluster 8xh100-sxm --global-batch 8",
     {"--global-batch belongs to --for train"}},
    {"zero_of_serving", "llama-1b --for serve --cluster 8xh100-sxm --zero 1", {"--zero belongs to --for train"}},
    {"drafts_of_none", "llama-1b --for serve --cluster 8xh100-sxm --speculate 4", {"--speculate", "--draft"}},
    {"file_of_no_measuring", "llama-1b --cluster 8xh100-sxm --out m.toml", {"--out belongs to --measure"}},
    {"ranks_of_one_layout", "llama-1b --cluster 8xh100-sxm --mesh dp=8 --rank-by cost", {"--rank-by", "--mesh"}},
    {"first_of_a_recipes_own", "mine.toml --cluster 1xh100-sxm --mesh recipe --top 3", {"--top", "--mesh"}},
    {"first_of_one_to_serve", "llama-1b --for serve --cluster 1xh100-sxm --mesh tp=1 --top 3", {"--top", "--mesh"}},
    {"two_things", "--measure --show-hardware h100-sxm", {"--show-hardware", "--measure"}},
    {"model_of_a_schedule", "llama-1b --show-schedule --mesh pp=4", {"MODEL", "--show-schedule"}},
    {"costs_below_0", "--show-schedule --mesh pp=4 --costs -1 1 1 0", {"--costs -1,1,1,0", "at least 0"}},
    {"costs_that_are_none", "--show-schedule --mesh pp=4 --costs 1 nan 1 0", {"--costs 1,nan,1,0", "at least 0"}},
    {"costs_without_end", "--show-schedule --mesh pp=4 --costs 1 1 inf 0", {"--costs 1,1,inf,0", "at least 0"}},
    {"schedule_without_a_pipeline",
     "--show-schedule --mesh pp=1 --schedule dualpipe-v",
     {"mesh.schedule = \"dualpipe-v\"", "mesh.pp of at least 2"}},
};

class RefusedPlanTest : public testing::TestWithParam<RefusedPlan> {};
INSTANTIATE_TEST_SUITE_P(Plans, RefusedPlanTest, testing::ValuesIn(kRefusedPlans),
                         [](const auto& test) { return test.param.name; });

TEST_P(RefusedPlanTest, NamesTheKeyOrTheOption) {
  const Program weft;
  weft.write("mine.toml", sample_recipe());
  std::string two = sample_recipe() + "[mesh]\ndp = 2\n";
  two.replace(two.find("global_batch = 8"), 16, "global_batch = 8\nmicro_batch = 2");
  weft.write("two.toml", two);
  const Outcome o = weft.run(std::string("plan ") + GetParam().arguments);
  EXPECT_EQ(o.status, 2) << o.err;
  for (const char* words : GetParam().says) EXPECT_NE(o.err.find(words), std::string::npos) << words << "\n" << o.err;
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
