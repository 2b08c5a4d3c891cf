// Translation: the recipe that grows out of a configuration, and the tables that say how.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <span>

#include "weft/base/error.h"
#include "weft/plan/imports/config_entry.h"
#include "weft/plan/imports/import.h"

namespace weft::plan {

class Translation;
struct Format;
using Take = void (*)(Translation&, const ConfigEntry&, std::string_view target);

// What becomes of a key that matches `pattern`: "*" is one part of it, "log-*" one that begins so, a last "**" any
// parts.
struct Rule {
  std::string_view pattern;
  Fate fate = Fate::unknown;
  std::string_view text;  // of taken: the recipe's key, as a hint where `take` decides; else why
  Take take = nullptr;
};

// The next whole number within +-2^30: products of two fit.
int64_t whole_near(double value);
Toml::Value pair_of(double first, double second);

class Translation {
 public:
  Translation(const Config& config, const std::string& source, const ImportOptions& options)
      : config_(config), source_(source), options_(options) {}

  std::string normal(std::string_view key) const { return normal_(key); }

  // Of any key of the configuration; none where it is not there, null, "auto" or not resolved.
  const ConfigEntry* find(std::string_view key) const;
  bool is_given(std::string_view key) const;  // even so
  std::optional<double> number(std::string_view key) const;
  double number_or(std::string_view key, double otherwise) const { return number(key).value_or(otherwise); }
  int64_t whole_or(std::string_view key, int64_t otherwise) const {
    return whole_near(number_or(key, double(otherwise)));
  }
  std::optional<std::string> text(std::string_view key) const;
  bool is_on(std::string_view key) const;  // a flag that is true

  // The value as it has to be; UsageError names the key otherwise.
  int64_t whole_of(const ConfigEntry& entry) const;
  double number_of(const ConfigEntry& entry) const;
  bool flag_of(const ConfigEntry& entry) const;
  std::string text_of(const ConfigEntry& entry) const;
  [[noreturn]] void reject(const ConfigEntry& entry, std::string_view what_to_write) const;

  // What a rule does with the key at hand: a key of the recipe, ...
  void put(std::string_view recipe_key, Toml::Value value);
  // ... or another fate than the table says, or more words to it.
  void say(Fate fate, std::string_view why);
  void add(std::string_view more);

  // Beside the keys. `imply` leaves alone what the recipe has already.
  void imply(std::string_view recipe_key, Toml::Value value, std::string_view why);
  void open(std::string_view recipe_key, std::string_view why);
  bool has(std::string_view recipe_key) const { return recipe_.has(recipe_key); }
  std::string word_in_recipe(std::string_view recipe_key);  // "" where it is not there
  int64_t whole_in_recipe(std::string_view recipe_key, int64_t otherwise);

  // Runs the table over all keys.
  void run(const Format& format);
  // Afterwards: mesh.dp, where devices or batches imply it.
  void settle_data_parallel(std::optional<int64_t> num_devices);

  Import take(ImportKind kind) &&;

 private:
  ImportedKey translate(const ConfigEntry& entry, std::span<const Rule> rules);

  const Config& config_;
  const std::string& source_;
  const ImportOptions& options_;
  std::string (*normal_)(std::string_view) = nullptr;
  std::map<std::string, const ConfigEntry*, std::less<>> by_key_;
  Toml recipe_;
  Import import_;
  ImportedKey current_;
};

// The usual ways to take a value: as it is, or as what a word says.
void take_whole(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_number(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_flag(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_text(Translation& t, const ConfigEntry& entry, std::string_view target);

// What a word of the program is called here.
struct Word {
  std::string_view theirs, ours;
};
using Words = std::array<Word, 6>;
// Of words that are not among them, says that there is no counterpart.
void take_word(Translation& t, const ConfigEntry& entry, std::string_view target, const Words& words);
// Gradients that are summed in bf16: the recipe has them beside products of bf16 only.
void take_bf16_gradients(Translation& t, std::string_view target, bool is_bf16);
inline constexpr std::string_view kWholeSums = "gradients are summed in fp32";
// One of "...beta1" and "...beta2", with the other beside it.
void take_beta(Translation& t, const ConfigEntry& entry, std::string_view target);

constexpr Rule whole(std::string_view pattern, std::string_view target) {
  return {pattern, Fate::taken, target, take_whole};
}
constexpr Rule number(std::string_view pattern, std::string_view target) {
  return {pattern, Fate::taken, target, take_number};
}
constexpr Rule flag(std::string_view pattern, std::string_view target) {
  return {pattern, Fate::taken, target, take_flag};
}
constexpr Rule text(std::string_view pattern, std::string_view target) {
  return {pattern, Fate::taken, target, take_text};
}
constexpr Rule taken(std::string_view pattern, std::string_view target, Take take) {
  return {pattern, Fate::taken, target, take};
}
constexpr Rule same(std::string_view pattern, std::string_view why) { return {pattern, Fate::same, why}; }
constexpr Rule not_needed(std::string_view pattern, std::string_view why) { return {pattern, Fate::not_needed, why}; }
constexpr Rule no_counterpart(std::string_view pattern, std::string_view why) {
  return {pattern, Fate::no_counterpart, why};
}

// A program's table and what follows from its keys together.
struct Format {
  ImportKind kind;
  std::string_view name, title;
  std::span<const Rule> rules;
  void (*finish)(Translation&);
  std::string (*normal)(std::string_view) = nullptr;
};
Format deepspeed_format();
Format megatron_format();
Format nanotron_format();
Format picotron_format();
Format accelerate_format();

}  // namespace weft::plan
