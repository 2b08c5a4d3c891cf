// Toml: typed keys, overrides, and messages that say what to write instead.
#include "weft/base/toml.h"

#include "base/temporary_folder.h"

namespace weft {
namespace {

constexpr std::string_view kRecipe = R"(title = "tiny"
[train]
steps = 2000
seed = 1337
precision = "bf16"
[optimizer]
lr = 1e-3
betas = [0.9, 0.95]
clip = 1
[log]
tensorboard = true
trace_steps = [10, 12]
tags = ["a", "b"]
)";

Toml recipe() { return Toml::parse(kRecipe, "tiny.toml"); }

// Asks for every key of the recipe, as a trainer would.
void ask_all(Toml& toml) {
  toml.get<std::string>("title", "");
  toml.get<int64_t>("train.steps", 1);
  toml.get<int>("train.seed", 1);
  toml.get<int64_t>("train.warmup", 100);
  toml.get<std::string>("train.precision", "fp32");
  toml.get<double>("optimizer.lr", 0.0);
  toml.get<std::vector<double>>("optimizer.betas", {});
  toml.get<double>("optimizer.clip", 0.0);
  toml.get<bool>("log.tensorboard", false);
  toml.get<std::vector<int64_t>>("log.trace_steps", {});
  toml.get<std::vector<std::string>>("log.tags", {});
}

std::string mistake(const std::function<void()>& action) {
  try {
    action();
  } catch (const UsageError& e) {
    return e.what();
  }
  return "no UsageError";
}

TEST(Toml, ReadsTypedKeys) {
  Toml toml = recipe();
  EXPECT_EQ(toml.get<int64_t>("train.steps", 1), 2000);
  EXPECT_EQ(toml.require<int>("train.seed"), 1337);
  EXPECT_EQ(toml.get<double>("optimizer.lr", 0.0), 1e-3);
  EXPECT_EQ(toml.get<double>("optimizer.clip", 0.0), 1.0) << "an integer is a number";
  EXPECT_EQ(toml.get<std::vector<double>>("optimizer.betas", {}), (std::vector<double>{0.9, 0.95}));
  EXPECT_EQ(toml.get<std::vector<double>>("log.trace_steps", {}), (std::vector<double>{10, 12}));
  EXPECT_EQ(toml.get<std::vector<std::string>>("log.tags", {}), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(toml.get<bool>("log.tensorboard", false));
  EXPECT_EQ(toml.get<std::string>("train.absent", "x"), "x");
  EXPECT_FALSE(toml.find<double>("optimizer.absent"));
  EXPECT_TRUE(toml.has("train.steps"));
  EXPECT_FALSE(toml.has("train.absent")) << "a default is not given";
  EXPECT_TRUE(toml.has_section("optimizer"));
  EXPECT_FALSE(toml.has_section("mesh"));
}

TEST(Toml, OverridesWin) {
  Toml toml = recipe();
  for (const char* text : {"--train.steps=5", "optimizer.lr=2e-4", "--optimizer.betas=[0.8, 0.9]",
                           "--data.train=a b.txt", "--log.dir=runs/#1", "--log.tensorboard=false", "--mesh.dp=2",
                           "--data.valid=", "--log.name=\"quoted\"", "--data.split=2024-01-01", "--data.file=2024"}) {
    toml.apply(text);
  }
  EXPECT_EQ(toml.get<int64_t>("train.steps", 1), 5);
  EXPECT_EQ(toml.get<double>("optimizer.lr", 0.0), 2e-4);
  EXPECT_EQ(toml.get<std::vector<double>>("optimizer.betas", {}), (std::vector<double>{0.8, 0.9}));
  EXPECT_EQ(toml.get<std::string>("data.train", ""), "a b.txt");
  EXPECT_EQ(toml.get<std::string>("log.dir", ""), "runs/#1");
  EXPECT_EQ(toml.get<std::string>("log.name", ""), "quoted");
  EXPECT_EQ(toml.get<std::string>("data.split", ""), "2024-01-01");
  EXPECT_EQ(toml.get<std::string>("data.file", ""), "2024");
  EXPECT_EQ(toml.get<std::string>("data.valid", "x"), "");
  EXPECT_FALSE(toml.get<bool>("log.tensorboard", true));
  EXPECT_EQ(toml.get<int>("mesh.dp", 1), 2);
}

struct Typo {
  std::string text, message;
};
class TomlTypoTest : public testing::TestWithParam<Typo> {};
INSTANTIATE_TEST_SUITE_P(
    Overrides, TomlTypoTest,
    testing::Values(
        Typo{"--train.step=1", "command line: train.step is not a key; did you mean train.steps?"},
        Typo{"--training.steps=1", "command line: training.steps is not a key; did you mean train.steps?"},
        Typo{"--train.presicion=\"fp16\"",
             "command line: train.presicion is not a key; did you mean train.precision?"},
        Typo{"--optimiser.lr=1", "command line: optimiser.lr is not a key; did you mean optimizer.lr?"},
        Typo{"--Optimizer.LR=1", "command line: Optimizer.LR is not a key; did you mean optimizer.lr?"},
        Typo{"--train.something_else=1",
             "command line: train.something_else is not a key; the keys are train.steps, train.seed, train.warmup, "
             "train.precision"},
        Typo{"--tilte=1", "command line: tilte is not a key; did you mean title?"},
        Typo{"--train.steps=many", "command line: train.steps = \"many\" must be an integer"},
        Typo{"--train.steps=2.5", "command line: train.steps = 2.5 must be an integer"},
        Typo{"--train.steps=1e3", "command line: train.steps = 1000.0 must be an integer"},
        Typo{"--train.seed=3000000000",
             "command line: train.seed = 3000000000 must be from -2147483648 to 2147483647"},
        Typo{"--train.steps=99999999999999999999",
             "command line: train.steps = \"99999999999999999999\" must be an "
             "integer"},
        Typo{"--optimizer.lr=fast", "command line: optimizer.lr = \"fast\" must be a number"},
        Typo{"--optimizer.betas=0.9",
             "command line: optimizer.betas = 0.9 must be an array of numbers, as [0.9, 0.95]"},
        Typo{"--optimizer.betas=[0.9, \"b\"]",
             "command line: optimizer.betas = [0.9, \"b\"] must be an array of numbers, as [0.9, 0.95]"},
        Typo{"--log.tensorboard=1", "command line: log.tensorboard = 1 must be true or false"},
        Typo{"--train=5", "command line: train is a section; write one of its keys, as train.precision=..."},
        Typo{"--train.steps.x=5",
             "command line: train.steps is a value and not a section, so train.steps.x cannot be"},
        Typo{"--train.steps", "'--train.steps' is not an override; write --section.key=value, as --train.steps=100"},
        Typo{"--train..steps=1",
             "'--train..steps=1' is not an override; write --section.key=value, as --train.steps=100"},
        Typo{"--=1", "'--=1' is not an override; write --section.key=value, as --train.steps=100"}));

TEST_P(TomlTypoTest, SaysWhatToWriteInstead) {
  EXPECT_EQ(mistake([] {
              Toml toml = recipe();
              toml.apply(GetParam().text);
              ask_all(toml);
              toml.reject_unknown();
            }),
            GetParam().message);
}

TEST(Toml, NamesTheLineOfMistakesInTheFile) {
  Toml toml = Toml::parse("[train]\nsteps = \"x\"\nstep = 1\n[optimzer]\n", "a.toml");
  EXPECT_EQ(mistake([&] { toml.get<int64_t>("train.steps", 1); }),
            "a.toml:2: train.steps = \"x\" must be an integer");
  toml.get<double>("optimizer.lr", 1.0);
  EXPECT_EQ(mistake([&] { toml.reject_unknown(); }),
            "a.toml:4: [optimzer] is not a section; did you mean optimizer?\n"
            "a.toml:3: train.step is not a key; did you mean train.steps?");
  EXPECT_EQ(mistake([&] { toml.require<std::string>("data.train"); }),
            "a.toml: data.train is missing, it must be a string, in double quotes");
  EXPECT_EQ(mistake([&] { toml.get<int64_t>("train", 1); }),
            "a.toml:3: train must be an integer, but it is a section with the key train.step");
}

TEST(Toml, RangesAndChoices) {
  Toml toml = Toml::parse("[a]\nn = 0\nx = nan\nmode = \"consine\"\n", "a.toml");
  EXPECT_EQ(mistake([&] { toml.integer("a.n", 1, 1); }), "a.toml:2: a.n = 0 must be at least 1");
  EXPECT_EQ(mistake([&] { toml.integer("a.n", 1, 1, 9); }), "a.toml:2: a.n = 0 must be from 1 to 9");
  EXPECT_EQ(mistake([&] { toml.reject("a.n", "it must divide 4"); }), "a.toml:2: a.n = 0: it must divide 4");
  EXPECT_EQ(mistake([&] { toml.reject("a.absent", "write it too"); }), "a.toml: a.absent: write it too");
  EXPECT_EQ(mistake([&] { toml.number("a.x", 1, 0, 1); }), "a.toml:3: a.x = nan must be from 0 to 1");
  EXPECT_EQ(mistake([&] {
              toml.choice("a.mode", "cosine", {"cosine", "linear"});
            }),
            "a.toml:4: a.mode = \"consine\" must be one of \"cosine\", \"linear\"; did you mean cosine?");
  EXPECT_EQ(toml.choice("a.other", "linear", {"cosine", "linear"}), "linear");
  EXPECT_EQ(toml.integer("a.n", 1, 0), 0);
}

TEST(Toml, RefusesBadText) {
  for (const auto& [text, message] : {
           std::pair<std::string, std::string>{"[train\nsteps = 1", "a.toml:1:"},
           {"a = 1\na = 2", "a.toml:2:"},
           {"a = ", "a.toml:1:"},
           {"d = 2024-01-01", "a.toml:1: d holds a date"},
           {"[[x]]\na = 1", "a.toml:1: x holds a date, a time, a table"},
           {"a = [[1]]", "a.toml:1: a holds"},
           {"\"a b\" = 1", "a.toml:1: 'a b' is not a key"},
           {"a.b.c.d.e.f.g.h.i.j.k = 1", "nested deeper than 8"},
           {"a = \"\xff\"", "a.toml:1:"},
           {"a = 99999999999999999999", "a.toml:1:"},
       }) {
    const std::string found = mistake([&, &t = text] { Toml::parse(t, "a.toml"); });
    EXPECT_NE(found.find(message), std::string::npos) << text << "\n" << found;
  }
  std::string bomb = "a = ";
  bomb.append(100'000, '[');
  EXPECT_NE(mistake([&] { Toml::parse(bomb, "a.toml"); }), "no UsageError");
  EXPECT_NE(mistake([] { Toml::load("/nowhere/recipe.toml"); }).find("/nowhere/recipe.toml"), std::string::npos);
}

TEST(Toml, TheResolvedRecipeReadsBackTheSame) {
  Toml toml = recipe();
  toml.apply("--train.note=tab\there \"and\" \\ there");
  toml.apply("--optimizer.eps=1e-8");
  ask_all(toml);
  toml.get<double>("optimizer.eps", 0.0);
  toml.get<std::string>("train.note", "");
  toml.get<double>("optimizer.min_lr", 1.0 / 3);
  toml.reject_unknown();
  const std::string text = toml.to_text();
  EXPECT_TRUE(text.starts_with("title = \"tiny\"\n\n[train]\nsteps = 2000\nseed = 1337\nwarmup = 100\n")) << text;

  Toml again = Toml::parse(text, "resolved");
  EXPECT_EQ(again.get<std::string>("train.note", ""), "tab\there \"and\" \\ there");
  EXPECT_EQ(again.get<double>("optimizer.min_lr", 0.0), 1.0 / 3);
  EXPECT_EQ(again.require<int64_t>("train.warmup"), 100);
  Toml third = Toml::parse(text, "resolved");
  ask_all(third);
  third.get<double>("optimizer.eps", 0.0);
  third.get<std::string>("train.note", "");
  third.get<double>("optimizer.min_lr", 0.0);
  third.reject_unknown();
  EXPECT_EQ(third.to_text(), text);
}

}  // namespace
}  // namespace weft
