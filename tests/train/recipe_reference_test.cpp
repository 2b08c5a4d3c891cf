// docs/recipes.md: every key that a recipe may have is there, no other is, and its defaults are the program's.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "weft/base/file.h"
#include "weft/train/recipe.h"

namespace weft {
namespace {

// What is asked for beside a smallest recipe, so that together every key is.
const char* const kBeside[] = {
    "",
    "[optimizer]\nname = \"adafactor\"\n",
    "[optimizer]\nname = \"lion\"\n",
    "[optimizer]\nname = \"sgd\"\n",
    "[optimizer]\nname = \"muon\"\n",
    "[optimizer]\nschedule = \"wsd\"\n",
    "[lora]\nalpha = 16\n",
    "[mesh]\noffload_optimizer = \"disk\"\n",
    "[preference]\nbeta = 0.2\n",
    "[preference]\nmethod = \"kto\"\n",
    "[model]\nlabels = 1\n[preference]\nmethod = \"reward\"\n",
    "[rl]\nmethod = \"grpo\"\n",
    "[rl]\nreward = \"command\"\ncommand = [\"score\"]\n",
    "[rl]\nreward = \"model\"\nreward_model = \"judge\"\n",
    "[distill]\nteacher = \"other\"\n",
    "[model]\nexperts = 4\n",
    "[model]\nexperts = 4\nexpert_layers = [1]\n",
    "[model]\nattention_gate = true\n",
    "[model]\nunrotated_every = 4\n",
    "[model]\nunrotated_layers = [0]\n",
    "[model]\nwindow = 4\n",
    "[model]\nwindow = 4\nglobal_layers = [0]\n",
    "[model]\nkv_rank = 4\n",
    "[model]\nkv_rank = 4\nquery_rank = 8\nhead_dim = 8\nrotary_dim = 4\nindex_heads = 2\n",
    "[model]\nkv_rank = 4\nquery_rank = 8\nhead_dim = 8\nrotary_dim = 4\nindex_heads = 2\nindex_layers = [0]\n",
    "[model]\nshared_kv_layers = 1\n",
    "[model]\nresidual_streams = 2\n",
    "[model]\nattention_every = 4\n",
    "[model]\nattention_every = 4\nattention_layers = [1]\n",
    "[model]\nattention_every = 4\nstate_rule = \"mamba2\"\nstate_input_scales = [1.0, 1.0, 1.0, 1.0, 2.0]\n",
    "[model]\nblock = \"single\"\n",
    "[model]\nblock = \"single\"\nmlp_layers = [1]\n",
    "[model]\nmtp_layers = 1\n",
    "[model]\nrope_scaling = \"longrope\"\nrope_short_factors = [1.0]\nrope_long_factors = [1.0]\n",
};

// The lines "key = value" of a TOML text as "section.key" to value.
std::map<std::string, std::string> values_of(const std::string& toml) {
  std::map<std::string, std::string> values;
  std::istringstream lines(toml);
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('[')) section = line.substr(1, line.find(']') - 1) + ".";
    if (const size_t is = line.find(" = "); is != line.npos)
      values[section + line.substr(0, is)] = line.substr(is + 3);
  }
  return values;
}

// What the program knows: keys, and the default of each in the first of these recipes that does not give it.
struct Known {
  std::set<std::string> keys;
  std::map<std::string, std::string> defaults;

  Known() {
    for (const char* const beside : kBeside) {
      const std::string text = fmt::format("{}[data]\ntrain = \"x\"\n[train]\nglobal_batch = 8\n", beside);
      Toml toml = Toml::parse(text, "recipe.toml");
      const Recipe recipe = read_recipe(toml);
      keys.insert(toml.keys().begin(), toml.keys().end());
      const std::map<std::string, std::string> given = values_of(text);
      for (const auto& [key, value] : values_of(recipe.text))
        if (!given.contains(key)) defaults.emplace(key, value);
    }
  }
};

struct Row {
  std::string key, otherwise;  // the default as the page has it
};
std::vector<Row> rows_of_page() {
  const std::string path = WEFT_SOURCE_DIR "/docs/recipes.md";
  std::istringstream lines(read_file(path, 1 << 20));
  std::vector<Row> rows;
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("## [")) section = line.substr(4, line.find(']') - 4) + ".";
    if (!line.starts_with("| `")) continue;
    const size_t end = line.find("` | ", 3), next = line.find(" |", end + 4);
    rows.push_back({section + line.substr(3, end - 3), line.substr(end + 4, next - end - 4)});
  }
  return rows;
}

TEST(RecipeReferenceTest, HasEveryKeyAndNoOther) {
  const Known known;
  std::set<std::string> on_page;
  for (const Row& row : rows_of_page()) {
    EXPECT_TRUE(on_page.insert(row.key).second) << row.key << " has two rows";
    EXPECT_TRUE(known.keys.contains(row.key)) << row.key << " is no key of a recipe";
  }
  for (const std::string& key : known.keys) EXPECT_TRUE(on_page.contains(key)) << key << " has no row";
}

TEST(RecipeReferenceTest, DefaultsAreTheProgramsOwn) {
  const Known known;
  int num_compared = 0;
  for (const auto& [key, otherwise] : rows_of_page()) {
    if (!otherwise.starts_with('`')) continue;
    const std::string literal = otherwise.substr(1, otherwise.find('`', 1) - 1);
    if (literal != "true" && literal != "false" && literal.find_first_of("0123456789[\"") != 0) continue;
    ASSERT_TRUE(known.defaults.contains(key)) << key << " has no default";
    EXPECT_EQ(literal, known.defaults.at(key)) << key;
    ++num_compared;
  }
  EXPECT_GT(num_compared, 70);
}

// Figures of 32 bits are written with the digits that they need, and read back the same.
TEST(RecipeReferenceTest, DefaultsAreWrittenShort) {
  Toml toml = Toml::parse("[data]\ntrain = \"x\"\n[train]\nglobal_batch = 8\n", "recipe.toml");
  const Recipe recipe = read_recipe(toml);
  EXPECT_NE(recipe.text.find("\nnorm_eps = 1e-05\n"), std::string::npos) << recipe.text;
  Toml again = Toml::parse(recipe.text, "again.toml");
  EXPECT_EQ(read_recipe(again).model.norm_eps, recipe.model.norm_eps);
  for (const auto& [key, value] : Known().defaults)
    EXPECT_EQ(value.find("99999"), std::string::npos) << key << " = " << value;
}

// A resolved recipe is read again as it is, whatever it leaves out; one that says what is offloaded may say where to.
TEST(RecipeReferenceTest, WhatIsResolvedIsTaken) {
  for (const char* const more :
       {"[optimizer]\nschedule = \"constant\"\n", "[mesh]\noffload_optimizer = \"none\"\noffload_dir = \"far\"\n",
        "[mesh]\noffload_optimizer = \"disk\"\noffload_dir = \"far\"\n", "[log]\ntrace_steps = [1000, 1002]\n"}) {
    Toml toml = Toml::parse(fmt::format("{}[data]\ntrain = \"x\"\n[train]\nglobal_batch = 8\n", more), "recipe.toml");
    Toml again = Toml::parse(read_recipe(toml).text, "again.toml");
    EXPECT_NO_THROW(read_recipe(again)) << more;
  }
}

}  // namespace
}  // namespace weft
